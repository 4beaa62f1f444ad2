// Speed of the task runtimes without fabric: tasks that do nothing end as soon as they are
// dispatched. Prints lines `key=value`, times in CPU time of a task.
//
//     accelerator_scheduler TASKS hostgraph|ringmap [NODES]
//
// Each task has three tensors: a tile of the output is computed from a tile that an earlier task
// has written and from one that several tasks read. hostgraph: a graph that is built before is
// executed. ringmap: tasks are submitted, and their dependencies derived, while others are
// executed.
//
// NODES: the tasks are nodes of a recorded graph, which is submitted TASKS / NODES times.
//
// submit_ns    recording the orchestration; with hostgraph also deriving the dependencies
// once_ns      of that, recording the graph of NODES, in CPU time of a node of it
// again_ns     of that, all submissions of the graph, with what is derived for them
// begin_ns     getting the scheduler ready for the tasks
// execute_ns   dispatching and completing; with ringmap also deriving the dependencies
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>

#include "graph.hpp"
#include "graph_order.hpp"
#include "kernloom/orchestration.hpp"
#include "orchestrator.hpp"
#include "ring_order.hpp"

namespace {

using namespace kernloom;
using namespace kernloom::control;

constexpr std::uint64_t TILE = 64, COLUMNS = 16 * TILE;
constexpr std::uint32_t CUBES = 36;

// CPU time: the machine may be busy.
double seconds() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void submit_tasks(const Orchestration &tasks, std::uint64_t count, std::uint64_t rows) {
    const Tensor even = tasks.tensor<float>(0, {rows * TILE, COLUMNS});
    const Tensor odd = tasks.tensor<float>(1, {rows * TILE, COLUMNS});
    const Tensor weights = tasks.tensor<float>(2, {TILE, COLUMNS});
    const std::uint64_t tiles = rows * (COLUMNS / TILE);
    for (std::uint64_t i = 0; i < count; i++) {
        const std::uint64_t tile = i % tiles, row = tile / 16 * TILE, column = tile % 16 * TILE;
        const bool forth = i / tiles % 2 == 0;
        tasks.submit(0)
            .in((forth ? even : odd).box({row, column}, {TILE, TILE}))
            .in(weights.box({0, column}, {TILE, TILE}))
            .out((forth ? odd : even).box({row, column}, {TILE, TILE}));
    }
}

double recorded_s; // when the graph of the last orchestration was complete

void orchestrate(kl_orchestrator *self) {
    const Orchestration tasks(self);
    const std::uint64_t count = self->values[0], nodes = self->values[2];
    if (!nodes)
        return submit_tasks(tasks, count, self->values[1]);
    const kl_graph graph = tasks.begin_graph("nodes");
    submit_tasks(tasks, nodes, self->values[1]);
    tasks.end_graph();
    recorded_s = seconds();
    for (std::uint64_t i = 0; i < count / nodes; i++)
        tasks.submit_graph(graph);
}

// Runs all tasks; each PE has two, and the oldest of all ends next.
std::uint64_t execute(Order &order, Scheduler &scheduler) {
    std::deque<std::uint32_t> running;
    std::uint64_t jobs = 0;
    for (;;) {
        if (scheduler.next() == Scheduler::Next::DISPATCH) {
            running.push_back(scheduler.dispatch().assignment);
            jobs++;
        } else if (order.can_submit()) {
            order.submit();
        } else if (!running.empty()) {
            scheduler.completed(running.front());
            running.pop_front();
        } else {
            return jobs;
        }
    }
}

} // namespace

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    const std::uint64_t tasks = std::strtoull(arguments[1], nullptr, 10);
    const bool ringmap = !std::strcmp(arguments[2], "ringmap");
    const std::uint64_t nodes = count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 0;
    kl_arch arch{};
    arch.sips = 1;
    arch.cubes = CUBES;
    arch.pes = 3;
    arch.core_types[1] = arch.core_types[2] = KL_CORE_VECTOR;
    // Whatever their number, tasks go over all tiles four times.
    const std::uint64_t rows = (nodes ? nodes : tasks) / 64 + 1;
    const std::uint64_t bytes[] = {rows * TILE * COLUMNS * 4, rows * TILE * COLUMNS * 4,
                                   TILE * COLUMNS * 4};
    const std::uint64_t values[] = {tasks, rows, nodes};
    const tasks::KernelView kernels[] = {{"nothing", KL_CORE_VECTOR, 3}};
    const std::uint32_t types[] = {KL_CORE_VECTOR};
    tasks::Limits limits = tasks::graph_limits(Settings(nullptr));
    limits.tasks = tasks + nodes;
    limits.edges = 1 << 28;
    const std::uint64_t rounds = tasks < 100000 ? 100000 / tasks : 2;
    double once = 0, again = 0, submitting = 0, beginning = 0, executing = 0;
    std::uint64_t jobs = 0, memory = 0;
    Scheduler scheduler(arch, 2);
    tasks::Transcript transcript;
    tasks::Graph graph;
    // The first round gets the memory that the launches of a device use again and again.
    for (std::uint64_t round = 0; round <= rounds; round++) {
        if (!ringmap)
            transcript = std::move(graph.transcript);
        if (round == 1)
            once = again = submitting = beginning = executing = 0, jobs = 0;
        const double begin = seconds();
        Outcome outcome =
            tasks::record(orchestrate, {&arch, bytes, values, kernels}, limits, transcript);
        GraphOrder whole({limits.tasks, limits.heap, limits.edges});
        RingOrder rings({{1024, 64 << 20, 4096}, 4}, false);
        if (outcome.ok() && !ringmap)
            outcome = tasks::build_graph(std::move(transcript), limits, graph);
        const double submitted = seconds();
        Order &order = ringmap ? static_cast<Order &>(rings) : whole;
        const tasks::Transcript &used = ringmap ? transcript : graph.transcript;
        if (outcome.ok())
            outcome = scheduler.begin(used, types, order);
        if (outcome.ok())
            outcome = order.begin(used, &graph, scheduler);
        if (!outcome.ok()) {
            std::fprintf(stderr, "%s\n", outcome.detail.c_str());
            return 1;
        }
        const double begun = seconds();
        jobs += execute(order, scheduler);
        executing += seconds() - begun;
        beginning += begun - submitted;
        submitting += submitted - begin;
        if (nodes) {
            once += recorded_s - begin;
            again += submitted - recorded_s;
        }
        memory = used.bytes() + graph.edges.bytes() + order.bytes() + scheduler.bytes();
        if (!order.done())
            return 1;
    }
    if (jobs != tasks * rounds)
        return 1;
    const auto all = static_cast<double>(jobs);
    std::printf("tasks_per_second=%.0f\n", all / (submitting + beginning + executing));
    std::printf("submit_ns=%.2f\n", submitting / all * 1e9);
    std::printf("begin_ns=%.2f\n", beginning / all * 1e9);
    std::printf("execute_ns=%.2f\n", executing / all * 1e9);
    if (nodes) {
        std::printf("once_ns=%.2f\n", once / static_cast<double>(nodes * rounds) * 1e9);
        std::printf("again_ns=%.3f\n", again / all * 1e9);
    }
    std::printf("bytes_per_task=%.1f\n", static_cast<double>(memory) / static_cast<double>(tasks));
    return 0;
}
