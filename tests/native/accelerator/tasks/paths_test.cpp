// Paths between tasks, compared with all paths.
#include <gtest/gtest.h>

#include "orchestrations.hpp"
#include "paths.hpp"

namespace kernloom::testing {
namespace {

using namespace tasks;

Graph graph_of(const std::function<void(const Orchestration &)> &orchestrate) {
    Launch launch;
    Graph graph;
    EXPECT_TRUE(launch.record(orchestrate).ok());
    EXPECT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph).ok());
    return graph;
}

TEST(Paths, are_those_of_the_edges) {
    for (unsigned seed = 0; seed < 60; seed++) {
        std::mt19937_64 random(seed);
        const std::uint64_t few = 1 + random() % 3;
        const Graph graph = graph_of([&](const Orchestration &tasks) {
            for (std::uint32_t i = 0; i < 120; i++) {
                if (random() % 50 == 0)
                    tasks.barrier();
                Submission task = tasks.dummy();
                for (std::uint64_t j = random() % (few + 1); j && i; j--)
                    task.after(1 + random() % i);
                task.submit();
            }
        });
        const auto tasks = static_cast<std::uint32_t>(graph.transcript.tasks.size());
        std::vector<std::vector<bool>> waits(tasks, std::vector<bool>(tasks));
        for (std::uint32_t from = tasks; from-- > 0;)
            for (std::uint32_t i = graph.edges.first[from]; i < graph.edges.first[from + 1]; i++) {
                const std::uint32_t next = graph.edges.successors[i];
                waits[from][next] = true;
                for (std::uint32_t to = next; to < tasks; to++)
                    waits[from][to] = waits[from][to] || waits[next][to];
            }
        // By the later task, by the earlier task, at random.
        Paths by_later(graph.transcript, graph.edges), by_earlier(graph.transcript, graph.edges),
            in_any_order(graph.transcript, graph.edges);
        for (std::uint32_t a = 0; a < tasks; a++)
            for (std::uint32_t b = 0; b < tasks; b++) {
                if (b < a) {
                    ASSERT_EQ(by_later.has(b, a), waits[b][a]) << seed << ": " << b << " " << a;
                } else if (a < b) {
                    ASSERT_EQ(by_earlier.has(a, b), waits[a][b]) << seed << ": " << a << " " << b;
                }
                const auto to = static_cast<std::uint32_t>(1 + random() % (tasks - 1));
                const auto from = static_cast<std::uint32_t>(random() % to);
                ASSERT_EQ(in_any_order.has(from, to), waits[from][to]) << seed;
            }
    }
}

// Tests that would not end in minutes if each question looked at all tasks between.
constexpr std::uint32_t MANY = 400'000;

TEST(Paths, from_one_task_to_all_that_name_it) {
    const Graph graph = graph_of([](const Orchestration &tasks) {
        const kl_task first = tasks.dummy().submit();
        for (std::uint32_t i = 1; i < MANY; i++)
            tasks.dummy().after(first).submit();
    });
    Paths paths(graph.transcript, graph.edges);
    for (std::uint32_t i = 1; i < MANY; i++)
        ASSERT_TRUE(paths.has(0, i));
    EXPECT_FALSE(paths.has(1, 2));
}

TEST(Paths, along_a_chain) {
    const Graph graph = graph_of([](const Orchestration &tasks) {
        kl_task last = tasks.dummy().submit();
        for (std::uint32_t i = 1; i < MANY; i++)
            last = tasks.dummy().after(last).submit();
    });
    Paths paths(graph.transcript, graph.edges);
    for (std::uint32_t i = 1; i < MANY; i++)
        ASSERT_TRUE(paths.has(0, i));
    for (std::uint32_t i = MANY - 1; i-- > 0;)
        ASSERT_TRUE(paths.has(i, MANY - 1));
}

} // namespace
} // namespace kernloom::testing
