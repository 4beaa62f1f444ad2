// Places of the outputs of tasks in a heap.
#pragma once

#include "transcript.hpp"

namespace kernloom::tasks {

// A task that must wait until another no longer needs the place of an output.
struct Reuse {
    std::uint32_t from;
    std::uint32_t to;
    std::uint32_t tensor; // whose place is taken
};

// Places all outputs. If there is room for all of them, each has a place of its own. Otherwise an
// output takes the lowest place that is free: those of ended scopes are, and their users go into
// `reuses`, in order of the tasks that wait. Heap::bytes may then be more than there is room for:
// it is the smallest size that is enough.
void place_outputs(const Transcript &transcript, std::uint64_t room, Heap &heap,
                   Array<Reuse> &reuses);

} // namespace kernloom::tasks
