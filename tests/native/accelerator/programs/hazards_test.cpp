// Hazards: each that is put into a random script is found in the first run, with both tasks and the
// bytes.
#include <gtest/gtest.h>

#include "script_bench.hpp"

namespace script {
namespace {

constexpr std::uint32_t HAZARD = KL_STATUS_HAZARD;

// What was put in, and what the message must say.
struct Injected {
    Script script;
    std::vector<std::string> said;
};

enum Kind {
    READ,
    WRITE,
    AS_INPUT,
    MANUAL_WRITES,
    MANUAL_READ,
    NO_DEPENDENCY,
    AMONG_BLOCKS,
    IN_GRAPH,
    KINDS
};

Injected inject(Kind kind, std::uint64_t seed) {
    RandomScript random(seed, SMALL_DEVICE);
    Injected made{random.script(), {}};
    Script &script = made.script;
    // Behind a barrier they race with nothing else.
    script.add({BARRIER});
    const std::uint64_t first = random.submissions() + 1, offset = seed % 64;
    const std::string begin = std::to_string(offset * 4),
                      row = std::to_string((offset + COLUMNS) * 4);
    switch (kind) {
    case READ: {
        Submit one = task(part(KL_ACCESS_IN, 0, offset), part(KL_ACCESS_WRITE, 1, offset));
        one.shortened = 1;
        script.submit(one);
        made.said = {title(first) + " reads bytes " + row, "of tensor 0", "no region"};
        break;
    }
    case WRITE: {
        Submit one = task(NOTHING, part(KL_ACCESS_WRITE, 1, offset));
        one.shortened = 2;
        script.submit(one);
        made.said = {title(first) + " writes bytes " + row, "of tensor 1", "no region"};
        break;
    }
    case AS_INPUT: {
        Submit one = task(NOTHING, part(KL_ACCESS_WRITE, 1, offset));
        one.as_input = 2;
        script.submit(one);
        made.said = {title(first) + " writes bytes " + begin, "of tensor 1", "as input only"};
        break;
    }
    case MANUAL_WRITES:
        // The third one waits for the first, and the second for nothing.
        script.add({BEGIN_SCOPE, KL_SCOPE_MANUAL});
        for (std::uint64_t i = 0; i < 3; i++) {
            Submit one = task(NOTHING, part(KL_ACCESS_INOUT, 2, offset + i % 2));
            one.after_count = i == 2;
            one.after[0] = first;
            script.submit(one);
        }
        script.add({END_SCOPE});
        made.said = {title(first),  title(first + 1),
                     "writes",      "bytes " + std::to_string((offset + 1) * 4),
                     "of tensor 2", "neither waits"};
        break;
    case MANUAL_READ:
        script.add({BEGIN_SCOPE, KL_SCOPE_MANUAL});
        script.submit(task(NOTHING, part(KL_ACCESS_WRITE, 0, offset)));
        script.submit(task(part(KL_ACCESS_IN, 0, offset), part(KL_ACCESS_WRITE, 1, offset)));
        script.add({END_SCOPE});
        made.said = {title(first) + " writes", title(first + 1) + " reads", "bytes " + begin,
                     "of tensor 0", "neither waits"};
        break;
    case NO_DEPENDENCY:
        script.submit(task(NOTHING, part(KL_ACCESS_WRITE, 0, offset)));
        script.submit(task(part(KL_ACCESS_NONE, 0, offset), part(KL_ACCESS_WRITE, 1, offset)));
        made.said = {title(first) + " writes", title(first + 1) + " reads", "bytes " + begin,
                     "of tensor 0", "neither waits"};
        break;
    case AMONG_BLOCKS: {
        // The first block reads what the second one writes.
        Submit one =
            task(part(KL_ACCESS_IN, 1, offset + COLUMNS), part(KL_ACCESS_WRITE, 1, offset));
        one.blocks = 2;
        script.submit(one);
        made.said = {"block 0 of " + title(first) + " reads", "block 1 writes", "bytes " + row,
                     "of tensor 1", "neither waits"};
        break;
    }
    default: {
        // Inside of a graph.
        script.add({BEGIN_GRAPH});
        script.submit(task(NOTHING, part(KL_ACCESS_WRITE, 0, offset)));
        script.submit(task(part(KL_ACCESS_NONE, 0, offset), part(KL_ACCESS_WRITE, 1, offset)));
        script.add({END_GRAPH});
        script.add({SUBMIT_GRAPH, random.graphs(), 1, 2, 1, 0, CONSTANT});
        const std::string inside = "task " + std::to_string(first) + " 'matrix' (number ";
        made.said = {inside + "0 of its graph)", inside + "1 of its graph)", "of tensor 2",
                     "neither waits"};
    }
    }
    return made;
}

TEST(Hazards, OfEveryKindAreFoundInTheFirstRun) {
    const std::uint64_t count = number_of("HAZARDS", 200);
    for (const char *runtime : RUNTIMES) {
        Launches bench(runtime);
        for (std::uint64_t seed = 0; seed < count; seed++) {
            const Injected one = inject(static_cast<Kind>(seed % KINDS), seed);
            const Answer answer = bench.run(one.script);
            ASSERT_EQ(answer.status, HAZARD)
                << runtime << " seed " << seed << ": " << answer.detail;
            for (const std::string &said : one.said)
                ASSERT_NE(answer.detail.find(said), std::string::npos)
                    << runtime << " seed " << seed << ": " << answer.detail << "\nwithout " << said;
        }
    }
}

TEST(Hazards, AreNotInCleanGraphs) {
    const std::uint64_t count = number_of("GRAPHS", 100);
    for (const char *runtime : RUNTIMES) {
        Launches bench(runtime);
        for (std::uint64_t seed = 0; seed < count; seed++) {
            const Answer answer = bench.run(RandomScript(seed + 1000000, SMALL_DEVICE).script());
            ASSERT_EQ(answer.status, 0u) << runtime << " seed " << seed << ": " << answer.detail;
        }
    }
}

TEST(Hazards, ChangeNoVirtualTime) {
    for (const char *runtime : RUNTIMES) {
        Launches with(runtime), without(runtime, "hazards=0\n"), threads(runtime, "threads=2\n");
        for (std::uint64_t seed = 0; seed < 10; seed++) {
            const RandomScript random(seed, SMALL_DEVICE);
            const std::uint64_t virtual_ps = with.run(random.script()).virtual_ps;
            EXPECT_EQ(virtual_ps, without.run(random.script()).virtual_ps);
            EXPECT_EQ(virtual_ps, threads.run(random.script()).virtual_ps);
        }
    }
}

TEST(Hazards, AreIgnoredIfNotLookedFor) {
    Launches bench(RUNTIMES[0], "hazards=0\n");
    for (std::uint64_t kind = 0; kind < KINDS; kind++)
        EXPECT_EQ(bench.run(inject(static_cast<Kind>(kind), kind).script).status, 0u);
}

// Several regions may cover one transfer together; tasks in a manual scope that are ordered through
// others do not race.
TEST(Hazards, AreNoneWhereRegionsAddUpAndPathsAreLong) {
    for (const char *runtime : RUNTIMES) {
        Launches bench(runtime);
        Script chain;
        chain.add({BEGIN_SCOPE, KL_SCOPE_MANUAL});
        for (std::uint64_t i = 0; i < 20; i++) {
            Submit one = task(NOTHING, part(KL_ACCESS_INOUT, i % 2, 0));
            one.after_count = i > 0;
            one.after[0] = i - 1;
            chain.submit(one);
        }
        chain.add({END_SCOPE});
        const Answer answer = bench.run(chain);
        EXPECT_EQ(answer.status, 0u) << answer.detail;
    }
}

// The same memory as two tensors of a launch.
TEST(Hazards, AreFoundBetweenTensorsThatShareMemory) {
    for (const char *runtime : RUNTIMES) {
        Launches bench(runtime);
        Script script;
        script.submit(task(NOTHING, part(KL_ACCESS_WRITE, 0, 8)));
        script.submit(task(NOTHING, part(KL_ACCESS_WRITE, 1, 0)));
        bench.addresses[1] = bench.addresses[0] + 32;
        const Answer answer = bench.run(script);
        EXPECT_EQ(answer.status, HAZARD);
        EXPECT_NE(answer.detail.find("bytes 32 to 47 of tensor 0"), std::string::npos)
            << answer.detail;
    }
}

} // namespace
} // namespace script
