// The scheduler and the orders of both runtimes, without messages and time.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "graph_order.hpp"
#include "kernloom/orchestration.hpp"
#include "orchestrator.hpp"
#include "ring_order.hpp"

namespace kernloom::control {
namespace {

kl_arch arch_of(std::uint32_t cubes, std::uint32_t matrix, std::uint32_t vector) {
    kl_arch arch{};
    arch.sips = 1;
    arch.cubes = cubes;
    arch.pes = matrix + vector;
    for (std::uint32_t i = matrix; i < arch.pes; i++)
        arch.core_types[i] = KL_CORE_VECTOR;
    return arch;
}

constexpr GraphLimits ROOMY = {1 << 20, 1 << 20, 1 << 20};
const tasks::Limits LIMITS = tasks::graph_limits(Settings(nullptr));
constexpr std::uint32_t TYPES[] = {KL_CORE_MATRIX, KL_CORE_VECTOR, KL_CORE_TYPES};
const tasks::KernelView KERNELS[] = {
    {"matrix", KL_CORE_MATRIX, 0}, {"vector", KL_CORE_VECTOR, 0}, {"any", KL_CORE_TYPES, 0}};

// Records what a function submits.
template <class Submit> tasks::Graph graph_of(const kl_arch &arch, Submit submit) {
    static thread_local Submit *current;
    current = &submit;
    tasks::Transcript transcript;
    tasks::Graph graph;
    const Outcome recorded =
        tasks::record([](kl_orchestrator *self) { (*current)(Orchestration(self)); },
                      {&arch, {}, {}, KERNELS}, LIMITS, transcript);
    EXPECT_TRUE(recorded.ok()) << recorded.detail;
    EXPECT_TRUE(tasks::build_graph(std::move(transcript), LIMITS, graph).ok());
    return graph;
}

// The jobs that a scheduler dispatches now.
std::vector<Job> dispatched(Scheduler &scheduler) {
    std::vector<Job> jobs;
    while (scheduler.next() == Scheduler::Next::DISPATCH)
        jobs.push_back(scheduler.dispatch());
    return jobs;
}

TEST(OrderedSet, IsASetOfNumbersWithALeastOne) {
    std::mt19937 numbers(1);
    for (const std::uint32_t bound : {1u, 64u, 65u, 5000u, 300000u}) {
        OrderedSet set;
        std::set<std::uint32_t> expected;
        set.reset(bound);
        for (int i = 0; i < 3000; i++) {
            const std::uint32_t number = numbers() % bound;
            if (numbers() % 2) {
                set.insert(number);
                expected.insert(number);
            } else {
                set.erase(number);
                expected.erase(number);
            }
            ASSERT_EQ(set.empty(), expected.empty());
            if (!expected.empty()) {
                ASSERT_EQ(set.first(), *expected.begin());
            }
        }
        std::vector<std::uint32_t> all;
        set.each([&](std::uint32_t number) {
            all.push_back(number);
            return true;
        });
        EXPECT_EQ(all, std::vector<std::uint32_t>(expected.begin(), expected.end()));
    }
}

TEST(Scheduler, PesOfTheTypeGetTasksInOrderAndQueueThem) {
    const kl_arch arch = arch_of(2, 1, 2);
    const tasks::Graph graph = graph_of(arch, [](const Orchestration &tasks) {
        for (int i = 0; i < 20; i++)
            tasks.submit(1).submit();
    });
    for (const std::uint32_t queue : {1u, 2u, 5u}) {
        Scheduler scheduler(arch, queue);
        GraphOrder order(ROOMY);
        ASSERT_TRUE(scheduler.begin(graph.transcript, TYPES, order).ok());
        ASSERT_TRUE(order.begin(graph.transcript, &graph, scheduler).ok());
        const std::vector<Job> jobs = dispatched(scheduler);
        const std::uint32_t vectors[] = {1, 2, 4, 5};
        ASSERT_EQ(jobs.size(), std::min<std::size_t>(20, 4 * queue));
        for (std::uint32_t i = 0; i < jobs.size(); i++) {
            EXPECT_EQ(jobs[i].unit, i);
            EXPECT_EQ(jobs[i].pe, vectors[i % 4]);
        }
        // A PE that has ended one gets the next.
        if (jobs.size() < 20) {
            scheduler.completed(jobs[2].assignment);
            const std::vector<Job> more = dispatched(scheduler);
            ASSERT_EQ(more.size(), 1u);
            EXPECT_EQ(more[0].pe, jobs[2].pe);
            EXPECT_EQ(more[0].unit, jobs.size());
        }
    }
}

TEST(Scheduler, AMixedTaskGetsPesOfOneCubeWhenAllAreFree) {
    const kl_arch arch = arch_of(2, 1, 2);
    const tasks::Graph graph = graph_of(arch, [](const Orchestration &tasks) {
        tasks.submit(1).submit(); // on a vector PE of cube 0
        tasks.submit(0).vectors(2, 1).submit();
        tasks.submit(0).vectors(2, 1).submit();
        for (int i = 0; i < 8; i++)
            tasks.submit(1).submit();
    });
    Scheduler scheduler(arch, 2);
    GraphOrder order(ROOMY);
    ASSERT_TRUE(scheduler.begin(graph.transcript, TYPES, order).ok());
    ASSERT_TRUE(order.begin(graph.transcript, &graph, scheduler).ok());
    std::vector<Job> jobs = dispatched(scheduler);
    const auto expect_gang = [&](std::size_t first, std::uint32_t unit,
                                 const std::vector<std::uint32_t> &pes) {
        for (std::uint32_t i = 0; i < 3; i++) {
            const Job &job = jobs[first + i];
            EXPECT_EQ(job.unit, unit);
            EXPECT_EQ(job.members, 3u);
            EXPECT_EQ(job.gang, jobs[first].gang);
            EXPECT_EQ(job.pe, pes[i]);
            EXPECT_EQ(job.kernel, i ? 1u : 0u);
            EXPECT_EQ(job.block, i ? i - 1 : 0);
            EXPECT_EQ(job.of_blocks, i ? 2u : 1u);
        }
    };
    // The first gang takes the cube that is free; the second one has claimed the other, so that
    // tasks after it go to where the first one runs.
    ASSERT_EQ(jobs.size(), 6u);
    EXPECT_EQ(jobs[0].pe, 1u);
    expect_gang(1, 1, {3, 4, 5});
    EXPECT_EQ(jobs[4].pe, 4u);
    EXPECT_EQ(jobs[5].pe, 5u);
    scheduler.completed(jobs[0].assignment);
    jobs = dispatched(scheduler);
    ASSERT_GE(jobs.size(), 3u);
    expect_gang(0, 2, {0, 2, 1});
}

// Whatever the order in which jobs end, all of them run once, and after what they wait for.
TEST(Scheduler, EverythingRunsOnceInAnyOrderOfEnds) {
    for (unsigned seed = 0; seed < 300; seed++) {
        std::mt19937 numbers(seed);
        const kl_arch arch = arch_of(1 + numbers() % 3, 1 + numbers() % 2, 2 + numbers() % 3);
        const tasks::Graph graph = graph_of(arch, [&](const Orchestration &tasks) {
            std::vector<kl_task> known;
            const kl_graph recorded = tasks.begin_graph("inner");
            for (int i = 0; i < 5; i++)
                tasks.submit(i % 3).blocks(i).submit();
            tasks.end_graph();
            for (int i = 0; i < 60; i++) {
                if (i % 17 == 5) {
                    known.push_back(tasks.submit_graph(recorded));
                    continue;
                }
                if (i % 29 == 7)
                    tasks.barrier();
                const std::uint32_t kernel = numbers() % 4;
                Submission one(tasks.c(), kernel == 3 ? KL_NO_KERNEL : kernel);
                if (kernel == 0 && numbers() % 2)
                    one.vectors(1 + numbers() % 2, 1);
                if (kernel < 3)
                    one.blocks(numbers() % 4);
                for (unsigned j = 0; j < numbers() % 3 && !known.empty(); j++)
                    one.after(known[numbers() % known.size()]);
                known.push_back(one.submit());
            }
        });
        std::uint32_t jobs_wanted = 0;
        for (const Task &task : graph.transcript.tasks)
            if (task.flags & tasks::TASK_GRAPH)
                for (const Task &node : graph.transcript.graphs[0].body.tasks)
                    jobs_wanted += node.blocks;
            else if (task.kernel != KL_NO_KERNEL)
                jobs_wanted += task.blocks * (1 + task.vectors);
        for (const bool ring : {false, true}) {
            Scheduler scheduler(arch, 1 + seed % 3);
            GraphOrder whole(ROOMY);
            RingOrder rings({{1 + seed % 9, 1 << 20, 200}, 2}, false);
            Order &order = ring ? static_cast<Order &>(rings) : whole;
            ASSERT_TRUE(scheduler.begin(graph.transcript, TYPES, order).ok());
            ASSERT_TRUE(order.begin(graph.transcript, &graph, scheduler).ok());
            std::vector<std::uint32_t> running;
            std::uint32_t jobs = 0;
            for (;;) {
                for (const Job &job : dispatched(scheduler)) {
                    running.push_back(job.assignment);
                    jobs++;
                }
                if (order.can_submit() && numbers() % 3) {
                    order.submit();
                } else if (!running.empty()) {
                    const std::size_t place = numbers() % running.size();
                    scheduler.completed(running[place]);
                    running.erase(running.begin() + static_cast<std::ptrdiff_t>(place));
                } else if (!order.can_submit()) {
                    break;
                }
            }
            ASSERT_TRUE(order.done()) << seed << " " << ring;
            ASSERT_EQ(jobs, jobs_wanted) << seed << " " << ring;
        }
    }
}

// Submits and completes whatever can be; returns the order's report.
std::string run(const kl_arch &arch, const tasks::Graph &graph, Order &order) {
    Scheduler scheduler(arch, 1);
    EXPECT_TRUE(scheduler.begin(graph.transcript, TYPES, order).ok());
    EXPECT_TRUE(order.begin(graph.transcript, &graph, scheduler).ok());
    for (;;) {
        while (order.can_submit())
            order.submit();
        const std::vector<Job> jobs = dispatched(scheduler);
        if (jobs.empty())
            break;
        for (const Job &job : jobs)
            scheduler.completed(job.assignment);
    }
    EXPECT_TRUE(order.done()) << order.stuck(0).detail;
    return order.peaks();
}

// What a graph needs for itself is free when it has ended, also in a scope that goes on.
TEST(RingOrder, FreesTheOutputsInsideOfGraphsAtTheirEnd) {
    constexpr std::uint64_t bytes = 1 << 16;
    const kl_arch arch = arch_of(1, 1, 1);
    const tasks::Graph graph = graph_of(arch, [](const Orchestration &tasks) {
        const kl_graph recorded = tasks.begin_graph("inner");
        tasks.dummy().output<std::uint8_t>({bytes}).submit();
        tasks.end_graph();
        for (int i = 0; i < 100; i++)
            tasks.submit_graph(recorded);
    });
    RingOrder order({{1024, 4 * bytes, 4096}, 1}, false);
    run(arch, graph, order);
    RingOrder none({{1024, bytes - 1, 4096}, 1}, false);
    Scheduler scheduler(arch, 1);
    ASSERT_TRUE(scheduler.begin(graph.transcript, TYPES, none).ok());
    ASSERT_TRUE(none.begin(graph.transcript, &graph, scheduler).ok());
    EXPECT_EQ(none.stuck(0).value, bytes) << none.stuck(0).detail;
}

// Task 1 ends while it is submitted. The ring is full then, and nothing is waiting for it: the next
// task is in another ring.
TEST(RingOrder, AdvisesNoMoreThanWasWaitedFor) {
    const kl_arch arch = arch_of(1, 1, 1);
    const tasks::Graph graph = graph_of(arch, [](const Orchestration &tasks) {
        const kl_task first = tasks.submit(0).submit();
        tasks.dummy().submit();
        kl_task last = 0;
        {
            const kernloom::Scope scope(tasks);
            for (int i = 0; i < 2; i++)
                last = tasks.submit(0).after(i ? last : first).submit();
        }
        for (int i = 0; i < 2; i++)
            tasks.submit(0).after(last).submit();
    });
    RingOrder order({{2, 1 << 20, 4096}, 2}, false);
    Scheduler scheduler(arch, 1);
    ASSERT_TRUE(scheduler.begin(graph.transcript, TYPES, order).ok());
    ASSERT_TRUE(order.begin(graph.transcript, &graph, scheduler).ok());
    for (int i = 0; i < 3; i++)
        order.submit();
    // Before task 4 is next.
    for (const Job &job : dispatched(scheduler))
        scheduler.completed(job.assignment);
    while (order.can_submit())
        order.submit();
    EXPECT_EQ(order.submitted(), 6u);
    EXPECT_NE(order.peaks().find("ring.0.slots=2/2/2"), std::string::npos) << order.peaks();
}

// A deadlock is explained soon, also where the least heap is far from the least that can work: a
// test that would not end in minutes if all heaps between were tried.
TEST(RingOrder, FindsASizeThatWorksSoon) {
    constexpr std::uint64_t large = 1ull << 32;
    const kl_arch arch = arch_of(1, 1, 1);
    tasks::Transcript transcript;
    tasks::Limits limits;
    limits.heap = ~0ull;
    ASSERT_TRUE(tasks::record(
                    [](kl_orchestrator *self) {
                        const Orchestration tasks(self);
                        {
                            const kernloom::Scope scope(tasks);
                            tasks.dummy().output<std::uint8_t>({large}).submit();
                        }
                        const kernloom::Scope scope(tasks);
                        tasks.dummy().output<std::uint8_t>({64}).submit();
                        tasks.dummy().output<std::uint8_t>({large + 64}).submit();
                    },
                    {&arch, {}, {}, KERNELS}, limits, transcript)
                    .ok());
    const RingSizes sizes = {{1024, 1 << 20, 4096}, MOST_DEPTHS};
    const LeastSizes found = least_sizes(transcript, sizes, HEAP);
    EXPECT_FALSE(found.exact);
    EXPECT_EQ(found.need.size[HEAP], 2 * large + 192);
    // A heap that works is no reason to look for a smaller one.
    const RingSizes roomy = {{1, 4 * large, 4096}, MOST_DEPTHS};
    EXPECT_EQ(least_sizes(transcript, roomy, SLOTS).need.size[HEAP], 4 * large);
    EXPECT_TRUE(least_sizes(transcript, roomy, SLOTS).exact);
}

// A message names settings of the runtime that refuses.
TEST(Limits, NameTheSettingsOfTheirRuntime) {
    const Settings settings("graph.tasks=3\ngraph.heap=4\ngraph.edges=5\nring.submissions=6\n");
    const tasks::Limits graph = tasks::graph_limits(settings), ring = tasks::ring_limits(settings);
    EXPECT_EQ(graph.tasks, 3u);
    EXPECT_EQ(graph.heap, 4u);
    EXPECT_EQ(graph.edges, 5u);
    EXPECT_EQ(ring.tasks, 6u);
    for (const char *key : {graph.tasks_key, graph.heap_key, graph.edges_key})
        EXPECT_EQ(std::string(key).rfind("runtime.graph.", 0), 0u) << key;
    for (const char *key : {ring.tasks_key, ring.heap_key, ring.edges_key})
        EXPECT_EQ(std::string(key).find("runtime.graph."), std::string::npos) << key;
}

} // namespace
} // namespace kernloom::control
