// Orchestrations under both runtimes, compared with a sequential execution.
#include <gtest/gtest.h>

#include "control.hpp"
#include "tasks_random.hpp"

namespace script {
namespace {

constexpr Width SMALL = {2, 4, 2, 2};

std::uint64_t graphs_to_try() {
    const char *count = std::getenv("GRAPHS");
    return count ? std::strtoull(count, nullptr, 10) : 100;
}

// A device with tensors that are used again for each launch.
class Bench {
  public:
    explicit Bench(const std::string &runtime, const std::string &overrides = "")
        : device(runtime, overrides) {
        for (std::uint64_t i = 0; i < TENSORS; i++)
            addresses.push_back(device.allocate(ROWS * COLUMNS * 4));
    }

    Answer run(const Script &script, std::vector<Tensor> &tensors) {
        for (std::uint64_t i = 0; i < TENSORS; i++)
            device.write(addresses[i], tensors[i]);
        const Answer answer = device.launch(addresses, script.words());
        for (std::uint64_t i = 0; i < TENSORS; i++)
            device.read(addresses[i], tensors[i]);
        return answer;
    }

    Device device;
    std::vector<std::uint64_t> addresses;
};

std::vector<Tensor> numbered() {
    std::vector<Tensor> made(TENSORS, Tensor(ROWS * COLUMNS));
    std::uint32_t next = 1;
    for (Tensor &tensor : made)
        for (std::uint32_t &element : tensor)
            element = next++;
    return made;
}

// Both runtimes give what a sequential execution gives.
void compare(const Script &script, const std::string &overrides = "") {
    std::vector<Tensor> expected = numbered();
    script.execute(expected);
    for (const char *runtime : RUNTIMES) {
        SCOPED_TRACE(runtime);
        Bench bench(runtime, overrides);
        std::vector<Tensor> found = numbered();
        const Answer answer = bench.run(script, found);
        ASSERT_EQ(answer.status, 0u) << answer.detail;
        EXPECT_EQ(found, expected);
        EXPECT_GT(answer.virtual_ps, 0u);
    }
}

Submit task(std::uint64_t from, std::uint64_t to, std::uint64_t kernel = VECTOR_KERNEL) {
    Submit one;
    one.kernel = kernel;
    one.salt = 3;
    one.parts[0] = {KL_ACCESS_IN, from, 0, 4, COLUMNS, COLUMNS};
    one.parts[1] = {KL_ACCESS_INOUT, to, 0, 4, COLUMNS, COLUMNS};
    return one;
}

Submit output(std::uint64_t from, std::uint64_t rows, std::uint64_t columns) {
    Submit one = task(from, 0);
    one.parts[1] = {KL_ACCESS_OUT, 0, 0, rows, columns, columns};
    return one;
}

TEST(Tasks, ChainsInDerivedOrder) {
    Script script;
    for (std::uint64_t i = 0; i < 20; i++)
        script.submit(task(i % 3, (i + 1) % 3, i % 2));
    compare(script);
}

TEST(Tasks, OutputsOfTheRuntime) {
    Script script;
    script.submit(output(0, 3, 5));
    Submit user = task(OUTPUT, 1);
    user.parts[0] = {KL_ACCESS_IN, OUTPUT, 0, 3, 5, 5};
    script.submit(user);
    script.add({BEGIN_SCOPE, KL_SCOPE_DERIVED});
    script.submit(output(1, 4, 9));
    Submit second = task(OUTPUT + 1, 2);
    second.parts[0] = {KL_ACCESS_IN, OUTPUT + 1, 0, 4, 9, 9};
    script.submit(second);
    script.add({END_SCOPE});
    Submit last = task(OUTPUT, 0);
    last.parts[0] = {KL_ACCESS_IN, OUTPUT, 0, 3, 5, 5};
    script.submit(last);
    compare(script);
}

TEST(Tasks, BlocksInWaves) {
    Script script;
    for (const std::uint64_t blocks : {2, 7, 100}) {
        Submit one = task(0, 1);
        one.parts[1].rows = 16;
        one.blocks = blocks;
        script.submit(one);
    }
    compare(script);
    compare(script, "queue=1\n");
    compare(script, "queue=7\n");
}

TEST(Tasks, SyncStart) {
    Script script;
    for (const std::uint64_t blocks : {2, 4, 3}) {
        script.submit(task(1, 2));
        Submit one = task(0, 1);
        one.blocks = blocks;
        one.sync_start = 1;
        script.submit(one);
    }
    compare(script);
}

TEST(Tasks, MixedTasksAndTasksBesideThem) {
    Script script;
    for (std::uint64_t i = 0; i < 12; i++) {
        Submit one = task(0, 1, MATRIX_KERNEL);
        one.vector_kernel = LANE_KERNEL;
        one.vectors = 1 + i % 2;
        one.blocks = i % 4;
        one.sync_start = i % 3 == 0 && one.blocks <= 2;
        one.parts[2] = {KL_ACCESS_INOUT, 2, i * 16, 2, 8, COLUMNS};
        script.submit(one);
        script.submit(task(3, 0, i % 2));
    }
    compare(script);
}

TEST(Tasks, PredicatesBarriersDummiesAndExplicitDependencies) {
    Script script;
    for (std::uint64_t i = 0; i < 24; i++) {
        Submit one = task(0, 1 + i % 2, i % 2);
        if (i % 3 == 0) {
            one.predicated = 1;
            one.predicate_tensor = i % 3;
            one.predicate_element = 5;
            one.comparison = i % KL_COMPARISONS;
            one.compared = 6;
        }
        if (i % 5 == 4)
            one.kernel = NO_KERNEL;
        if (i > 2 && i != 14) {
            one.after_count = 1;
            one.after[0] = i > 12 ? i - 1 : i - 2; // the barrier is one of the tasks
        }
        script.submit(one);
        if (i == 12)
            script.add({BARRIER});
    }
    compare(script);
}

TEST(Tasks, RecordedGraphsWithOtherTensorsAndValues) {
    Script script(17);
    script.add({BEGIN_GRAPH});
    Submit first = output(0, 2, 6);
    first.launch_salt = 1;
    script.submit(first);
    Submit second = task(OUTPUT, 1);
    second.parts[0] = {KL_ACCESS_IN, OUTPUT, 0, 2, 6, 6};
    script.submit(second);
    script.add({END_GRAPH});
    script.submit(task(1, 0));
    for (std::uint64_t i = 0; i < 6; i++)
        script.add({SUBMIT_GRAPH, 0, i, i % 3, (i + 1) % 3, (i + 2) % 3, 3});
    script.submit(task(1, 0));
    compare(script);
}

TEST(Tasks, AManyLinksLongChainOfTasksWithoutWork) {
    Script script;
    for (std::uint64_t i = 0; i < 2000; i++) {
        Submit one = task(0, 1);
        one.kernel = NO_KERNEL;
        script.submit(one);
    }
    script.submit(task(0, 1));
    compare(script);
}

TEST(Tasks, NothingToDo) {
    compare(Script());
}

// Every random graph, on both runtimes, with several settings.
TEST(Random, GraphsEqualASequentialExecution) {
    for (const char *runtime : RUNTIMES) {
        Bench usual(runtime), tight(runtime, "queue=1\nring.slots=6\nring.dependencies=40\n");
        Bench threads(runtime, "threads=2\nqueue=3\n"), same(runtime, "queue=3\n");
        for (std::uint64_t seed = 0; seed < graphs_to_try(); seed++) {
            RandomScript random(seed, SMALL);
            const std::vector<Tensor> given = random.tensors();
            std::vector<Tensor> expected = given;
            random.script().execute(expected);
            // Few slots may be too few for what a scope holds.
            Bench &first = random.has_outputs() ? usual : tight;
            std::vector<Tensor> found = given;
            const Answer answer = first.run(random.script(), found);
            ASSERT_EQ(answer.status, 0u) << runtime << " seed " << seed << ": " << answer.detail;
            ASSERT_EQ(found, expected) << runtime << " seed " << seed;
            if (seed % 10)
                continue;
            std::vector<Tensor> one = given, two = given;
            const Answer alone = same.run(random.script(), one);
            const Answer together = threads.run(random.script(), two);
            ASSERT_EQ(one, expected) << seed;
            ASSERT_EQ(two, expected) << seed;
            ASSERT_EQ(alone.virtual_ps, together.virtual_ps) << seed;
        }
    }
}

std::string setting(const char *key, std::uint64_t value) {
    return std::string(key) + "=" + std::to_string(value) + "\n";
}

Answer run_with(const char *runtime, const Script &script, const std::string &overrides) {
    Bench bench(runtime, overrides);
    std::vector<Tensor> tensors = numbered();
    return bench.run(script, tensors);
}

// A ring that is too small says which size works: it does, and one less does not.
void expect_least(const Script &script, const char *name, std::uint64_t small) {
    const std::string key = std::string("ring.") + name;
    const Answer refused = run_with("RINGMAP", script, setting(key.c_str(), small));
    ASSERT_EQ(refused.status, KL_STATUS_OUT_OF_MEMORY) << refused.detail;
    EXPECT_NE(refused.detail.find("deadlock at "), std::string::npos) << refused.detail;
    EXPECT_NE(refused.detail.find(std::string("Stall class: ") + name), std::string::npos)
        << refused.detail;
    const std::string least = "runtime." + key + "=" + std::to_string(refused.value);
    EXPECT_NE(refused.detail.find("The least that works is " + least), std::string::npos)
        << refused.detail;
    ASSERT_GT(refused.value, small);
    const Answer works = run_with("RINGMAP", script, setting(key.c_str(), refused.value));
    EXPECT_EQ(works.status, 0u) << works.detail;
    const Answer less = run_with("RINGMAP", script, setting(key.c_str(), refused.value - 1));
    EXPECT_EQ(less.status, KL_STATUS_OUT_OF_MEMORY) << less.detail;
}

Script many_outputs() {
    Script script;
    for (std::uint64_t depth = 0; depth < 3; depth++) {
        for (std::uint64_t i = 0; i < 9 + depth; i++) {
            script.submit(output(0, 3 + i % 3, 5 + 7 * depth));
            script.submit(task(1, 2));
        }
        script.add({BEGIN_SCOPE, KL_SCOPE_DERIVED});
    }
    for (std::uint64_t depth = 0; depth < 3; depth++)
        script.add({END_SCOPE});
    return script;
}

TEST(Exhaustion, Slots) {
    expect_least(many_outputs(), "slots", 5);
}

TEST(Exhaustion, Heap) {
    expect_least(many_outputs(), "heap", 1024);
}

// Outputs of 64 and of 128 bytes, each in a scope of its own, around one that stays: whatever is
// over leaves no hole behind that others could not use.
TEST(Exhaustion, AHeapOfWhichNothingIsTakenHoldsWhatFits) {
    Script script;
    for (std::uint64_t i = 0; i < 6; i++) {
        script.add({BEGIN_SCOPE, KL_SCOPE_DERIVED});
        script.submit(output(0, 1 + i % 2, 16));
        script.add({END_SCOPE});
    }
    const Answer works = run_with("RINGMAP", script, "ring.heap=128\n");
    EXPECT_EQ(works.status, 0u) << works.detail;
    expect_least(script, "heap", 64);
    const Answer refused = run_with("RINGMAP", script, "ring.heap=64\n");
    EXPECT_EQ(refused.value, 128u) << refused.detail;
    EXPECT_NE(refused.detail.find("it has 64, 0 are taken and 128 more are needed"),
              std::string::npos)
        << refused.detail;
}

// What was skipped while a long task held outputs before it is free when that has ended.
TEST(Exhaustion, AHoleInTheHeapLastsAsLongAsWhatIsBeforeIt) {
    Script script;
    script.add({BEGIN_SCOPE, KL_SCOPE_DERIVED});
    Submit slow = output(0, 3, 16);
    slow.cycles = 1000000;
    script.submit(slow); // 0 to 192 of 320
    script.add({END_SCOPE});
    script.submit(output(1, 2, 16)); // 192 to 320, until the end
    script.add({BEGIN_SCOPE, KL_SCOPE_DERIVED});
    script.submit(output(1, 1, 16)); // 0 to 64
    script.add({END_SCOPE});
    script.submit(output(1, 2, 16)); // 64 to 192
    const std::string rest = "ring.depths=1\n";
    const Answer refused = run_with("RINGMAP", script, "ring.heap=64\n" + rest);
    ASSERT_NE(refused.status, 0u);
    for (std::uint64_t heap = 64; heap < 1024; heap += 64) {
        const Answer tried = run_with("RINGMAP", script, setting("ring.heap", heap) + rest);
        EXPECT_EQ(tried.status == 0, heap >= refused.value) << heap << ": " << refused.detail;
    }
}

TEST(Exhaustion, Dependencies) {
    expect_least(many_outputs(), "dependencies", 7);
    expect_least(many_outputs(), "dependencies", 1);
}

TEST(Exhaustion, RandomGraphs) {
    const char *names[] = {"slots", "heap", "dependencies"};
    const std::uint64_t small[] = {2, 256, 5};
    unsigned tried = 0;
    for (std::uint64_t seed = 0; seed < graphs_to_try() / 2; seed++) {
        RandomScript random(seed, SMALL);
        for (unsigned i = 0; i < 3 && random.has_outputs(); i++) {
            const std::string key = std::string("ring.") + names[i];
            const std::string rest = setting("ring.depths", 1 + seed % 4);
            const auto at = [&](std::uint64_t size) {
                return run_with("RINGMAP", random.script(), setting(key.c_str(), size) + rest);
            };
            const Answer refused = at(small[i]);
            if (refused.status == 0)
                continue;
            tried++;
            const Answer works = at(refused.value), less = at(refused.value - 1);
            ASSERT_EQ(works.status, 0u)
                << names[i] << " seed " << seed << ": " << refused.detail << "\n"
                << works.detail;
            ASSERT_NE(less.status, 0u) << names[i] << " seed " << seed << ": " << refused.detail;
        }
    }
    EXPECT_GT(tried, 0u);
}

TEST(Exhaustion, HeapsThatNoDeviceHas) {
    for (const std::uint64_t heap : {1ull << 40, 1ull << 62, 1ull << 63}) {
        SCOPED_TRACE(heap);
        const Answer refused = run_with("RINGMAP", many_outputs(), setting("ring.heap", heap));
        EXPECT_EQ(refused.status, KL_STATUS_OUT_OF_MEMORY) << refused.detail;
        EXPECT_NE(refused.detail.find("(runtime.ring.heap)"), std::string::npos) << refused.detail;
    }
}

TEST(Exhaustion, TasksOfALaunch) {
    const char *keys[] = {"graph.tasks", "ring.submissions"};
    Script script;
    for (int i = 0; i < 10; i++)
        script.submit(task(0, 1));
    for (unsigned i = 0; i < 2; i++) {
        EXPECT_EQ(run_with(RUNTIMES[i], script, setting(keys[i], 10)).status, 0u);
        const Answer refused = run_with(RUNTIMES[i], script, setting(keys[i], 9));
        EXPECT_EQ(refused.status, KL_STATUS_OUT_OF_MEMORY);
        EXPECT_EQ(refused.detail,
                  std::string("the orchestration submits more than 9 tasks (runtime.") + keys[i] +
                      ")");
    }
}

TEST(Exhaustion, HeapAndEdgesOfAGraph) {
    const Script script = many_outputs();
    const Answer heap = run_with("HOSTGRAPH", script, setting("graph.heap", 1));
    ASSERT_EQ(heap.status, KL_STATUS_OUT_OF_MEMORY);
    EXPECT_NE(heap.detail.find("(runtime.graph.heap)"), std::string::npos) << heap.detail;
    const std::size_t at = heap.detail.find_first_of("0123456789");
    const std::uint64_t need = std::strtoull(heap.detail.c_str() + at, nullptr, 10);
    EXPECT_EQ(run_with("HOSTGRAPH", script, setting("graph.heap", need)).status, 0u) << heap.detail;
    EXPECT_NE(run_with("HOSTGRAPH", script, setting("graph.heap", need - 1)).status, 0u);
    const Answer edges = run_with("HOSTGRAPH", script, setting("graph.edges", 1));
    ASSERT_EQ(edges.status, KL_STATUS_OUT_OF_MEMORY);
    EXPECT_NE(edges.detail.find("have more than 1 dependencies (runtime.graph.edges)"),
              std::string::npos)
        << edges.detail;
}

// More bytes than can be counted with what is beside them are no small output.
TEST(Exhaustion, OutputsThatCannotBeCounted) {
    const char *keys[] = {"(runtime.graph.heap)", "(runtime.ring.heap)"};
    Script script;
    script.submit(output(0, 1, (1ull << 62) - 1));
    for (unsigned i = 0; i < 2; i++) {
        const Answer refused = run_with(RUNTIMES[i], script, "");
        EXPECT_EQ(refused.status, KL_STATUS_OUT_OF_MEMORY) << refused.detail;
        EXPECT_NE(refused.detail.find("task 0 'vector'"), std::string::npos) << refused.detail;
        EXPECT_NE(refused.detail.find(keys[i]), std::string::npos) << refused.detail;
    }
}

TEST(Exhaustion, BlocksThatNeverEnd) {
    const char *keys[] = {"(runtime.graph.tasks)", "(runtime.ring.submissions)"};
    Script script;
    Submit one = task(0, 1);
    one.blocks = UINT32_MAX;
    script.submit(one);
    for (unsigned i = 0; i < 2; i++) {
        const Answer refused = run_with(RUNTIMES[i], script, "");
        EXPECT_EQ(refused.status, KL_STATUS_OUT_OF_MEMORY) << refused.detail;
        EXPECT_NE(refused.detail.find("task 0 'vector'"), std::string::npos) << refused.detail;
        EXPECT_NE(refused.detail.find(keys[i]), std::string::npos) << refused.detail;
    }
}

TEST(BadInput, NamesOfKernels) {
    for (const char *runtime : RUNTIMES) {
        Device device(runtime);
        const Answer forged =
            device.load(path_of("VECTOR"), "kl_core_entry", "x\nlimiter=dma", ARGUMENTS);
        EXPECT_EQ(forged.status, KL_STATUS_LOAD_FAILED);
        EXPECT_NE(forged.detail.find("its name has control characters"), std::string::npos)
            << forged.detail;
        EXPECT_EQ(device.name_kernel(std::string(47, 'n')).status, 0u);
        EXPECT_EQ(device.launch({}, {0}).status, 0u);
        EXPECT_EQ(device.name_kernel(std::string(48, 'n')).status, 0u);
        const Answer cut = device.launch({}, {0});
        EXPECT_EQ(cut.status, KL_STATUS_UNSUPPORTED);
        EXPECT_NE(cut.detail.find("has 48 bytes, and one of an orchestration has at most 47"),
                  std::string::npos)
            << cut.detail;
    }
}

// Refused by name, and the device works afterwards.
void expect_refused(const Script &script, const std::vector<std::string> &parts,
                    const std::string &overrides = "") {
    for (const char *runtime : RUNTIMES) {
        SCOPED_TRACE(runtime);
        Bench bench(runtime, overrides);
        std::vector<Tensor> tensors = numbered();
        const Answer refused = bench.run(script, tensors);
        EXPECT_NE(refused.status, 0u);
        for (const std::string &part : parts)
            EXPECT_NE(refused.detail.find(part), std::string::npos) << refused.detail;
        Script good;
        good.submit(task(0, 1));
        tensors = numbered();
        std::vector<Tensor> expected = tensors;
        good.execute(expected);
        const Answer answer = bench.run(good, tensors);
        EXPECT_EQ(answer.status, 0u) << answer.detail;
        EXPECT_EQ(tensors, expected);
    }
}

TEST(BadInput, UnknownTasks) {
    Script script;
    Submit one = task(0, 1);
    one.after_count = 1;
    one.after[0] = 12345;
    script.submit(one);
    expect_refused(script, {"task 0 'vector'", "task 12344, which has not been submitted"});
    // A task can name earlier ones only: a cycle cannot be written down.
    Script cycle;
    one.after[0] = 1;
    cycle.submit(one);
    one.after[0] = 0;
    cycle.submit(one);
    expect_refused(cycle, {"task 0 'vector'", "has not been submitted"});
}

TEST(BadInput, RegionsOutsideOfTensors) {
    Script script;
    script.submit(task(0, 1));
    Submit one = task(0, 1);
    one.parts[1].offset = ROWS * COLUMNS - 3;
    script.submit(one);
    expect_refused(script, {"task 1 'vector'", "argument 1"});
}

TEST(BadInput, CoreTypesAndWidths) {
    Script wide;
    Submit one = task(0, 1, MATRIX_KERNEL);
    one.blocks = 3;
    one.sync_start = 1;
    wide.submit(one);
    expect_refused(wide, {"task 0 'matrix'", "3 blocks", "2 matrix"});
    Script mixed;
    one = task(0, 1, MATRIX_KERNEL);
    one.vectors = 3;
    one.vector_kernel = LANE_KERNEL;
    mixed.submit(one);
    expect_refused(mixed, {"task 0 'matrix'", "wider than a cube"});
}

TEST(BadInput, OrchestrationsThatFailThrowOrGoOn) {
    Script fails, throws, floods;
    fails.submit(task(0, 1));
    fails.add({FAIL});
    expect_refused(fails, {"the orchestration failed: as the script says"});
    throws.add({THROW});
    expect_refused(throws, {"the orchestration threw after ", " tasks: as the script says"});
    floods.add({FLOOD});
    expect_refused(floods, {"submits more than 1000 tasks"},
                   "ring.submissions=1000\ngraph.tasks=1000\n");
}

TEST(Failures, OfATaskEndTheLaunchByName) {
    for (const std::uint64_t blocks : {0, 3, 4}) {
        Script script;
        for (std::uint64_t i = 0; i < 30; i++) {
            Submit one = task(i % 2, 1 - i % 2);
            if (i == 17) {
                one.salt = FAILING;
                one.blocks = blocks;
                one.sync_start = blocks == 4;
            }
            script.submit(one);
            script.submit(task(3, 2, MATRIX_KERNEL));
        }
        expect_refused(script, {"PE 0.", "task 34 'vector' failed: as the script says"});
    }
}

// The first failure in virtual time is the one that is told.
TEST(Failures, TheFirstOneIsTold) {
    Script script;
    for (std::uint64_t i = 0; i < 4; i++) {
        Submit one = task(3, 1);
        one.parts[1].offset = i * COLUMNS;
        one.parts[1].rows = 1;
        one.salt = FAILING;
        script.submit(one);
    }
    expect_refused(script, {"task 0 'vector' failed"});
}

// Messages that are lost, late or damaged: a result or a reason, nothing hangs, and the device
// works again.
TEST(Failures, OfTheFabric) {
    unsigned silent = 0;
    for (const char *runtime : RUNTIMES)
        for (const char *fault : {"faults.lose=", "faults.corrupt=", "faults.late="})
            for (std::uint64_t every = 131; every < 400; every += 17) {
                const bool late = std::string(fault) == "faults.late=";
                Bench bench(runtime, fault + std::to_string(every) + (late ? ":3000000\n" : "\n") +
                                         "timeout_ns=1000000\n");
                for (std::uint64_t seed = 0; seed < 8; seed++) {
                    RandomScript random(seed, SMALL);
                    const Answer answer =
                        bench.device.launch(bench.addresses, random.script().words());
                    EXPECT_EQ(answer.status == 0, answer.virtual_ps != 0);
                    silent +=
                        answer.detail.find("did not answer Run of task ") != std::string::npos;
                }
            }
    EXPECT_GT(silent, 10u);
}

// PEs that start together wait for one whose message is lost. All are named, and the next launch
// does not wait for them.
TEST(Failures, OfAPeThatOthersStartWith) {
    unsigned silent = 0;
    for (const char *runtime : RUNTIMES)
        for (std::uint64_t every = 131; every < 400; every += 7) {
            Script script, after;
            for (std::uint64_t i = 0; i < 6; i++) {
                Submit one = task(0, 1);
                one.blocks = 4;
                one.sync_start = 1;
                script.submit(one);
            }
            after.submit(task(0, 1));
            Bench bench(runtime, "faults.lose=" + std::to_string(every) + "\ntimeout_ns=1000000\n");
            const Answer answer = bench.device.launch(bench.addresses, script.words());
            if (answer.detail.find("starts at the same instant as on PE 0.") == std::string::npos)
                continue;
            silent++;
            EXPECT_NE(answer.detail.find("did not answer Run of task "), std::string::npos);
            EXPECT_NE(answer.detail.find("(target.options.timeout_ns)"), std::string::npos);
            const Answer again = bench.device.launch(bench.addresses, after.words());
            EXPECT_EQ(again.status, 0u) << every << ": " << again.detail;
        }
    EXPECT_GT(silent, 1u);
}

const kernloom::control::Times &times_of(Device &device) {
    return static_cast<kernloom::control::Control *>(device.state({KL_NODE_CONTROL, 0, 0, 0}))
        ->execution()
        .times();
}

TEST(Times, OfEveryTaskAreInOrder) {
    Script script;
    for (std::uint64_t i = 0; i < 12; i++)
        script.submit(task(i % 3, (i + 1) % 3)); // each waits for the one before
    for (const char *runtime : RUNTIMES) {
        Bench bench(runtime, "times=1\n");
        bench.device.begin_report();
        std::vector<Tensor> tensors = numbered();
        ASSERT_EQ(bench.run(script, tensors).status, 0u);
        const kernloom::control::Times &found = times_of(bench.device);
        const auto &times = found.units;
        ASSERT_EQ(times.size(), 12u);
        ASSERT_EQ(found.jobs.size(), 12u);
        for (std::uint32_t i = 0; i < times.size(); i++) {
            const kernloom::control::UnitTimes &one = times[i];
            ASSERT_LT(one.job, 12u);
            const kernloom::control::JobTimes &job = found.jobs[one.job];
            EXPECT_EQ(job.unit, i);
            EXPECT_LE(one.submitted_ps, one.ready_ps);
            EXPECT_LT(one.ready_ps, job.dispatched_ps);
            EXPECT_LT(job.dispatched_ps, job.started_ps);
            EXPECT_LT(job.started_ps, job.ended_ps);
            EXPECT_LT(job.ended_ps, job.completed_ps);
            EXPECT_LT(job.pe, 6u);
            if (i && one.freed_by != kernloom::control::NONE) {
                EXPECT_EQ(one.freed_by, i - 1);
                EXPECT_EQ(one.ready_ps, found.jobs[times[i - 1].job].completed_ps);
            }
        }
        EXPECT_EQ(times[11].freed_by, 10u);
        double sum = 0;
        const std::string report = "\n" + bench.device.report();
        for (std::size_t at = 0; (at = report.find("\nshare.", at)) != std::string::npos; at++)
            sum += std::strtod(report.c_str() + report.find('=', at) + 1, nullptr);
        EXPECT_NEAR(sum, 1, 0.002);
        EXPECT_EQ(report.find("share.dependency=0.0000"), std::string::npos) << report;
    }
}

// The instants at which a PE executes no task while one that it could execute is ready.
std::uint64_t idle_beside_ready(const kernloom::control::Times &times) {
    std::vector<std::uint64_t> instants;
    const auto ready_ps = [&](const auto &job) { return times.units[job.unit].ready_ps; };
    for (const auto &one : times.jobs)
        instants.insert(instants.end(), {ready_ps(one), one.started_ps, one.ended_ps});
    std::sort(instants.begin(), instants.end());
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i + 1 < instants.size(); i++) {
        std::uint32_t executing[2] = {}, ready[2] = {};
        for (const auto &one : times.jobs) {
            const bool vector = one.pe % 3 != 0;
            ready[vector] += ready_ps(one) <= instants[i] && instants[i] < one.started_ps;
            executing[vector] += one.started_ps <= instants[i] && instants[i] < one.ended_ps;
        }
        if ((ready[0] && executing[0] < SMALL.matrix) || (ready[1] && executing[1] < SMALL.vector))
            sum += instants[i + 1] - instants[i];
    }
    return sum;
}

TEST(Times, OverheadIsWhenAPeHadNoTaskAndOneWasReady) {
    std::mt19937_64 numbers(14);
    for (const char *runtime : RUNTIMES)
        for (const char *queue : {"queue=1\n", "queue=2\n", "queue=5\n"}) {
            Bench bench(runtime, std::string("times=1\nhazards=0\n") + queue);
            for (unsigned round = 0; round < 20; round++) {
                Script script;
                for (unsigned i = 0; i < 30; i++) {
                    Submit one = task(numbers() % 4, numbers() % 3, numbers() % 2);
                    one.parts[0].access = KL_ACCESS_NONE;
                    one.parts[1].offset = numbers() % 4 * 4 * COLUMNS;
                    one.cycles = numbers() % (numbers() % 3 ? 2000 : 40000);
                    script.submit(one);
                }
                bench.device.begin_report();
                std::vector<Tensor> tensors = numbered();
                const Answer answer = bench.run(script, tensors);
                ASSERT_EQ(answer.status, 0u) << answer.detail;
                const std::string report = "\n" + bench.device.report(), key = "\noverhead_ps=";
                const std::size_t at = report.find(key);
                ASSERT_NE(at, std::string::npos) << report;
                const std::uint64_t told =
                    std::strtoull(report.c_str() + at + key.size(), nullptr, 10);
                EXPECT_EQ(told, idle_beside_ready(times_of(bench.device))) << runtime << queue;
                EXPECT_LE(told, answer.virtual_ps);
            }
        }
}

// A task for another sip passes two ports between sips, there and back.
TEST(Times, OfAnotherSipHaveTwoMoreHopsEachWay) {
    constexpr std::uint64_t HOP_PS = 777'000;
    for (const char *runtime : RUNTIMES) {
        Script script;
        for (std::uint64_t i = 0; i < 2; i++) {
            Submit one = task(3, i, MATRIX_KERNEL);
            one.parts[0].access = KL_ACCESS_NONE;
            one.cycles = 100000;
            script.submit(one);
        }
        Bench bench(runtime, "times=1\nqueue=1\ntopology.sips=2\ntopology.cubes=1\n"
                             "links.sip.latency_ns=777\nlinks.sip.bandwidth=1000000\n");
        bench.device.begin_report();
        std::vector<Tensor> tensors = numbered();
        const Answer answer = bench.run(script, tensors);
        ASSERT_EQ(answer.status, 0u) << answer.detail;
        const auto &times = times_of(bench.device).jobs;
        ASSERT_EQ(times.size(), 2u);
        EXPECT_EQ(times[0].pe, 0u);
        EXPECT_EQ(times[1].pe, 3u);
        const auto there = [](const auto &one) { return one.started_ps - one.dispatched_ps; };
        EXPECT_NEAR(double(there(times[1]) - there(times[0])), 2 * HOP_PS, 100);
        const auto back = [](const auto &one) { return one.completed_ps - one.ended_ps; };
        EXPECT_NEAR(double(back(times[1]) - back(times[0])), 2 * HOP_PS, 100);
        EXPECT_EQ(bench.device.report().find("bytes.sip=0\n"), std::string::npos);
    }
}

// All blocks of a task start at one instant.
TEST(Times, SyncStartIsOneInstant) {
    for (const char *runtime : RUNTIMES) {
        Script script;
        Submit one = task(0, 1);
        one.blocks = 4;
        one.sync_start = 1;
        one.cycles = 1000;
        script.submit(one);
        Bench bench(runtime, "trace=1\n");
        std::vector<Tensor> tensors = numbered();
        ASSERT_EQ(bench.run(script, tensors).status, 0u);
        const std::string trace = bench.device.trace();
        std::vector<std::string> starts;
        const std::string name = "\"name\":\"vector\"";
        for (std::size_t at = 0; (at = trace.find(name, at)) != std::string::npos; at++) {
            const std::size_t line = trace.rfind('{', at), ts = trace.find("\"ts\":", line);
            starts.push_back(trace.substr(ts, trace.find(',', ts) - ts));
        }
        ASSERT_EQ(starts.size(), 4u) << trace.substr(0, 2000);
        for (const std::string &start : starts)
            EXPECT_EQ(start, starts[0]);
    }
}

} // namespace
} // namespace script
