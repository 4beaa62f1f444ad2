// A whole graph of tasks, ready to be executed.
#pragma once

#include "dependencies.hpp"
#include "heap.hpp"
#include "kernloom/fabric.hpp"
#include "transcript.hpp"

namespace kernloom::tasks {

struct Graph {
    Transcript transcript;
    Edges edges;
    Heap heap;
    Array<Edge> reasons; // of all edges, if they are kept; not part of what is uploaded

    std::uint64_t bytes() const;
};

// Derives the dependencies of all tasks and places their outputs. Refused if the outputs need more
// than the heap has, or if there are too many dependencies. `reasons` gets every edge.
Outcome build_graph(Transcript &&transcript, const Limits &limits, Graph &graph,
                    Array<Edge> *reasons = nullptr);

// The dependencies of all tasks, also those of outputs that take the place of others. Refused if
// they are too many.
Outcome derive_edges(const Transcript &transcript, const Array<Reuse> &reuses, const Limits &limits,
                     Edges &edges, Array<Edge> *reasons = nullptr);

// An argument of a recorded graph's task, as one of a submission's: a value, or the byte offset in
// a tensor of the transcript.
Argument bind(const Transcript &transcript, const Task &submission, const Argument &argument);

} // namespace kernloom::tasks
