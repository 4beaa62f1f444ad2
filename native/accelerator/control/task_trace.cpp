#include "task_trace.hpp"

#include <algorithm>

namespace kernloom::control {

void TaskTrace::ended(std::uint32_t unit, std::uint32_t pe, std::uint64_t started_ps,
                      std::uint64_t ended_ps) {
    Span &span = spans_[unit];
    if (span.first_pe == NONE || started_ps < span.started_ps) {
        span.first_pe = pe;
        span.started_ps = started_ps;
    }
    if (span.last_pe == NONE || ended_ps >= span.ended_ps) {
        span.last_pe = pe;
        span.ended_ps = ended_ps;
        span.last_started_ps = started_ps;
    }
}

// Of all units of a task.
TaskTrace::Span TaskTrace::span_of(const Scheduler &scheduler, const Transcript &transcript,
                                   std::uint32_t task) const {
    const std::uint32_t first = scheduler.first_unit(task);
    const Task &one = transcript.tasks[task];
    const std::size_t units =
        one.flags & tasks::TASK_GRAPH ? transcript.graphs[one.kernel].body.tasks.size() : 1;
    Span whole;
    for (std::size_t i = first; i < first + units && i < spans_.size(); i++) {
        const Span &span = spans_[i];
        if (span.first_pe == NONE)
            continue;
        if (whole.first_pe == NONE || span.started_ps < whole.started_ps) {
            whole.first_pe = span.first_pe;
            whole.started_ps = span.started_ps;
        }
        if (whole.last_pe == NONE || span.ended_ps >= whole.ended_ps) {
            whole.last_pe = span.last_pe;
            whole.ended_ps = span.ended_ps;
            whole.last_started_ps = span.last_started_ps;
        }
    }
    return whole;
}

// From the end of one slice to the beginning of another; an arrow must begin inside of its slice.
void TaskTrace::arrow(const Scheduler &scheduler, const Span &from, const Span &to) const {
    constexpr std::uint64_t INSIDE_PS = 1000;
    if (from.last_pe == NONE || to.first_pe == NONE)
        return;
    const std::uint64_t length = from.ended_ps - from.last_started_ps;
    platform_.flow(platform_.self, scheduler.pes()[from.last_pe],
                   from.ended_ps - std::min(INSIDE_PS, length), scheduler.pes()[to.first_pe],
                   to.started_ps);
}

void TaskTrace::draw(const Transcript &transcript, const Scheduler &scheduler,
                     const tasks::Array<tasks::Edge> &edges) const {
    for (std::size_t i = 0; i < edges.size(); i++) {
        // Two tasks may have several reasons.
        if (i && edges[i].from == edges[i - 1].from && edges[i].to == edges[i - 1].to)
            continue;
        arrow(scheduler, span_of(scheduler, transcript, edges[i].from),
              span_of(scheduler, transcript, edges[i].to));
    }
    for (std::uint32_t task = 0; task < transcript.tasks.size(); task++) {
        if (!scheduler.is_graph(task))
            continue;
        const tasks::Edges &inner = transcript.graphs[transcript.tasks[task].kernel].edges;
        const std::uint32_t first = scheduler.first_unit(task);
        for (std::uint32_t from = 0; from + 1 < inner.first.size(); from++)
            for (std::uint32_t i = inner.first[from]; i < inner.first[from + 1]; i++)
                arrow(scheduler, spans_[first + from], spans_[first + inner.successors[i]]);
    }
}

void TaskTrace::set(const char *name, std::uint64_t value) {
    const auto [known, added] = counters_.try_emplace(name, 0);
    if (known->second == value)
        return;
    known->second = value;
    platform_.counter(platform_.self, node_, name, value);
}

void TaskTrace::count(const Scheduler &scheduler, const Order &order) {
    static constexpr const char *NAMES[Scheduler::CLASSES] = {"ready matrix", "ready vector",
                                                              "ready any", "ready together"};
    for (std::uint32_t i = 0; i < Scheduler::CLASSES; i++)
        set(NAMES[i], scheduler.ready_count(i));
    order.each_use([this](const char *name, std::uint64_t used) { set(name, used); });
}

} // namespace kernloom::control
