// A look into a launch: levels of the trace, arrows, counters, dependencies, a task again.
#include <gtest/gtest.h>

#include <set>

#include "script_bench.hpp"

namespace script {
namespace {

std::size_t count_of(const std::string &text, const std::string &part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        count++;
    return count;
}

// A chain of three, one beside it, and a graph of two.
Script some_tasks() {
    Script script;
    for (std::uint64_t i = 0; i < 3; i++)
        script.submit(task(NOTHING, part(KL_ACCESS_INOUT, 0, 0)));
    Submit beside = task(part(KL_ACCESS_IN, 2, 0), part(KL_ACCESS_WRITE, 1, 0));
    beside.kernel = VECTOR_KERNEL;
    beside.blocks = 2;
    script.submit(beside);
    script.add({BEGIN_GRAPH});
    script.submit(task(NOTHING, part(KL_ACCESS_INOUT, 1, 4)));
    script.submit(task(part(KL_ACCESS_IN, 1, 4), part(KL_ACCESS_WRITE, 2, 0)));
    script.add({END_GRAPH, SUBMIT_GRAPH, 0, 5, 0, 1, 2, CONSTANT});
    return script;
}

std::string traced(const char *runtime, int level, const std::string &more = "") {
    Launches bench(runtime, "trace=1\ntrace.level=" + std::to_string(level) + "\n" + more);
    EXPECT_EQ(bench.run(some_tasks()).status, 0u);
    return bench.device.trace();
}

TEST(Trace, HasMoreOnEachLevel) {
    for (const char *runtime : RUNTIMES) {
        const std::string tasks = traced(runtime, 1), waits = traced(runtime, 2),
                          transfers = traced(runtime, 3), messages = traced(runtime, 4);
        EXPECT_EQ(count_of(tasks, "\"ph\":\"X\""), 7u) << tasks;
        EXPECT_EQ(count_of(tasks, "\"name\":\"matrix\"}"), 5u);
        EXPECT_EQ(count_of(tasks, "\"ph\":\"s\""), 0u);
        // Two in the chain, one in the graph.
        EXPECT_EQ(count_of(waits, "\"ph\":\"s\""), 4u) << waits;
        EXPECT_EQ(count_of(waits, "\"ph\":\"f\""), 4u);
        EXPECT_GT(count_of(waits, "wait: "), 0u);
        EXPECT_GT(count_of(waits, "\"name\":\"ready matrix\""), 1u);
        EXPECT_EQ(count_of(waits, "\"name\":\"ring 0 slots\"") > 0, runtime == RUNTIMES[1]);
        EXPECT_EQ(count_of(waits, "\"name\":\"load\""), 0u);
        EXPECT_GT(count_of(transfers, "\"name\":\"load\""), 0u);
        EXPECT_EQ(count_of(transfers, " to pe"), 0u);
        EXPECT_GT(messages.size(), transfers.size());
    }
}

// A failure has no times; an arrow to it would begin anywhere.
TEST(Trace, HasNoArrowsToFailures) {
    for (const char *runtime : RUNTIMES) {
        Launches bench(runtime, "trace=1\ntrace.level=2\n");
        Script script;
        for (std::uint64_t i = 0; i < 3; i++) {
            Submit one = task(NOTHING, part(KL_ACCESS_INOUT, 0, 0));
            one.salt = i == 2 ? FAILING : 0;
            script.submit(one);
        }
        EXPECT_NE(bench.run(script).status, 0u);
        EXPECT_EQ(count_of(bench.device.trace(), "\"ph\":\"s\""), 1u) << runtime;
    }
}

TEST(Trace, IsTheSameInEveryRunAndWithThreads) {
    for (const char *runtime : RUNTIMES)
        for (int level = 1; level <= 4; level++) {
            const std::string first = traced(runtime, level);
            EXPECT_EQ(first, traced(runtime, level));
            EXPECT_EQ(first, traced(runtime, level, "threads=2\n"));
        }
}

TEST(Trace, TakesNoVirtualTime) {
    for (const char *runtime : RUNTIMES) {
        std::set<std::uint64_t> times;
        for (const char *settings :
             {"", "trace=1\ntrace.level=1\n", "trace=1\ntrace.level=4\n", "deps=1\nreplay=0\n"})
            times.insert(Launches(runtime, settings).run(some_tasks()).virtual_ps);
        EXPECT_EQ(times.size(), 1u) << runtime;
    }
}

// 10^6 tasks, if asked for: a graph again and again.
TEST(Trace, OfManyTasksIsSmall) {
    const std::uint64_t times = number_of("TRACED", 2);
    Script script;
    script.add({BEGIN_GRAPH});
    for (std::uint64_t i = 0; i < 1000; i++) {
        Submit one = task(NOTHING, {KL_ACCESS_INOUT, i % 3, i % 64, 0, 1, 1});
        script.submit(one);
    }
    script.add({END_GRAPH});
    for (std::uint64_t i = 0; i < times; i++)
        script.add({SUBMIT_GRAPH, 0, 5, 0, 1, 2, CONSTANT});
    Launches bench(RUNTIMES[0], "trace=1\ntrace.level=1\n");
    ASSERT_EQ(bench.run(script).status, 0u);
    const std::size_t bytes = bench.device.trace().size();
    EXPECT_LE(bytes, times * 1000 * 100 + 10000);
    std::printf("%llu tasks: %zu bytes\n", static_cast<unsigned long long>(times * 1000), bytes);
}

TEST(Dependencies, AreToldWithTasksTensorsAndBytes) {
    for (const char *runtime : RUNTIMES) {
        Launches bench(runtime, "deps=1\n");
        ASSERT_EQ(bench.run(some_tasks()).status, 0u);
        const std::string text = bench.device.document(KL_DOCUMENTS_DEPENDENCIES);
        for (const char *edge :
             {"{\"from\": 0, \"to\": 1, \"kind\": \"RAW\", \"tensor\": \"t\", \"bytes\": [0, 80]}",
              "{\"from\": 1, \"to\": 2, \"kind\": \"RAW\"", "{\"from\": 3, \"to\": 4, \"kind\": ",
              "{\"task\": 3, \"name\": \"vector\", \"kernel\": \"vector\", \"blocks\": 2}",
              "{\"task\": 4, \"name\": \"graph\", \"graph\": 0}"})
            EXPECT_NE(text.find(edge), std::string::npos) << edge << "\n" << text;
        EXPECT_EQ(text, bench.device.document(KL_DOCUMENTS_DEPENDENCIES));
        EXPECT_EQ(Launches(runtime).device.document(KL_DOCUMENTS_DEPENDENCIES), "");
    }
}

// Outputs inside of a graph that take the place of others, as they did when it was recorded.
TEST(Dependencies, OfGraphsWithLittleHeap) {
    Launches bench("HOSTGRAPH", "deps=1\ngraph.heap=64\n");
    Script script;
    script.add({BEGIN_GRAPH});
    for (std::uint64_t i = 0; i < 2; i++) {
        script.add({BEGIN_SCOPE, KL_SCOPE_DERIVED});
        script.submit(task(NOTHING, {KL_ACCESS_OUT, 0, 0, 1, 16, 16}));
        script.add({END_SCOPE});
    }
    script.add({END_GRAPH, SUBMIT_GRAPH, 0, 5, 0, 1, 2, CONSTANT});
    const Answer answer = bench.run(script);
    ASSERT_EQ(answer.status, 0u) << answer.detail;
    const std::string text = bench.device.document(KL_DOCUMENTS_DEPENDENCIES);
    EXPECT_EQ(count_of(text, "{\"from\": 0, \"to\": 1, \"kind\": \"heap\""), 1u) << text;
}

// An orchestration that fails on the device leaves nothing of the launch before it.
TEST(Documents, AreNotToldAfterAFailedOrchestration) {
    Launches bench("RINGMAP", "deps=1\nreplay=0\n");
    ASSERT_EQ(bench.run(some_tasks()).status, 0u);
    EXPECT_NE(bench.device.document(KL_DOCUMENTS_DEPENDENCIES), "");
    EXPECT_NE(bench.device.document(KL_DOCUMENTS_REPLAY), "");
    Script failing;
    failing.submit(task(NOTHING, part(KL_ACCESS_INOUT, 0, 0)));
    failing.add({FAIL});
    ASSERT_NE(bench.run(failing).status, 0u);
    EXPECT_EQ(bench.device.document(KL_DOCUMENTS_DEPENDENCIES), "");
    EXPECT_EQ(bench.device.document(KL_DOCUMENTS_REPLAY), "");
    ASSERT_EQ(bench.run(some_tasks()).status, 0u);
    EXPECT_NE(bench.device.document(KL_DOCUMENTS_DEPENDENCIES), "");
}

TEST(Replay, OfEveryTaskIsEqualAndLeavesNothingBehind) {
    for (const char *runtime : RUNTIMES)
        for (const char *which : {"0", "1", "2", "3", "4.0", "4.1", "vector"}) {
            Launches bench(runtime, std::string("replay=") + which + "\n");
            ASSERT_EQ(bench.run(some_tasks()).status, 0u);
            std::vector<Tensor> before(TENSORS, Tensor(ROWS * COLUMNS)), after = before;
            for (std::uint64_t i = 0; i < TENSORS; i++)
                bench.device.read(bench.addresses[i], before[i]);
            const std::string text = bench.device.document(KL_DOCUMENTS_REPLAY);
            EXPECT_NE(text.find("\"equal\": true"), std::string::npos) << which << " " << text;
            EXPECT_EQ(text, bench.device.document(KL_DOCUMENTS_REPLAY));
            for (std::uint64_t i = 0; i < TENSORS; i++)
                bench.device.read(bench.addresses[i], after[i]);
            EXPECT_EQ(before, after);
        }
}

TEST(Replay, OfTasksOfRandomGraphsIsEqual) {
    for (std::uint64_t seed = 0; seed < number_of("REPLAYS", 30); seed++) {
        RandomScript random(seed, SMALL_DEVICE);
        Launches bench(RUNTIMES[seed % 2], "replay=" + std::to_string(seed % 7) + "\n");
        ASSERT_EQ(bench.run(random.script()).status, 0u);
        const std::string text = bench.device.document(KL_DOCUMENTS_REPLAY);
        EXPECT_EQ(text.find("\"equal\": false"), std::string::npos) << seed << " " << text;
        EXPECT_NE(text, "");
    }
}

TEST(Replay, OfAnUnknownTaskListsNames) {
    Launches bench(RUNTIMES[0], "replay=vectr\n");
    ASSERT_EQ(bench.run(some_tasks()).status, 0u);
    EXPECT_EQ(bench.device.document(KL_DOCUMENTS_REPLAY),
              "{\"tasks\": 5, \"names\": [\n\"matrix\",\n\"vector\"\n]}\n");
}

} // namespace
} // namespace script
