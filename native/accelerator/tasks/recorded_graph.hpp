// Completes recorded graphs.
#pragma once

#include "graph.hpp"
#include "layouts.hpp"

namespace kernloom::tasks {

// Derives the edges inside of a recorded graph and the regions that it uses outside. `layouts` are
// those of the transcript that the graph is recorded in.
Outcome finish_graph(RecordedGraph &graph, const Limits &limits, Layouts &layouts);

} // namespace kernloom::tasks
