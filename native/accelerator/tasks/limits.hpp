// How much a launch may ask for.
#pragma once

#include <cstdint>

#include "kernloom/settings.hpp"

namespace kernloom::tasks {

// How many tasks and dependencies among them a launch may have, and how many bytes their outputs:
// with what says so, for messages. Each execution counts as a task: blocks, PEs of mixed tasks, and
// tasks of recorded graphs with each submission. Without settings nothing is limited.
struct Limits {
    std::uint64_t tasks = UINT64_MAX;
    const char *tasks_key = "no limit";
    std::uint64_t heap = UINT64_MAX;
    const char *heap_key = "no limit";
    std::uint64_t edges = UINT64_MAX;
    const char *edges_key = "no limit";
};

// Bytes of all outputs of a launch, whatever its heap: sums of them can be counted.
constexpr std::uint64_t MOST_OUTPUT_BYTES = 1ull << 62;

inline Limits graph_limits(const Settings &settings) {
    return {graph_tasks(settings), "runtime.graph.tasks", graph_heap(settings),
            "runtime.graph.heap",  graph_edges(settings), "runtime.graph.edges"};
}

// The heap of a ring is used again and again, and its dependencies too.
inline Limits ring_limits(const Settings &settings) {
    return {ring_submissions(settings),
            "runtime.ring.submissions",
            UINT64_MAX,
            "runtime.ring.heap",
            1 << 28,
            "the most that a launch may have"};
}

} // namespace kernloom::tasks
