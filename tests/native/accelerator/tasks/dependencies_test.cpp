// Derived dependencies, compared with a comparison of every task with every other.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "orchestrations.hpp"

namespace kernloom::testing {
namespace {

using namespace tasks;

// Regions that tasks have: tiles that mostly fit each other, and anything else.
class RandomTasks {
  public:
    RandomTasks(std::mt19937_64 &random, const Orchestration &tasks, std::uint32_t tensors)
        : random_(random), regions_(random, MOST_BYTES), tasks_(tasks), tensors_(tensors),
          tiled_(random() % 2), barriers_(random() % 2) {
    }

    void submit(std::uint32_t number) {
        const std::uint64_t what = random_() % 40;
        if (what == 0 && barriers_)
            return tasks_.barrier();
        if (what <= 2 && depth_ < 3) {
            depth_++;
            tasks_.c()->functions->begin_scope(tasks_.c(),
                                               what == 1 ? KL_SCOPE_MANUAL : KL_SCOPE_DERIVED);
        } else if (what <= 6 && depth_ > 0) {
            end_scope();
        }
        Submission task = tasks_.submit(KL_NO_KERNEL);
        const std::uint64_t arguments = random_() % 4;
        std::vector<std::uint32_t> is_new;
        for (std::uint64_t i = 0; i < arguments; i++) {
            static constexpr std::uint32_t accesses[] = {KL_ACCESS_IN,    KL_ACCESS_IN,
                                                         KL_ACCESS_WRITE, KL_ACCESS_WRITE,
                                                         KL_ACCESS_INOUT, KL_ACCESS_NONE};
            if (random_() % 12 == 0) {
                task.output<float>({8, 16});
                is_new.push_back(static_cast<std::uint32_t>(i));
                continue;
            }
            const kl_region region = next_region();
            task.tensor(accesses[random_() % 6], region, region.offset);
        }
        while (number && random_() % 8 == 0)
            task.after(1 + random_() % number);
        if (random_() % 10 == 0) {
            kl_predicate predicate{};
            predicate.tensor = random_() % tensors_;
            predicate.dtype = KL_DTYPE_INT32;
            predicate.element = random_() % 1024;
            task.only_if(predicate);
        }
        task.submit();
        for (const std::uint32_t i : is_new)
            outputs_.push_back({task.new_tensor(i), depth_});
    }

    void end() {
        while (depth_)
            end_scope();
    }

  private:
    struct Output {
        kl_tensor tensor;
        std::uint32_t depth;
    };

    void end_scope() {
        std::erase_if(outputs_, [&](const Output &one) { return one.depth == depth_; });
        depth_--;
        tasks_.c()->functions->end_scope(tasks_.c());
    }

    kl_region next_region() {
        kl_region region;
        if (!outputs_.empty() && random_() % 4 == 0) {
            region = Tensor(outputs_[random_() % outputs_.size()].tensor, KL_DTYPE_FLOAT32, {8, 16})
                         .box({random_() % 8, random_() % 16}, {1, 1});
            return region;
        }
        const auto tensor = static_cast<kl_tensor>(random_() % tensors_);
        const Tensor matrix(tensor, KL_DTYPE_FLOAT32, {32, 32});
        if (tiled_ && random_() % 8) {
            const std::uint64_t row = random_() % 8, column = random_() % 8;
            switch (random_() % 8) {
            case 0:
                return matrix.box({row * 4, 0}, {4, 32});
            case 1:
                return matrix.box({0, column * 4}, {32, 4});
            case 2:
                return matrix.box({row * 3, column * 3}, {6, 6});
            default:
                return matrix.box({row * 4, column * 4}, {4, 4});
            }
        }
        region = regions_.next();
        region.tensor = tensor;
        return region;
    }

    std::mt19937_64 &random_;
    RandomRegions regions_;
    const Orchestration &tasks_;
    std::uint32_t tensors_;
    bool tiled_;
    bool barriers_;
    std::uint32_t depth_ = 0;
    std::vector<Output> outputs_;
};

// Every task compared with every other.
class Expected {
  public:
    explicit Expected(const Transcript &transcript) : transcript_(transcript) {
        for (const Region &region : transcript.regions)
            bytes_.push_back(bytes_of(view_of(transcript, region)));
    }

    // Whether `to` must wait for `from` by itself.
    bool waits(std::uint32_t from, std::uint32_t to) const {
        const Task &a = transcript_.tasks[from], &b = transcript_.tasks[to];
        if ((a.flags | b.flags) & TASK_BARRIER)
            return true;
        const std::uint32_t *const after = transcript_.after.data() + b.first_after;
        if (std::find(after, after + b.after, from) != after + b.after)
            return true;
        return !((a.flags | b.flags) & TASK_MANUAL) && conflict(a, b);
    }

  private:
    bool conflict(const Task &a, const Task &b) const {
        for (std::uint32_t i = a.first_region; i < a.first_region + a.regions; i++)
            for (std::uint32_t j = b.first_region; j < b.first_region + b.regions; j++) {
                const Region &one = transcript_.regions[i], &other = transcript_.regions[j];
                if (one.tensor != other.tensor || one.access == KL_ACCESS_NONE ||
                    other.access == KL_ACCESS_NONE)
                    continue;
                if (one.access == KL_ACCESS_IN && other.access == KL_ACCESS_IN)
                    continue;
                if ((bytes_[i] & bytes_[j]).any())
                    return true;
            }
        return false;
    }

    const Transcript &transcript_;
    std::vector<Bytes> bytes_;
};

void submit_random(Launch &launch, std::mt19937_64 &random, std::uint32_t count,
                   std::uint32_t tensors) {
    const Outcome outcome = launch.record([&](const Orchestration &tasks) {
        RandomTasks made(random, tasks, tensors);
        for (std::uint32_t i = 0; i < count; i++)
            made.submit(i);
        made.end();
    });
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    ASSERT_EQ(launch.transcript.tasks.size(), count);
}

void compare_with_expected(std::uint64_t seed, std::uint32_t count, std::uint32_t tensors) {
    std::mt19937_64 random(seed);
    Launch launch;
    submit_random(launch, random, count, tensors);
    const Expected expected(launch.transcript);
    Order derived(count), wanted(count);
    Dependencies dependencies(launch.transcript);
    for (std::uint32_t task = 0; task < count; task++) {
        Array<std::uint32_t> found;
        dependencies.add(task, found);
        ASSERT_EQ(std::set<std::uint32_t>(found.begin(), found.end()).size(), found.size());
        for (const std::uint32_t from : found) {
            ASSERT_LT(from, task);
            ASSERT_TRUE(expected.waits(from, task)) << seed << ": " << task << " for " << from;
            derived.add(from, task);
        }
        for (std::uint32_t from = 0; from < task; from++)
            if (expected.waits(from, task))
                wanted.add(from, task);
        ASSERT_EQ(derived.before(task), wanted.before(task)) << seed << ": task " << task;
    }
}

TEST(Dependencies, are_those_of_every_pair_of_tasks) {
    for (std::uint64_t seed = 1; seed <= 400; seed++) {
        compare_with_expected(seed, 40, 1 + seed % 4);
        if (HasFatalFailure())
            return;
    }
}

TEST(Dependencies, of_many_tasks_on_one_tensor) {
    for (std::uint64_t seed = 1000; seed < 1010; seed++) {
        compare_with_expected(seed, Order::MOST, 1);
        if (HasFatalFailure())
            return;
    }
}

// Whatever is retired when a task is submitted, every task that it must wait for and that is not
// retired comes before it.
TEST(Dependencies, retired_tasks_are_no_dependencies) {
    for (std::uint64_t seed = 1; seed <= 150; seed++) {
        std::mt19937_64 random(seed);
        constexpr std::uint32_t count = 150;
        Launch launch;
        submit_random(launch, random, count, 2);
        const Expected expected(launch.transcript);
        Order derived(count);
        Dependencies dependencies(launch.transcript);
        std::vector<std::vector<std::uint32_t>> waits(count);
        std::vector<bool> retired(count);
        for (std::uint32_t task = 0; task < count; task++) {
            for (std::uint32_t i = 0; i < task; i++) {
                const bool free = std::all_of(waits[i].begin(), waits[i].end(),
                                              [&](std::uint32_t from) { return retired[from]; });
                if (!retired[i] && free && random() % 4 == 0) {
                    retired[i] = true;
                    dependencies.retire(i);
                }
            }
            Array<std::uint32_t> found;
            dependencies.add(task, found);
            for (const std::uint32_t from : found) {
                ASSERT_FALSE(retired[from]);
                ASSERT_TRUE(expected.waits(from, task));
                derived.add(from, task);
                waits[task].push_back(from);
            }
            for (std::uint32_t from = 0; from < task; from++)
                ASSERT_TRUE(retired[from] || !expected.waits(from, task) ||
                            derived.before(task).test(from))
                    << seed << ": " << task << " for " << from;
        }
    }
}

// A step of a stencil for a tile: from one tensor to the other.
void stencil(const Orchestration &tasks, const std::vector<std::uint64_t> &grid, std::uint64_t side,
             std::uint64_t step, std::uint64_t tile) {
    kl_region from{}, to{};
    from.tensor = static_cast<kl_tensor>(step % 2);
    to.tensor = 1 - from.tensor;
    from.dtype = to.dtype = KL_DTYPE_FLOAT32;
    from.dimensions = to.dimensions = static_cast<std::uint32_t>(grid.size());
    std::uint64_t stride = 1;
    for (std::size_t i = grid.size(); i-- > 0;) {
        const std::uint64_t place = tile % grid[i], low = place ? 1 : 0;
        tile /= grid[i];
        from.strides[i] = to.strides[i] = stride;
        to.shape[i] = side;
        to.offset += place * side * stride;
        from.shape[i] = side + low + (place + 1 < grid[i]);
        from.offset += (place * side - low) * stride;
        stride *= grid[i] * side;
    }
    tasks.dummy().in(from).out(to).submit();
}

// Edges have their reasons: the kind, and bytes that both tasks use.
TEST(Dependencies, say_why) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        const Tensor t = tasks.tensor<float>(2, {16, 16});
                        const kl_task write = tasks.dummy().out(t.box({0, 0}, {4, 16})).submit();
                        tasks.dummy().in(t.box({2, 0}, {1, 16}));
                        tasks.dummy().out(t.box({2, 8}, {4, 8})).after(write);
                        tasks.barrier();
                        tasks.dummy().inout(t.all());
                    })
                    .ok());
    Graph graph;
    Array<Edge> edges;
    ASSERT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph, &edges).ok());
    std::vector<std::string> found;
    for (const Edge &edge : edges)
        found.push_back(text_of("%u %u %s %d %llu %llu", edge.from, edge.to,
                                name_of_edge(edge.kind), static_cast<int>(edge.tensor),
                                static_cast<unsigned long long>(edge.begin),
                                static_cast<unsigned long long>(edge.end)));
    EXPECT_EQ(found, (std::vector<std::string>{"0 1 RAW 2 128 192", "0 2 WAW 2 160 256",
                                               "0 2 explicit -1 0 0", "1 2 WAR 2 160 192",
                                               "0 3 barrier -1 0 0", "1 3 barrier -1 0 0",
                                               "2 3 barrier -1 0 0", "3 4 barrier -1 0 0"}));
}

// Tasks of a manual scope are ordered by handles only, inside of it and afterwards.
TEST(Dependencies, manual_scopes_derive_nothing) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        const Tensor t = tasks.tensor<float>(0, {16});
                        tasks.dummy().out(t.all());
                        kl_task last = 0;
                        {
                            const kernloom::Scope scope(tasks, KL_SCOPE_MANUAL);
                            const kl_task first = tasks.dummy().inout(t.all()).submit();
                            tasks.dummy().inout(t.all());
                            last = tasks.dummy().inout(t.all()).after(first).submit();
                        }
                        tasks.dummy().inout(t.all());
                        tasks.dummy().in(t.all()).after(last);
                    })
                    .ok());
    Graph graph;
    ASSERT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph).ok());
    const Edges &edges = graph.edges;
    EXPECT_EQ(std::vector(edges.predecessors.begin(), edges.predecessors.end()),
              (std::vector<std::uint32_t>{0, 0, 0, 1, 1, 2}));
    EXPECT_EQ(std::vector(edges.first.begin(), edges.first.end()),
              (std::vector<std::uint32_t>{0, 1, 2, 2, 3, 4, 4}));
    EXPECT_EQ(std::vector(edges.successors.begin(), edges.successors.end()),
              (std::vector<std::uint32_t>{4, 3, 5, 5}));
}

// However many tiles a tensor has, a task looks at few accesses: a test that would not end in a
// minute if each task looked at all.
TEST(Dependencies, of_many_tiles) {
    constexpr std::uint64_t rows = 400, columns = 250;
    Launch launch;
    launch.limits.tasks = 1 << 20;
    launch.tensor_bytes[0] = rows * columns * 16 * 4;
    ASSERT_TRUE(launch
                    .record([&](const Orchestration &tasks) {
                        const Tensor t = tasks.tensor<float>(0, {rows * 4, columns * 4});
                        for (int round = 0; round < 2; round++)
                            for (std::uint64_t i = 0; i < rows; i++)
                                for (std::uint64_t j = 0; j < columns; j++)
                                    tasks.dummy().inout(t.box({i * 4, j * 4}, {4, 4}));
                        tasks.dummy().in(t.all());
                        for (std::uint64_t i = 0; i < rows; i++)
                            tasks.dummy().out(t.box({i * 4, 0}, {4, columns * 4}));
                    })
                    .ok());
    Graph graph;
    ASSERT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph).ok());
    constexpr std::uint64_t tiles = rows * columns;
    const std::uint32_t *const waits = graph.edges.predecessors.data();
    EXPECT_TRUE(std::all_of(waits, waits + tiles, [](auto n) { return n == 0; }));
    EXPECT_TRUE(std::all_of(waits + tiles, waits + 2 * tiles, [](auto n) { return n == 1; }));
    EXPECT_EQ(waits[2 * tiles], tiles);
    EXPECT_TRUE(std::all_of(waits + 2 * tiles + 1, waits + 2 * tiles + 1 + rows,
                            [](auto n) { return n == columns + 1; }));
}

// A tensor that is used in bytes, then as a whole, and then in bytes again: its grid of cells
// shrinks and grows.
TEST(Dependencies, of_few_and_then_many_parts) {
    constexpr std::uint64_t few = 10, many = 400;
    Launch launch;
    ASSERT_TRUE(launch
                    .record([&](const Orchestration &tasks) {
                        const Tensor t = tasks.tensor<std::uint8_t>(0, {MOST_BYTES});
                        for (std::uint64_t i = 0; i < few; i++)
                            tasks.dummy().in(t.box({i * 100}, {1}));
                        tasks.dummy().out(t.all());
                        for (int round = 0; round < 2; round++)
                            for (std::uint64_t i = 0; i < many; i++)
                                tasks.dummy().inout(t.box({i * 10}, {1}));
                    })
                    .ok());
    Graph graph;
    ASSERT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph).ok());
    const std::uint32_t *const waits = graph.edges.predecessors.data();
    EXPECT_EQ(waits[few], few);
    const std::uint32_t *const parts = waits + few + 1;
    EXPECT_TRUE(std::all_of(parts, parts + many, [](auto n) { return n == 1; }));
    // Parts do not replace the write of the whole.
    EXPECT_TRUE(std::all_of(parts + many, parts + 2 * many, [](auto n) { return n == 2; }));
}

// Tiles of one, two and three dimensions that are read with their neighbours and written in turn:
// each task waits for tasks of the last steps only.
TEST(Dependencies, of_stencils) {
    constexpr std::uint64_t side = 4, steps = 60;
    const std::vector<std::vector<std::uint64_t>> grids = {{16}, {6, 6}, {3, 4, 3}};
    for (const std::vector<std::uint64_t> &grid : grids) {
        Launch launch;
        std::vector<std::uint64_t> shape;
        std::uint64_t tiles = 1;
        for (const std::uint64_t count : grid) {
            shape.push_back(count * side);
            tiles *= count;
        }
        launch.tensor_bytes = {tiles * 4 * side * side * side, tiles * 4 * side * side * side};
        ASSERT_TRUE(launch
                        .record([&](const Orchestration &tasks) {
                            for (std::uint64_t step = 0; step < steps; step++)
                                for (std::uint64_t tile = 0; tile < tiles; tile++)
                                    stencil(tasks, grid, side, step, tile);
                        })
                        .ok());
        const std::uint64_t neighbours = grid.size() == 1 ? 3 : grid.size() == 2 ? 9 : 27;
        Graph graph;
        ASSERT_TRUE(build_graph(std::move(launch.transcript), launch.limits, graph).ok());
        // It reads what neighbours wrote, and replaces what they read and itself wrote.
        for (std::uint32_t task = 0; task < graph.transcript.tasks.size(); task++)
            ASSERT_LE(graph.edges.predecessors[task], 3 * neighbours) << task;
    }
}

// Memory is that of the accesses, and no more than a few words for each.
TEST(Dependencies, bytes_of_each_access) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        const Tensor t = tasks.tensor<float>(0, {32, 32});
                        for (std::uint64_t i = 0; i < 10000; i++)
                            tasks.dummy().in(t.box({i % 8 * 4, i / 8 % 8 * 4}, {4, 4}));
                    })
                    .ok());
    Dependencies dependencies(launch.transcript);
    Array<std::uint32_t> found;
    for (std::uint32_t task = 0; task < 10000; task++)
        dependencies.add(task, found);
    EXPECT_TRUE(found.empty());
    EXPECT_GT(dependencies.bytes(), 10000u * 8);
    EXPECT_LT(dependencies.bytes(), 10000u * 16);
}

} // namespace
} // namespace kernloom::testing
