#include "graph_order.hpp"

#include "peaks.hpp"

namespace kernloom::control {

Outcome GraphOrder::begin(const Transcript &transcript, const tasks::Graph *graph,
                          Scheduler &scheduler) {
    if (!graph)
        return Outcome::failure(KL_STATUS_INVALID, "the graph of the launch is missing");
    graph_ = graph;
    scheduler_ = &scheduler;
    predecessors_ = graph->edges.predecessors;
    left_ = static_cast<std::uint32_t>(transcript.tasks.size());
    std::fill(std::begin(waiting_), std::end(waiting_), 0);
    for (const Task &task : transcript.tasks)
        waiting_[scheduler.class_of(task)]++;
    for (std::uint32_t task = 0; task < transcript.tasks.size(); task++)
        if (!graph->edges.predecessors[task]) {
            waiting_[scheduler.class_of(transcript.tasks[task])]--;
            scheduler.ready(task);
        }
    return {};
}

void GraphOrder::ended(std::uint32_t task) {
    const tasks::Edges &edges = graph_->edges;
    left_--;
    for (std::uint32_t i = edges.first[task]; i < edges.first[task + 1]; i++) {
        const std::uint32_t next = edges.successors[i];
        if (--predecessors_[next] == 0) {
            waiting_[scheduler_->class_of(graph_->transcript.tasks[next])]--;
            scheduler_->ready(next);
        }
    }
}

Outcome GraphOrder::stuck(std::uint64_t) const {
    return Outcome::failure(KL_STATUS_INVALID,
                            text_of("%u tasks wait for each other: the graph has a cycle", left_));
}

std::string GraphOrder::peaks() const {
    const auto line = [](const char *key, std::uint64_t used, std::uint64_t size) {
        return peak_line(key, used, size, used);
    };
    return line("graph.tasks", graph_->transcript.executions, limits_.tasks) +
           line("graph.heap", graph_->heap.bytes, limits_.heap) +
           line("graph.edges", graph_->edges.successors.size(), limits_.edges) +
           scope_lines(graph_->transcript);
}

} // namespace kernloom::control
