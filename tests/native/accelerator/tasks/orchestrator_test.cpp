// What orchestrations may ask for, and how everything else is refused.
#include <gtest/gtest.h>

#include <stdexcept>

#include "kernloom/tiling.hpp"
#include "orchestrations.hpp"

namespace kernloom::testing {
namespace {

using namespace tasks;

kl_region some(kl_tensor tensor, std::uint64_t begin = 0, std::uint64_t count = 16) {
    return Tensor(tensor, KL_DTYPE_FLOAT32, {1024}).box({begin}, {count});
}

TEST(Orchestrations, tasks_are_recorded) {
    Launch launch;
    const Outcome outcome = launch.record([](const Orchestration &tasks) {
        EXPECT_EQ(tasks.pes(KL_CORE_MATRIX), 36u);
        EXPECT_EQ(tasks.pes(KL_CORE_VECTOR), 72u);
        EXPECT_EQ(tasks.cubes(), 36u);
        EXPECT_EQ(tasks.kernel("vector"), 2u);
        EXPECT_EQ(tasks.value<std::uint64_t>(1), 8u);
        const kl_task first = tasks.submit(1).name("one").in(some(3, 8)).submit();
        const kernloom::Scope scope(tasks);
        kl_predicate predicate{};
        predicate.tensor = 1;
        predicate.dtype = KL_DTYPE_INT64;
        predicate.element = 5;
        tasks.submit(3).output<float>({4, 5}).value(-2).after(first).only_if(predicate);
        tasks.submit(1).launch_value(1).vectors(2, 2).blocks(36).sync_start();
        tasks.submit(2).value(1).block(3, 4);
    });
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    const Transcript &found = launch.transcript;
    ASSERT_EQ(found.tasks.size(), 4u);
    EXPECT_EQ(found.names, std::vector<std::string>{"one"});
    EXPECT_EQ(name_of_task(found, launch.kernels, 0), "task 0 'one'");
    EXPECT_EQ(name_of_task(found, launch.kernels, 1), "task 1 'two'");

    const Task &one = found.tasks[0];
    EXPECT_EQ(one.scope, 0u);
    EXPECT_EQ(found.arguments[one.first_argument].bits, 32u);
    EXPECT_EQ(found.arguments[one.first_argument].tensor, 3u);
    EXPECT_EQ(found.regions[one.first_region].begin, 32u);
    EXPECT_EQ(found.end_of(found.regions[one.first_region]), 96u);

    const Task &two = found.tasks[1];
    EXPECT_EQ(two.scope, 1u);
    EXPECT_EQ(two.arguments, 2u);
    EXPECT_EQ(two.regions, 2u) << "the output and the predicate's element";
    EXPECT_EQ(found.arguments[two.first_argument].tensor, 4u);
    EXPECT_EQ(static_cast<std::int32_t>(found.arguments[two.first_argument + 1].bits), -2);
    EXPECT_EQ(found.tensors[4].bytes, 80u);
    EXPECT_EQ(found.tensors[4].producer, 1u);
    EXPECT_EQ(found.tensors[4].scope, 1u);
    const Region &element = found.regions[two.first_region + 1];
    EXPECT_EQ(element.begin, 40u);
    EXPECT_EQ(found.end_of(element), 48u);
    EXPECT_EQ(element.argument, NO_ARGUMENT);
    EXPECT_EQ(found.after[two.first_after], 0u);
    EXPECT_EQ(two.predicate, 0u);

    EXPECT_EQ(found.arguments[found.tasks[2].first_argument].bits, 8u);
    EXPECT_EQ(found.tasks[2].flags, TASK_SYNC_START);
    EXPECT_EQ(found.tasks[2].blocks, 36u);
    EXPECT_EQ(found.tasks[2].vectors, 2u);
    EXPECT_EQ(found.tasks[3].block, 3u);
    EXPECT_EQ(found.tasks[3].of_blocks, 4u);
    EXPECT_EQ(found.scopes[1].depth, 1u);
    EXPECT_EQ(found.scopes[1].begin, 1u);
    EXPECT_EQ(found.scopes[1].end, 4u);
    EXPECT_EQ(found.scopes[0].end, 4u);
}

TEST(Orchestrations, equal_layouts_are_kept_once) {
    Launch launch;
    ASSERT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        const Tensor t = tasks.tensor<float>(0, {32, 32});
                        for (std::uint64_t i = 0; i < 8; i++)
                            tasks.submit(3).in(t.box({i, i}, {4, 4})).in(t.box({i, 0}, {1, 32}));
                    })
                    .ok());
    EXPECT_EQ(launch.transcript.layouts.size(), 2u);
    EXPECT_EQ(launch.transcript.dimensions.size(), 1u);
}

// A transcript is used again by the next launch.
TEST(Orchestrations, transcripts_begin_anew) {
    Launch launch;
    for (int i = 0; i < 2; i++)
        ASSERT_TRUE(launch
                        .record([](const Orchestration &tasks) {
                            const kl_graph graph = tasks.begin_graph("g");
                            tasks.submit(1).name("n").in(some(0));
                            tasks.end_graph();
                            tasks.submit_graph(graph);
                        })
                        .ok());
    EXPECT_EQ(launch.transcript.tasks.size(), 1u);
    EXPECT_EQ(launch.transcript.graphs.size(), 1u);
    EXPECT_EQ(launch.transcript.tensors.size(), 4u);
}

TEST(Orchestrations, regions_outside_of_their_tensor) {
    Launch launch;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(1).in(some(0));
        tasks.submit(1).name("far").in(some(1, 1020));
    }),
              "task 1 'far': argument 0: its region ends at byte 4144 of tensor 1, which has 4096 "
              "bytes");
    EXPECT_EQ(
        launch.problem([](const Orchestration &tasks) { tasks.submit(1).in(some(0, 1ull << 62)); }),
        "task 0 'matrix': argument 0: its region begins at element 4611686018427387904 of "
        "tensor 0, which has 4096 bytes");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(1).tensor(KL_ACCESS_IN, some(0), 1025);
    }),
              "task 0 'matrix': argument 0: its address is that of element 1025 of tensor 0, which "
              "has 4096 bytes");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        kl_region region = some(0);
        region.dimensions = 5;
        tasks.submit(1).in(region);
    }),
              "task 0 'matrix': argument 0: a region has at most 4 dimensions, not 5");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        kl_region region = some(0, 0, ~0ull);
        tasks.submit(1).in(region);
    }),
              "task 0 'matrix': argument 0: its region ends beyond every tensor");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        kl_predicate predicate{};
        predicate.tensor = 2;
        predicate.element = 1024;
        tasks.submit(0).only_if(predicate);
    }),
              "task 0 'any': predicate: its region ends at byte 4100 of tensor 2, which has 4096 "
              "bytes");
}

TEST(Orchestrations, unknown_things) {
    Launch launch;
    const auto problem = [&](const auto &orchestrate) { return launch.problem(orchestrate); };
    EXPECT_EQ(problem([](const Orchestration &tasks) { tasks.submit(1).in(some(4)); }),
              "task 0 'matrix': argument 0: there is no tensor 4: there are 4");
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  kl_region region = some(0);
                  region.dtype = 5;
                  tasks.submit(1).in(region);
              }),
              "task 0 'matrix': argument 0: there is no element type 5");
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  tasks.submit(1).tensor(KL_ACCESSES, some(0), 0);
              }),
              "task 0 'matrix': argument 0: there is no access 5");
    EXPECT_EQ(problem([](const Orchestration &tasks) { tasks.submit(9); }),
              "task 0 'dummy': there is no kernel 9: the launch has 4");
    EXPECT_EQ(problem([](const Orchestration &tasks) { tasks.submit(tasks.kernel("gemm")); }),
              "the launch has no kernel 'gemm'; it has: any, matrix, vector, two");
    EXPECT_EQ(problem([](const Orchestration &tasks) { tasks.submit(1); }),
              "task 0 'matrix': kernel 'matrix' takes 1 arguments, not 0");
    EXPECT_EQ(problem([](const Orchestration &tasks) { tasks.submit(1).launch_value(2); }),
              "task 0 'matrix': argument 0: there is no value 2: the launch has 2");
    EXPECT_EQ(problem([](const Orchestration &tasks) { tasks.value<int>(2); }),
              "the orchestration failed: the launch has fewer values than the orchestration uses");
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  kl_predicate predicate{};
                  predicate.comparison = 6;
                  tasks.dummy().only_if(predicate);
              }),
              "task 0 'dummy': predicate: there is no comparison 6");
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  tasks.c()->functions->begin_scope(tasks.c(), 2);
              }),
              "after 0 tasks: there is no kind 2 of scopes");
    EXPECT_EQ(problem([](const Orchestration &tasks) { tasks.submit_graph(0); }),
              "task 0 'dummy': there is no recorded graph 0: there are 0");
    EXPECT_EQ(problem([](const Orchestration &tasks) { tasks.fail("enough"); }),
              "the orchestration failed: enough");
}

// A task that would wait for itself or for a later one has a handle that does not exist yet: there
// are no cycles.
TEST(Orchestrations, tasks_wait_for_earlier_ones_only) {
    Launch launch;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        const kl_task first = tasks.dummy().submit();
        tasks.dummy().name("second").after(first + 1);
    }),
              "task 1 'second': it waits for task 1, which has not been submitted");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) { tasks.dummy().after(7); }),
              "task 0 'dummy': it waits for task 6, which has not been submitted");
    EXPECT_TRUE(launch.record([](const Orchestration &tasks) { tasks.dummy().after(0); }).ok());
    EXPECT_EQ(launch.transcript.tasks[0].after, 0u);
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.begin_graph("g");
        const kl_task inside = tasks.dummy().submit();
        tasks.end_graph();
        tasks.dummy().after(inside);
    }),
              "task 0 'dummy': it waits for a task of a recorded graph, which only tasks of that "
              "graph can");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        const kl_task outside = tasks.dummy().submit();
        tasks.begin_graph("g");
        tasks.dummy().after(outside);
    }),
              "task 0 'dummy' of graph 'g': it waits for task 0, which is outside of the graph");
}

TEST(Orchestrations, too_many_tasks) {
    Launch launch;
    launch.limits.tasks = 100;
    launch.limits.tasks_key = "runtime.ring.submissions";
    const Outcome many = launch.record([](const Orchestration &tasks) {
        for (;;)
            tasks.dummy();
    });
    EXPECT_EQ(many.status, KL_STATUS_OUT_OF_MEMORY);
    EXPECT_EQ(many.detail,
              "the orchestration submits more than 100 tasks (runtime.ring.submissions)");
    // The first failure counts; it ends nevertheless.
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.fail("first");
        for (;;)
            tasks.barrier();
    }),
              "the orchestration failed: first");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        const kl_graph graph = tasks.begin_graph("g");
        tasks.dummy();
        tasks.end_graph();
        for (;;)
            tasks.submit_graph(graph);
    }),
              "the orchestration submits more than 100 tasks (runtime.ring.submissions)");
    EXPECT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        for (int i = 0; i < 100; i++)
                            tasks.dummy();
                    })
                    .ok());
}

TEST(Orchestrations, wider_than_the_arch) {
    Launch launch;
    EXPECT_EQ(
        launch.problem([](const Orchestration &tasks) { tasks.submit(1).value(0).vectors(3, 2); }),
        "task 0 'matrix': a mixed task with 3 vector PEs is wider than a cube, which has 2 "
        "for it (arch.topology.pes.vector; a mixed task takes at most 2)");
    EXPECT_EQ(
        launch.problem([](const Orchestration &tasks) { tasks.submit(2).value(0).vectors(1, 1); }),
        "task 0 'vector': a mixed task takes a matrix kernel and a vector kernel");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(1).value(0).blocks(37).sync_start();
    }),
              "task 0 'matrix': 37 blocks cannot start at the same instant: the arch has 36 matrix "
              "PEs (arch.topology)");
    EXPECT_EQ(launch.problem(
                  [](const Orchestration &tasks) { tasks.submit(0).blocks(109).sync_start(); }),
              "task 0 'any': 109 blocks cannot start at the same instant: the arch has 108 PEs "
              "(arch.topology)");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(1).value(0).vectors(2, 2).blocks(37).sync_start();
    }),
              "task 0 'matrix': 37 blocks cannot start at the same instant: the arch has 36 places "
              "for mixed tasks (arch.topology)");
    EXPECT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        tasks.submit(2).value(0).blocks(72).sync_start();
                        tasks.submit(1).value(0).blocks(1000);
                    })
                    .ok());
    launch.arch.core_types[0] = KL_CORE_VECTOR;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) { tasks.submit(1).value(0); }),
              "task 0 'matrix': kernel 'matrix' is for matrix PEs, and the arch has none "
              "(arch.topology.pes.matrix)");
    EXPECT_EQ(
        launch.problem([](const Orchestration &tasks) { tasks.submit(0).vectors(1, 0); }),
        "task 0 'any': a mixed task takes a matrix PE and vector PEs, and the arch has no matrix "
        "PEs (arch.topology.pes.matrix)");
    for (std::uint8_t &type : launch.arch.core_types)
        type = KL_CORE_MATRIX;
    EXPECT_EQ(
        launch.problem([](const Orchestration &tasks) { tasks.submit(1).value(0).vectors(1, 1); }),
        "task 0 'matrix': a mixed task takes a matrix PE and vector PEs, and the arch has no "
        "vector PEs (arch.topology.pes.vector)");
}

TEST(Orchestrations, blocks) {
    Launch launch;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) { tasks.dummy().block(4, 4); }),
              "task 0 'dummy': it is block 4 of 4");
    EXPECT_EQ(
        launch.problem([](const Orchestration &tasks) { tasks.dummy().blocks(2).block(0, 4); }),
        "task 0 'dummy': it has 2 blocks and is itself block 0 of 4");
}

TEST(Orchestrations, scopes_that_do_not_match) {
    Launch launch;
    const auto begin = [](const Orchestration &tasks) {
        tasks.c()->functions->begin_scope(tasks.c(), KL_SCOPE_DERIVED);
    };
    const auto end = [](const Orchestration &tasks) { tasks.c()->functions->end_scope(tasks.c()); };
    EXPECT_EQ(launch.problem([&](const Orchestration &tasks) {
        tasks.dummy();
        end(tasks);
    }),
              "after 1 tasks: a scope ends that did not begin");
    EXPECT_EQ(launch.problem([&](const Orchestration &tasks) {
        tasks.dummy();
        begin(tasks);
    }),
              "a scope that began after 1 tasks does not end");
    EXPECT_EQ(launch.problem([&](const Orchestration &tasks) {
        begin(tasks);
        tasks.begin_graph("g");
        end(tasks);
    }),
              "after 0 tasks of graph 'g': a scope ends that did not begin");
    EXPECT_EQ(launch.problem([&](const Orchestration &tasks) {
        tasks.begin_graph("g");
        begin(tasks);
        tasks.end_graph();
    }),
              "a scope that began after 0 tasks of graph 'g' does not end");
}

TEST(Orchestrations, outputs_die_with_their_scope) {
    Launch launch;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        kl_tensor output;
        {
            const kernloom::Scope scope(tasks);
            output = tasks.submit(1).output<float>({16}).new_tensor(0);
            const kernloom::Scope inner(tasks);
            tasks.submit(1).in(some(output));
        }
        tasks.submit(1).name("late").in(some(output));
    }),
              "task 2 'late': argument 0: tensor 4 died with its scope");
}

TEST(Orchestrations, graphs_that_do_not_match) {
    Launch launch;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.begin_graph("outer");
        tasks.begin_graph("inner");
    }),
              "graph 'inner' begins inside graph 'outer'");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        const kl_graph graph = tasks.begin_graph("first");
        tasks.end_graph();
        tasks.begin_graph("second");
        tasks.submit_graph(graph);
    }),
              "graph 'second' submits a graph, which only tasks outside of graphs can");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) { tasks.end_graph(); }),
              "a graph ends that did not begin");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) { tasks.begin_graph("open"); }),
              "graph 'open' begins and does not end");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.begin_graph("g");
        const kl_tensor own = tasks.submit(1).output<float>({16}).new_tensor(0);
        tasks.end_graph();
        tasks.submit(1).in(some(own));
    }),
              "task 0 'matrix': argument 0: tensor 2147483648 belongs to a recorded graph, or does "
              "not exist");
    EXPECT_EQ(
        launch.problem([](const Orchestration &tasks) {
            const kl_tensor output = tasks.submit(1).output<float>({16}).new_tensor(0);
            tasks.begin_graph("g");
            tasks.submit(1).in(some(output));
        }),
        "task 0 'matrix' of graph 'g': argument 0: tensor 4 is an output of a task outside of "
        "the graph");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        const kl_graph graph = tasks.begin_graph("g");
        tasks.submit(1).in(some(1));
        tasks.end_graph();
        const kl_tensor small = tasks.submit(1).output<float>({8}).new_tensor(0);
        const kl_tensor tensors[] = {0, small, 2, 3};
        tasks.submit_graph(graph, tensors);
    }),
              "task 1 'g': tensor 4 instead of 1 has 32 bytes, and the graph uses 64");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        const kl_graph graph = tasks.begin_graph("g");
        tasks.end_graph();
        const kl_tensor tensors[] = {0, 1, 2, 99};
        tasks.submit_graph(graph, tensors);
    }),
              "task 0 'g': tensor 3: there is no tensor 99: there are 4");
}

TEST(Orchestrations, exceptions) {
    Launch launch;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        const kernloom::Scope scope(tasks);
        tasks.dummy();
        throw std::runtime_error("no such layer");
    }),
              "the orchestration threw after 1 tasks: no such layer");
    EXPECT_EQ(launch.problem([](const Orchestration &) { throw 7; }),
              "the orchestration threw something that is no std::exception after 0 tasks");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.fail("before");
        throw std::runtime_error("after");
    }),
              "the orchestration failed: before");
}

TEST(Orchestrations, more_than_a_task_holds) {
    Launch launch;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.barrier();
        Submission task = tasks.dummy();
        for (int i = 0; i < 40; i++)
            task.value(i);
        EXPECT_EQ(task.new_tensor(35), 0u);
    }),
              "task 1 'dummy': 40 arguments, and a task has at most 32");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        kl_submission submission{};
        submission.kernel = KL_NO_KERNEL;
        submission.arguments_count = 33;
        tasks.c()->functions->submit(tasks.c(), &submission);
    }),
              "task 0 'dummy': 33 arguments, and a task has at most 32");
    EXPECT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        Submission last = tasks.dummy();
                        for (int i = 0; i < 100; i++)
                            last.after(tasks.dummy().submit());
                    })
                    .ok());
    EXPECT_EQ(launch.transcript.tasks[100].after, 100u);
    EXPECT_EQ(launch.transcript.after[99], 99u);
}

// A type that is unknown, of one element: nothing else tells it from what no task has used before.
TEST(Orchestrations, element_types_that_do_not_exist) {
    for (const std::uint32_t dtype : {std::uint32_t{KL_DTYPES}, UINT32_MAX}) {
        Launch launch;
        const std::string what = "there is no element type " + std::to_string(dtype);
        const auto one = [&](std::uint32_t access) {
            return launch.problem([&](const Orchestration &tasks) {
                kl_region region{};
                region.dtype = dtype;
                tasks.submit(1).tensor(access, region, 0);
            });
        };
        for (const std::uint32_t access : {KL_ACCESS_IN, KL_ACCESS_OUT})
            EXPECT_EQ(one(access), "task 0 'matrix': argument 0: " + what);
        EXPECT_EQ(launch.problem([&](const Orchestration &tasks) {
            kl_predicate predicate{};
            predicate.dtype = dtype;
            tasks.dummy().only_if(predicate);
        }),
                  "task 0 'dummy': predicate: " + what);
    }
}

TEST(Orchestrations, more_dimensions_than_there_are) {
    Launch launch;
    const char *const too_many = "task 0 'matrix': argument 0: a region has at most 4 dimensions, "
                                 "not 5";
    const char *const wrong_box = "task 0 'matrix': argument 0: a box has more dimensions than its "
                                  "tensor";
    const auto problem = [&](const auto &region) {
        return launch.problem(
            [&](const Orchestration &tasks) { tasks.submit(1).in(region(tasks)); });
    };
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  return tasks.tensor<float>(0, {1, 1, 1, 1, 2}).all();
              }),
              too_many);
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  return tasks.tensor<float>(0, {1, 1, 1, 1, 2}).box({0}, {1, 1, 1, 1, 1});
              }),
              too_many);
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  return part(tasks.tensor<float>(0, {1, 1, 1, 1, 2}), {{0, 1}});
              }),
              too_many);
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  return tasks.tensor<float>(0, {8, 8}).box({0, 0}, {1, 1, 1});
              }),
              wrong_box);
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  return tasks.tensor<float>(0, {8, 8}).box({0, 0, 1}, {1, 1});
              }),
              wrong_box);
    EXPECT_EQ(problem([](const Orchestration &tasks) {
                  return part(tasks.tensor<float>(0, {8, 8}), {{0, 1}, {0, 1}, {0, 1}});
              }),
              wrong_box);
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(1).output<float>({1, 1, 1, 1, 2});
    }),
              too_many);
}

TEST(Orchestrations, a_tensor_is_a_region) {
    Launch launch;
    const Outcome outcome = launch.record([](const Orchestration &tasks) {
        const Tensor whole = tasks.tensor<float>(0, {8, 16});
        tasks.submit(1).in(whole);
        tasks.submit(1).in(whole.box({2}, {3}));
    });
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    const Transcript &found = launch.transcript;
    EXPECT_EQ(found.end_of(found.regions[0]), 512u);
    EXPECT_EQ(found.regions[1].begin, 128u);
    EXPECT_EQ(found.end_of(found.regions[1]), 320u);
}

TEST(Orchestrations, arguments_that_are_no_new_tensors) {
    Launch launch;
    for (const std::uint32_t argument : {0u, 1u, 2u, 32u})
        EXPECT_EQ(launch.problem([&](const Orchestration &tasks) {
            EXPECT_EQ(tasks.submit(3).name("two").value(1).in(some(0)).new_tensor(argument), 0u);
        }),
                  "the orchestration failed: argument " + std::to_string(argument) +
                      " of task 'two' (handle 1) is no new tensor");
    EXPECT_TRUE(launch
                    .record([](const Orchestration &tasks) {
                        EXPECT_EQ(tasks.submit(3).value(1).output<float>({4}).new_tensor(1), 4u);
                    })
                    .ok());
}

// Sums of bytes of outputs can be counted, whatever the heap is.
TEST(Orchestrations, outputs_that_no_heap_has) {
    Launch launch;
    launch.limits.heap = UINT64_MAX;
    launch.limits.heap_key = "runtime.ring.heap";
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(1).name("huge").output<std::uint8_t>({UINT64_MAX});
    }),
              "task 0 'huge': with its output of 18446744073709551615 bytes all outputs have more "
              "than 4611686018427387904, and no heap does (runtime.ring.heap)");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        for (int i = 0; i < 5; i++)
            tasks.submit(1).output<std::uint8_t>({1ull << 60});
    }),
              "task 4 'matrix': with its output of 1152921504606846976 bytes all outputs have more "
              "than 4611686018427387904, and no heap does (runtime.ring.heap)");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        const kl_graph graph = tasks.begin_graph("g");
        tasks.submit(1).output<std::uint8_t>({1ull << 61});
        tasks.end_graph();
        for (int i = 0; i < 3; i++)
            tasks.submit_graph(graph);
    }),
              "task 2 'g': with its output of 2305843009213693952 bytes all outputs have more than "
              "4611686018427387904, and no heap does (runtime.ring.heap)");
}

// Blocks, PEs of mixed tasks and tasks of graphs count with each execution.
TEST(Orchestrations, executions_are_limited) {
    Launch launch;
    launch.limits.tasks = 100;
    const std::string more = " executions the orchestration submits more than 100 tasks "
                             "(runtime.graph.tasks)";
    const auto executions = [&](const std::function<void(const Orchestration &)> &orchestrate) {
        const Outcome outcome = launch.record(orchestrate);
        EXPECT_TRUE(outcome.ok()) << outcome.detail;
        return launch.transcript.executions;
    };
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        const std::uint32_t n = 0;
        tasks.submit(2).name("spmd").value(0).blocks(n - 1);
    }),
              "task 0 'spmd': with its 4294967295" + more);
    EXPECT_EQ(executions([](const Orchestration &tasks) { tasks.submit(0).blocks(100); }), 100u);
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.barrier();
        tasks.submit(0).blocks(100);
    }),
              "task 1 'any': with its 100" + more);
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(0).blocks(100);
        tasks.barrier();
    }),
              "the orchestration submits more than 100 tasks (runtime.graph.tasks)");
    EXPECT_EQ(executions([](const Orchestration &tasks) {
                  tasks.submit(1).value(0).vectors(2, 2).blocks(33);
              }),
              99u);
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(1).value(0).vectors(2, 2).blocks(34);
    }),
              "task 0 'matrix': with its 102" + more);
    const auto graphs = [](const Orchestration &tasks, int submissions) {
        const kl_graph graph = tasks.begin_graph("g");
        tasks.submit(0).blocks(20);
        tasks.end_graph();
        for (int i = 0; i < submissions; i++)
            tasks.submit_graph(graph);
    };
    EXPECT_EQ(executions([&](const Orchestration &tasks) { graphs(tasks, 4); }), 100u);
    EXPECT_EQ(launch.problem([&](const Orchestration &tasks) { graphs(tasks, 5); }),
              "task 4 'g': with its 20" + more);
}

TEST(Orchestrations, blocks_that_cannot_be_counted) {
    Launch launch;
    launch.limits.tasks = UINT64_MAX;
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(1).value(0).vectors(2, 2).blocks(0x55555556);
    }),
              "task 0 'matrix': 1431655766 blocks with 2 vector PEs each are too many to be "
              "counted");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        tasks.submit(1).value(0).vectors(2, 2).block(0, 1u << 31);
    }),
              "task 0 'matrix': 2147483648 blocks with 2 vector PEs each are too many to be "
              "counted");
}

TEST(Orchestrations, tasks_that_wait_by_handle_are_limited) {
    Launch launch;
    launch.limits.edges = 10;
    const auto wait = [](const Orchestration &tasks, int count) {
        const kl_task first = tasks.dummy().submit();
        for (int i = 0; i < count; i++)
            tasks.dummy().after(first).after(first);
    };
    EXPECT_TRUE(launch.record([&](const Orchestration &tasks) { wait(tasks, 5); }).ok());
    EXPECT_EQ(launch.problem([&](const Orchestration &tasks) { wait(tasks, 6); }),
              "task 6 'dummy': with it tasks wait for more than 10 others by handle "
              "(runtime.graph.edges)");
}

TEST(Orchestrations, names_are_parts_of_lines) {
    Launch launch;
    for (const char character : {'\n', '\t', '\x7f', '\x01'}) {
        const std::string name = std::string("x") + character + "limiter=dma";
        EXPECT_EQ(
            launch.problem([&](const Orchestration &tasks) { tasks.submit(0).name(name.c_str()); }),
            "task 0 'x?limiter=dma': its name has control characters");
        EXPECT_EQ(
            launch.problem([&](const Orchestration &tasks) { tasks.begin_graph(name.c_str()); }),
            "the name of a graph has control characters");
    }
    EXPECT_TRUE(
        launch
            .record([](const Orchestration &tasks) { tasks.submit(0).name("\xc3\xa4 and spaces"); })
            .ok());
}

TEST(Orchestrations, that_begin_without_end) {
    Launch launch;
    launch.limits.tasks = 100;
    launch.limits.tasks_key = "runtime.key";
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        for (;;)
            tasks.c()->functions->begin_scope(tasks.c(), KL_SCOPE_DERIVED);
    }),
              "the orchestration begins more than 100 scopes and graphs (runtime.key)");
    EXPECT_EQ(launch.problem([](const Orchestration &tasks) {
        for (;;) {
            tasks.begin_graph("again");
            tasks.end_graph();
        }
    }),
              "the orchestration begins more than 100 scopes and graphs (runtime.key)");
}

} // namespace
} // namespace kernloom::testing
