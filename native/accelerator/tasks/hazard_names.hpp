// How messages about hazards name tasks and tensors.
#pragma once

#include <functional>
#include <string>

#include "kernloom/fabric.hpp"
#include "transcript.hpp"

namespace kernloom::tasks {

// A task, or a task of a submitted graph.
struct TaskPlace {
    std::uint32_t task;
    std::uint32_t node;      // in the graph, or NONE
    std::uint32_t block = 0; // of an SPMD task

    bool same_task(const TaskPlace &other) const {
        return task == other.task && node == other.node;
    }
};

struct HazardNames {
    std::function<std::string(TaskPlace)> task;
    std::function<std::uint64_t(std::uint32_t tensor)> address; // of tensors that exist

    std::string tensor(const Transcript &transcript, std::uint32_t place) const {
        const std::uint32_t producer = transcript.tensors[place].producer;
        return producer == NONE
                   ? text_of("tensor %u", place)
                   : text_of("tensor %u, an output of %s", place, task({producer, NONE}).c_str());
    }
};

} // namespace kernloom::tasks
