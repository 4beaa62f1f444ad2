// Whether one task waits for another, directly or through others.
#pragma once

#include <unordered_map>
#include <vector>

#include "transcript.hpp"

namespace kernloom::tasks {

// Fast for many questions about one later task, and for many about one earlier task with later
// tasks in ascending order: what a question finds out is kept for the next.
class Paths {
  public:
    // Both must outlive this.
    Paths(const Transcript &transcript, const Edges &edges);

    // Whether `to` starts after the end of `from`, an earlier task.
    bool has(std::uint32_t from, std::uint32_t to);

  private:
    // Tasks that wait for a task, as far as they have been looked for.
    struct Waiting {
        std::uint32_t end;                // tasks before it have been followed
        std::vector<std::uint64_t> found; // bits, from the task on
    };

    void find_predecessors();
    bool look_back(std::uint32_t from, std::uint32_t to);
    void open_predecessors(std::uint32_t task);
    bool look_ahead(std::uint32_t from, std::uint32_t to);

    const Edges &edges_;
    std::uint32_t tasks_;
    Array<std::uint32_t> barriers_; // by task: itself or the last barrier before it, + 1; 0: none
    Array<std::uint32_t> levels_;   // by task: the most tasks that it waits for in a row
    Array<std::uint32_t> asked_;    // by earlier task: how often

    // What the later task of the last question waits for:
    std::uint32_t later_ = NONE;
    std::uint32_t search_ = 0;
    Array<std::uint32_t> first_predecessor_;
    Array<std::uint32_t> predecessors_;
    Array<std::uint32_t> visited_;    // by task: the number of the search
    std::vector<std::uint32_t> open_; // a heap: the latest first

    std::unordered_map<std::uint32_t, Waiting> waiting_; // by earlier task
};

} // namespace kernloom::tasks
