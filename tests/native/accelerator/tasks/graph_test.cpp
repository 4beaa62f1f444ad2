// Graphs of tasks: places of outputs, and recorded graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "orchestrations.hpp"

namespace kernloom::testing {
namespace {

using namespace tasks;

Order order_of(const Edges &edges) {
    const std::size_t tasks = edges.predecessors.size();
    std::vector<std::vector<std::uint32_t>> waits(tasks);
    for (std::uint32_t from = 0; from < tasks; from++)
        for (std::uint32_t i = edges.first[from]; i < edges.first[from + 1]; i++)
            waits[edges.successors[i]].push_back(from);
    Order order(tasks);
    for (std::uint32_t to = 0; to < tasks; to++) {
        EXPECT_EQ(waits[to].size(), edges.predecessors[to]);
        for (const std::uint32_t from : waits[to])
            order.add(from, to);
    }
    return order;
}

void submit_output(const Orchestration &tasks, std::mt19937_64 &random) {
    const Tensor whole = tasks.tensor<float>(0, {1024});
    const std::uint64_t count = 1 + random() % 300;
    const kl_tensor output = tasks.dummy().output<float>({count}).new_tensor(0);
    const Tensor part(output, KL_DTYPE_FLOAT32, {count});
    tasks.dummy().in(part.all());
    tasks.dummy().in(part.all()).out(whole.box({random() % 1000}, {8}));
}

// Outputs in scopes that follow each other; between inner scopes there are outputs that stay, so
// that the free memory has gaps.
void submit_scopes(const Orchestration &tasks, std::mt19937_64 &random, std::uint32_t scopes) {
    for (std::uint32_t i = 0; i < scopes; i++) {
        const kernloom::Scope scope(tasks);
        for (std::uint64_t left = 1 + random() % 3; left; left--) {
            {
                const kernloom::Scope inner(tasks);
                submit_output(tasks, random);
            }
            submit_output(tasks, random);
        }
    }
}

// Two outputs never have the same bytes, unless all users of the first come before the second.
void check_heap(const Graph &graph, std::uint64_t room) {
    const Transcript &transcript = graph.transcript;
    const Order order = order_of(graph.edges);
    const std::uint32_t launch = transcript.launch_tensors;
    EXPECT_LE(graph.heap.bytes, room);
    for (std::uint32_t later = launch; later < transcript.tensors.size(); later++) {
        const TensorInfo &b = transcript.tensors[later];
        const std::uint64_t at_b = graph.heap.offsets[later - launch];
        ASSERT_EQ(at_b % HEAP_ALIGNMENT, 0u);
        ASSERT_LE(at_b + b.bytes, graph.heap.bytes);
        for (std::uint32_t earlier = launch; earlier < later; earlier++) {
            const TensorInfo &a = transcript.tensors[earlier];
            const std::uint64_t at_a = graph.heap.offsets[earlier - launch];
            if (at_a + a.bytes <= at_b || at_b + b.bytes <= at_a)
                continue;
            for (const Region &region : transcript.regions)
                ASSERT_TRUE(region.tensor != earlier || order.before(b.producer).test(region.task));
        }
    }
}

TEST(Graphs, outputs_have_their_own_place_if_there_is_room) {
    Launch launch;
    std::mt19937_64 random(1);
    ASSERT_TRUE(launch.record([&](const auto &tasks) { submit_scopes(tasks, random, 20); }).ok());
    Graph graph;
    Array<Edge> edges;
    ASSERT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph, &edges).ok());
    check_heap(graph, launch.limits.heap);
    std::uint64_t sum = 0;
    for (const TensorInfo &tensor : graph.transcript.tensors)
        sum += tensor.producer == NONE ? 0 : (tensor.bytes + 63) / 64 * 64;
    EXPECT_EQ(graph.heap.bytes, sum);
    for (const Edge &edge : edges)
        EXPECT_NE(edge.kind, EDGE_HEAP);
}

// The need of a graph that is refused is the smallest heap with which it is not.
TEST(Graphs, the_smallest_heap_that_works) {
    for (std::uint64_t seed = 1; seed <= 30; seed++) {
        std::mt19937_64 random(seed);
        Launch launch;
        ASSERT_TRUE(
            launch.record([&](const auto &tasks) { submit_scopes(tasks, random, 20); }).ok());
        const Transcript transcript = launch.transcript;
        launch.limits.heap = 0;
        Graph graph;
        const Outcome refused = build_graph(Transcript(transcript), launch.limits, graph);
        EXPECT_EQ(refused.status, KL_STATUS_OUT_OF_MEMORY);
        const std::uint64_t need = graph.heap.bytes;
        EXPECT_EQ(refused.detail,
                  text_of("the outputs of tasks need a heap of %llu bytes, and it has 0 "
                          "(runtime.graph.heap)",
                          static_cast<unsigned long long>(need)));
        EXPECT_LT(need, 10000u) << "few outputs at a time";
        launch.limits.heap = need - 1;
        EXPECT_FALSE(build_graph(Transcript(transcript), launch.limits, graph).ok());
        launch.limits.heap = need;
        Array<Edge> edges;
        ASSERT_TRUE(build_graph(Transcript(transcript), launch.limits, graph, &edges).ok());
        check_heap(graph, need);
        EXPECT_TRUE(std::any_of(edges.begin(), edges.end(),
                                [](const Edge &edge) { return edge.kind == EDGE_HEAP; }));
    }
}

TEST(Graphs, outputs_outside_of_scopes_live_to_the_end) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        for (int i = 0; i < 10; i++)
                            tasks.dummy().output<float>({16});
                    })
                    .ok());
    launch.limits.heap = 639;
    Graph graph;
    EXPECT_EQ(build_graph(std::move(launch.transcript), launch.limits, graph).detail,
              "the outputs of tasks need a heap of 640 bytes, and it has 639 (runtime.graph.heap)");
}

// Tasks on tiles of two tensors, with an output of their own.
void submit_nodes(const Orchestration &tasks, std::uint64_t seed, std::uint32_t count,
                  const kl_tensor (&tensors)[2], bool in_graph, std::uint64_t value) {
    std::mt19937_64 random(seed);
    std::vector<kl_task> handles;
    kl_tensor output = NONE;
    for (std::uint32_t i = 0; i < count; i++) {
        Submission task = tasks.submit(4);
        for (int j = 0; j < 2; j++) {
            const Tensor t(tensors[random() % 2], KL_DTYPE_FLOAT32, {32, 32});
            const kl_region tile = t.box({random() % 4 * 8, random() % 4 * 8}, {8, 8});
            const std::uint64_t access = random() % 6;
            if (access < 3)
                task.in(tile);
            else if (access < 5)
                task.out(tile);
            else
                task.address(tile);
        }
        const bool is_new = output == NONE || random() % 3 == 0;
        if (is_new)
            task.output<float>({8, 8});
        else
            task.in(Tensor(output, KL_DTYPE_FLOAT32, {8, 8}).all());
        if (in_graph)
            task.launch_value(1);
        else
            task.value(value);
        if (!handles.empty() && random() % 6 == 0)
            task.after(handles[random() % handles.size()]);
        if (random() % 8 == 0) {
            kl_predicate predicate{};
            predicate.tensor = tensors[random() % 2];
            predicate.element = random() % 1024;
            task.only_if(predicate);
        }
        handles.push_back(task.submit());
        if (is_new)
            output = task.new_tensor(2);
    }
}

// Where a task's arguments are, with the heap behind all tensors of the launch.
std::vector<std::pair<std::uint64_t, std::uint64_t>>
values_and_sizes(const Transcript &transcript, const Task &task, const Task *submission) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
    const Transcript &body = submission ? transcript.graphs[submission->kernel].body : transcript;
    for (std::uint32_t i = 0; i < task.arguments; i++) {
        const Argument &given = body.arguments[task.first_argument + i];
        const Argument bound = submission ? bind(transcript, *submission, given) : given;
        if (bound.tensor == VALUE)
            found.emplace_back(bound.bits, NONE);
        else if (bound.tensor < transcript.launch_tensors)
            found.emplace_back(bound.bits, bound.tensor);
        else
            found.emplace_back(0, NONE - 1);
    }
    return found;
}

// Graphs that are recorded and submitted are the same tasks in the same order as without recording.
TEST(Graphs, recorded_graphs_equal_plain_submission) {
    constexpr std::uint32_t nodes = 12, submissions = 6;
    constexpr kl_tensor pairs[][2] = {{0, 1}, {2, 3}, {1, 0}, {0, 1}, {3, 1}, {2, 0}};
    constexpr kl_tensor recorded[] = {0, 1};
    int edges = 0;
    for (std::uint64_t seed = 1; seed <= 200; seed++) {
        Launch plain, graphs;
        plain.kernels.push_back({"four", KL_CORE_TYPES, 4});
        graphs.kernels.push_back({"four", KL_CORE_TYPES, 4});
        ASSERT_TRUE(plain
                        .record([&](const Orchestration &tasks) {
                            for (std::uint32_t i = 0; i < submissions; i++) {
                                const kernloom::Scope scope(tasks);
                                submit_nodes(tasks, seed, nodes, pairs[i], false, 100 + i);
                            }
                        })
                        .ok());
        const Outcome outcome = graphs.record([&](const Orchestration &tasks) {
            const kl_graph graph = tasks.begin_graph("nodes");
            submit_nodes(tasks, seed, nodes, recorded, true, 0);
            tasks.end_graph();
            for (std::uint32_t i = 0; i < submissions; i++) {
                const kl_tensor tensors[] = {pairs[i][0], pairs[i][1], 2, 3};
                const std::uint64_t values[] = {7, 100 + i};
                tasks.submit_graph(graph, tensors, values);
            }
        });
        ASSERT_TRUE(outcome.ok()) << outcome.detail;
        Graph expected, found;
        ASSERT_TRUE(build_graph(std::move(plain.transcript), plain.limits, expected).ok());
        ASSERT_TRUE(build_graph(std::move(graphs.transcript), graphs.limits, found).ok());
        const RecordedGraph &graph = found.transcript.graphs[0];
        ASSERT_EQ(graph.body.tasks.size(), nodes);
        ASSERT_EQ(found.transcript.tasks.size(), submissions);
        const Order all = order_of(expected.edges), inside = order_of(graph.edges),
                    outside = order_of(found.edges);
        for (std::uint32_t to = 0; to < submissions; to++) {
            const Task &submission = found.transcript.tasks[to];
            for (std::uint32_t from = 0; from < to; from++) {
                bool waits = false;
                for (std::uint32_t i = 0; i < nodes; i++)
                    for (std::uint32_t j = 0; j < nodes; j++)
                        waits |= all.before(to * nodes + i).test(from * nodes + j);
                // Order through a third submission may be more than node by node.
                ASSERT_TRUE(outside.before(to).test(from) || !waits) << seed;
                const bool edge =
                    std::find(found.edges.successors.data() + found.edges.first[from],
                              found.edges.successors.data() + found.edges.first[from + 1],
                              to) != found.edges.successors.data() + found.edges.first[from + 1];
                ASSERT_TRUE(waits || !edge) << seed;
                edges += edge;
            }
            for (std::uint32_t i = 0; i < nodes; i++) {
                for (std::uint32_t j = 0; j < i; j++)
                    ASSERT_EQ(inside.before(i).test(j),
                              all.before(to * nodes + i).test(to * nodes + j))
                        << seed;
                ASSERT_EQ(values_and_sizes(found.transcript, graph.body.tasks[i], &submission),
                          values_and_sizes(expected.transcript,
                                           expected.transcript.tasks[to * nodes + i], nullptr));
                const Task &node = graph.body.tasks[i];
                const Task &same = expected.transcript.tasks[to * nodes + i];
                ASSERT_EQ(node.predicate == NONE, same.predicate == NONE);
                if (node.predicate == NONE)
                    continue;
                const kl_predicate &own = graph.body.predicates[node.predicate];
                const Argument element =
                    bind(found.transcript, submission, {own.element * 4, own.tensor, 0});
                const kl_predicate &known = expected.transcript.predicates[same.predicate];
                ASSERT_EQ(element.tensor, known.tensor);
                ASSERT_EQ(element.bits, known.element * 4);
            }
        }
    }
    EXPECT_GT(edges, 200);
}

// The graph's own tensors are in one tensor of each submission, one beside the other.
TEST(Graphs, own_tensors_of_a_recorded_graph) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        const kl_graph graph = tasks.begin_graph("own");
                        const kl_tensor a = tasks.dummy().output<float>({10}).new_tensor(0);
                        const kl_tensor b = tasks.dummy().output<double>({10}).new_tensor(0);
                        tasks.submit(3)
                            .in(Tensor(a, KL_DTYPE_FLOAT32, {10}).all())
                            .in(Tensor(b, KL_DTYPE_FLOAT64, {10}).box({2}, {8}));
                        tasks.end_graph();
                        tasks.submit_graph(graph);
                        tasks.submit_graph(graph);
                    })
                    .ok());
    Graph graph;
    launch.limits.heap = 192;
    const Transcript transcript = launch.transcript;
    ASSERT_TRUE(build_graph(Transcript(transcript), launch.limits, graph).ok());
    ASSERT_EQ(transcript.tensors.size(), 6u);
    EXPECT_EQ(transcript.tensors[5].bytes, 192u);
    const RecordedGraph &own = transcript.graphs[0];
    const Task &last = own.body.tasks[2];
    const Argument second =
        bind(transcript, transcript.tasks[1], own.body.arguments[last.first_argument + 1]);
    EXPECT_EQ(second.tensor, 5u);
    EXPECT_EQ(second.bits, 64u + 16);
    EXPECT_EQ(graph.edges.predecessors[1], 1u) << "there is room for one at a time";
    launch.limits.heap = 384;
    ASSERT_TRUE(build_graph(Transcript(transcript), launch.limits, graph).ok());
    EXPECT_EQ(graph.edges.predecessors[1], 0u);
    launch.limits.heap = 191;
    EXPECT_FALSE(build_graph(Transcript(transcript), launch.limits, graph).ok());
}

// Tiles that make up a whole are one region outside, others as few as possible.
TEST(Graphs, regions_of_a_recorded_graph_are_joined) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        tasks.begin_graph("tiles");
                        const Tensor in = tasks.tensor<float>(0, {32, 32});
                        const Tensor out = tasks.tensor<float>(1, {32, 32});
                        const Tensor odd = tasks.tensor<float>(2, {32, 32});
                        for (std::uint64_t i = 0; i < 8; i++)
                            for (std::uint64_t j = 0; j < 8; j++)
                                tasks.dummy()
                                    .in(in.box({i * 4, 0}, {4, 32}))
                                    .inout(out.box({i * 4, j * 4}, {4, 4}))
                                    .in(out.box({j * 4, i * 4}, {4, 4}))
                                    .out(odd.box({i * 4, j * 2}, {1, 2}));
                        tasks.end_graph();
                    })
                    .ok());
    const Transcript &transcript = launch.transcript;
    const RecordedGraph &graph = transcript.graphs[0];
    ASSERT_EQ(graph.outside.size(), 3u);
    for (const Region &region : graph.outside) {
        const RegionView view = view_of(transcript, region);
        EXPECT_EQ(view.begin, 0u);
        if (region.tensor < 2) {
            EXPECT_EQ(view.run, 4096u);
            EXPECT_EQ(region.access, region.tensor ? KL_ACCESS_INOUT : KL_ACCESS_IN);
        } else {
            EXPECT_EQ(view.run, 64u);
            EXPECT_EQ(view.dimension[0].extent, 8u);
            EXPECT_EQ(view.dimension[0].stride, 512u);
        }
    }
    EXPECT_EQ(graph.needs[1], 4096u);
    EXPECT_EQ(graph.needs[3], 0u);
}

// The regions outside depend on what the tasks use, not on their order or on how often they use it.
TEST(Graphs, regions_of_a_recorded_graph_in_any_order) {
    std::vector<std::uint64_t> places;
    for (std::uint64_t i = 0; i < 40; i++)
        places.push_back(i < 32 ? i : i * i % 32);
    std::vector<std::vector<std::uint64_t>> found;
    for (unsigned seed = 0; seed < 20; seed++) {
        std::mt19937_64 random(seed);
        if (seed == 1)
            std::reverse(places.begin(), places.end());
        else if (seed)
            std::shuffle(places.begin(), places.end(), random);
        Launch launch;
        ASSERT_TRUE(launch
                        .record([&](const Orchestration &tasks) {
                            tasks.begin_graph("tiles");
                            const Tensor in = tasks.tensor<float>(0, {32, 32});
                            const Tensor out = tasks.tensor<float>(1, {32, 32});
                            for (const std::uint64_t i : places)
                                tasks.dummy()
                                    .in(in.box({i, i / 8}, {1, 4}))
                                    .out(out.box({i / 4 * 4, i % 4 * 8}, {2, 8}));
                            tasks.end_graph();
                        })
                        .ok());
        std::vector<std::uint64_t> regions;
        for (const Region &region : launch.transcript.graphs[0].outside) {
            const RegionView view = view_of(launch.transcript, region);
            regions.insert(regions.end(),
                           {region.tensor, region.access, view.begin, view.run, view.span});
            for (std::uint32_t i = 0; i < view.dimensions; i++)
                regions.insert(regions.end(), {view.dimension[i].extent, view.dimension[i].stride});
        }
        found.push_back(regions);
        EXPECT_EQ(found.front(), found.back()) << seed;
    }
}

TEST(Graphs, own_tensors_beyond_the_heap) {
    Launch launch;
    launch.limits.heap = 1000;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.begin_graph("large");
        tasks.dummy().output<float>({1000});
        tasks.end_graph();
    }),
              "the outputs of tasks of graph 'large' need a heap of 4032 bytes, and it has 1000 "
              "(runtime.graph.heap)");
}

// Nothing is derived from tasks of a manual scope in a graph; the graph uses their tensors.
TEST(Graphs, manual_scopes_in_a_recorded_graph) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        const Tensor t = tasks.tensor<float>(1, {1024});
                        const kl_graph graph = tasks.begin_graph("manual");
                        {
                            const kernloom::Scope scope(tasks, KL_SCOPE_MANUAL);
                            tasks.dummy().out(t.box({0}, {8}));
                            tasks.dummy().out(t.box({4}, {8}));
                        }
                        tasks.end_graph();
                        tasks.submit_graph(graph);
                        tasks.submit_graph(graph);
                    })
                    .ok());
    const RecordedGraph &recorded = launch.transcript.graphs[0];
    ASSERT_EQ(recorded.outside.size(), 1u);
    EXPECT_EQ(recorded.outside[0].access, KL_ACCESS_NONE);
    EXPECT_EQ(recorded.needs[1], 48u);
    EXPECT_EQ(recorded.edges.predecessors[1], 0u);
    EXPECT_EQ(name_of_task(launch.transcript, launch.kernels, 1), "task 1 'manual'");
    Graph graph;
    ASSERT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph).ok());
    EXPECT_EQ(graph.edges.predecessors[1], 0u);
}

// Readers of a whole and then writers of its parts depend on each other in all pairs.
TEST(Graphs, too_many_dependencies) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        const Tensor t = tasks.tensor<float>(0, {1024});
                        for (std::uint64_t i = 0; i < 30; i++)
                            tasks.dummy().in(t.all());
                        for (std::uint64_t i = 0; i < 30; i++)
                            tasks.dummy().out(t.box({i}, {1}));
                    })
                    .ok());
    const Transcript transcript = launch.transcript;
    Graph graph;
    launch.limits.edges = 899;
    EXPECT_EQ(build_graph(Transcript(transcript), launch.limits, graph).detail,
              "the first 60 of 60 tasks have more than 899 dependencies (runtime.graph.edges)");
    launch.limits.edges = 900;
    EXPECT_TRUE(build_graph(Transcript(transcript), launch.limits, graph).ok());
}

// Task 1 uses an output twice; both outputs of task 2 take its place.
TEST(Graphs, reasons_of_the_heap_are_there_once) {
    Launch launch;
    launch.limits.heap = 128;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        {
                            const kernloom::Scope scope(tasks);
                            Submission first = tasks.dummy();
                            first.output<std::uint8_t>({128}).submit();
                            const Tensor t(first.new_tensor(0), KL_DTYPE_UINT8, {128});
                            tasks.dummy().in(t.box({0}, {1})).in(t.box({5}, {1}));
                        }
                        tasks.dummy().output<std::uint8_t>({64}).output<std::uint8_t>({64});
                    })
                    .ok());
    Graph graph;
    Array<Edge> edges;
    ASSERT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph, &edges).ok());
    std::vector<std::uint32_t> from;
    for (const Edge &edge : edges)
        if (edge.kind == EDGE_HEAP)
            from.push_back(edge.from);
    EXPECT_EQ(from, (std::vector<std::uint32_t>{0, 1}));
}

TEST(Graphs, bytes_are_those_in_use) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        const Tensor t = tasks.tensor<float>(0, {32, 32});
                        for (std::uint64_t i = 0; i < 1000; i++)
                            tasks.submit(3)
                                .in(t.box({i % 32, 0}, {1, 32}))
                                .out(t.box({i % 16, 0}, {1, 32}));
                    })
                    .ok());
    Graph graph;
    ASSERT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph).ok());
    const std::uint64_t plain = 1000 * (sizeof(Task) + 2 * (sizeof(Argument) + sizeof(Region)));
    EXPECT_GT(graph.bytes(), plain);
    EXPECT_LT(graph.bytes(), plain + 1000 * 30);
}

} // namespace
} // namespace kernloom::testing
