#include "recorded_graph.hpp"

#include <algorithm>

#include "outside.hpp"

namespace kernloom::tasks {

Outcome finish_graph(RecordedGraph &graph, const Limits &limits, Layouts &layouts) {
    const Transcript &body = graph.body;
    Array<Reuse> reuses;
    place_outputs(body, limits.heap, graph.heap, reuses);
    if (graph.heap.bytes > limits.heap)
        return Outcome::failure(
            KL_STATUS_OUT_OF_MEMORY,
            text_of("the outputs of tasks of graph '%.100s' need a heap of %llu bytes, and it has "
                    "%llu (%s)",
                    graph.name.c_str(), static_cast<unsigned long long>(graph.heap.bytes),
                    static_cast<unsigned long long>(limits.heap), limits.heap_key));
    Outcome derived = derive_edges(body, reuses, limits, graph.edges);
    if (!derived.ok()) {
        derived.detail = text_of("graph '%.100s': ", graph.name.c_str()) + derived.detail;
        return derived;
    }
    graph.needs.resize(body.launch_tensors);
    for (const Region &region : body.regions)
        if (region.tensor < body.launch_tensors)
            graph.needs[region.tensor] = std::max(graph.needs[region.tensor], body.end_of(region));
    for (const Argument &argument : body.arguments)
        if (argument.tensor < body.launch_tensors)
            graph.needs[argument.tensor] = std::max(graph.needs[argument.tensor], argument.bits);
    graph.outside = outside_of(body, layouts);
    if (graph.outside.size() > UINT16_MAX)
        return Outcome::failure(
            KL_STATUS_UNSUPPORTED,
            text_of("graph '%.100s' uses too many tensors", graph.name.c_str()));
    return {};
}

} // namespace kernloom::tasks
