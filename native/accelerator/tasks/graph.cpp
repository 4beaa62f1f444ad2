#include "graph.hpp"

#include <algorithm>

#include "region.hpp"

namespace kernloom::tasks {

std::uint64_t Transcript::bytes() const {
    std::uint64_t bytes = tasks.bytes() + arguments.bytes() + regions.bytes() + layouts.bytes() +
                          dimensions.bytes() + after.bytes() + predicates.bytes() + scopes.bytes() +
                          tensors.bytes();
    for (const std::string &name : names)
        bytes += name.size() + 1;
    for (const RecordedGraph &graph : graphs)
        bytes += graph.bytes();
    return bytes;
}

std::uint64_t RecordedGraph::bytes() const {
    return name.size() + 1 + body.bytes() + edges.bytes() + heap.offsets.bytes() + outside.bytes() +
           needs.bytes();
}

std::uint64_t Graph::bytes() const {
    return transcript.bytes() + edges.bytes() + heap.offsets.bytes();
}

Outcome derive_edges(const Transcript &transcript, const Array<Reuse> &reuses, const Limits &limits,
                     Edges &edges, Array<Edge> *reasons) {
    const std::size_t tasks = transcript.tasks.size();
    const std::uint64_t most = std::min<std::uint64_t>(limits.edges, UINT32_MAX);
    Dependencies dependencies(transcript);
    Array<std::uint32_t> found;
    edges.predecessors.clear();
    std::uint32_t *const counts = edges.predecessors.add(tasks);
    const Reuse *reuse = reuses.begin();
    for (std::uint32_t task = 0; task < tasks; task++) {
        const std::size_t before = found.size();
        dependencies.add(task, found, reasons);
        const std::size_t explained = reasons ? reasons->size() : 0;
        if (reuse != reuses.end() && reuse->to == task) {
            for (; reuse != reuses.end() && reuse->to == task; reuse++) {
                found.push_back(reuse->from);
                if (reasons)
                    reasons->push_back({reuse->from, task, EDGE_HEAP, reuse->tensor, 0, 0});
            }
            if (reasons)
                make_unique(*reasons, explained);
            std::sort(found.begin() + before, found.end());
            const auto *const end = std::unique(found.begin() + before, found.end());
            found.truncate(static_cast<std::size_t>(end - found.begin()));
        }
        if (found.size() > most)
            return Outcome::failure(
                KL_STATUS_OUT_OF_MEMORY,
                text_of("the first %u of %zu tasks have more than %llu dependencies (%s)", task + 1,
                        tasks, static_cast<unsigned long long>(most), limits.edges_key));
        counts[task] = static_cast<std::uint32_t>(found.size() - before);
    }
    // first[task + 1] is where the successors of a task begin; when they are filled in, where they
    // end.
    edges.first.clear();
    edges.first.resize(tasks + 2);
    std::uint32_t *const first = edges.first.data();
    for (const std::uint32_t from : found)
        first[from + 2]++;
    for (std::size_t i = 1; i < tasks + 2; i++)
        first[i] += first[i - 1];
    edges.first.pop_back();
    edges.successors.clear();
    std::uint32_t *const successors = edges.successors.add(found.size());
    const std::uint32_t *from = found.begin();
    for (std::uint32_t task = 0; task < tasks; task++)
        for (std::uint32_t i = 0; i < counts[task]; i++)
            successors[first[*from++ + 1]++] = task;
    return {};
}

Outcome build_graph(Transcript &&transcript, const Limits &limits, Graph &graph,
                    Array<Edge> *reasons) try {
    graph.transcript = std::move(transcript);
    Array<Reuse> reuses;
    place_outputs(graph.transcript, limits.heap, graph.heap, reuses);
    if (graph.heap.bytes > limits.heap)
        return Outcome::failure(
            KL_STATUS_OUT_OF_MEMORY,
            text_of("the outputs of tasks need a heap of %llu bytes, and it has %llu (%s)",
                    static_cast<unsigned long long>(graph.heap.bytes),
                    static_cast<unsigned long long>(limits.heap), limits.heap_key));
    return derive_edges(graph.transcript, reuses, limits, graph.edges, reasons);
} catch (const std::bad_alloc &) {
    return Outcome::failure(KL_STATUS_OUT_OF_MEMORY, "no memory for the graph of the tasks");
}

Argument bind(const Transcript &transcript, const Task &submission, const Argument &argument) {
    const RecordedGraph &graph = transcript.graphs[submission.kernel];
    const Argument *const given = transcript.arguments.data() + submission.first_argument;
    const std::uint32_t launch = graph.body.launch_tensors;
    if (argument.tensor == VALUE)
        return argument;
    if (argument.tensor == LAUNCH_VALUE)
        return {given[launch + argument.bits].bits, VALUE, 0};
    if (argument.tensor < launch)
        return {given[argument.tensor].bits + argument.bits, given[argument.tensor].tensor, 0};
    return {graph.heap.offsets[argument.tensor - launch] + argument.bits,
            given[submission.arguments - 1].tensor, 0};
}

} // namespace kernloom::tasks
