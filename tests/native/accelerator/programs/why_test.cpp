// Where the virtual time of a launch went: of every PE by cause, and on the critical path.
#include <gtest/gtest.h>

#include <sstream>

#include "tasks_random.hpp"

namespace script {
namespace {

constexpr Width SMALL = {2, 4, 2, 2};
constexpr const char *INSIGHT = "times=1\npes=1\n";

std::uint64_t graphs_to_explain() {
    const char *count = std::getenv("GRAPHS");
    return count ? std::strtoull(count, nullptr, 10) / 2 : 50;
}

using Report = std::map<std::string, std::string>;

Report parsed(const std::string &text) {
    Report found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t at = line.find('=');
        EXPECT_EQ(found.count(line.substr(0, at)), 0u) << line;
        found[line.substr(0, at)] = line.substr(at + 1);
    }
    return found;
}

std::vector<std::string> split(const std::string &text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);)
        parts.push_back(part);
    return parts;
}

std::uint64_t number(const std::string &text) {
    return std::strtoull(text.c_str(), nullptr, 10);
}

class Explained {
  public:
    explicit Explained(const std::string &runtime, const std::string &overrides = INSIGHT)
        : device(runtime, overrides) {
        for (std::uint64_t i = 0; i < TENSORS; i++)
            addresses.push_back(device.allocate(ROWS * COLUMNS * 4));
    }

    // The virtual time.
    std::uint64_t run(const Script &script, std::vector<Tensor> tensors) {
        for (std::uint64_t i = 0; i < TENSORS; i++)
            device.write(addresses[i], tensors[i]);
        device.begin_report();
        const Answer answer = device.launch(addresses, script.words());
        EXPECT_EQ(answer.status, 0u) << answer.detail;
        report = parsed(device.report());
        return answer.virtual_ps;
    }

    std::uint64_t of(const std::string &key) const {
        const auto found = report.find(key);
        return found == report.end() ? 0 : number(found->second);
    }

    Device device;
    std::vector<std::uint64_t> addresses;
    Report report;
};

std::vector<Tensor> zeros() {
    return std::vector<Tensor>(TENSORS, Tensor(ROWS * COLUMNS));
}

// Everything adds up to the makespan, in picoseconds.
// Nobody but a message of the host that is late may be waited for.
void expect_exact(const Report &report, std::uint64_t makespan, std::uint64_t all = 6,
                  bool late = false) {
    std::uint64_t pes = 0, path = 0, causes = 0, spent = 0;
    EXPECT_EQ(number(report.at("virtual_ps")), makespan);
    for (const auto &[key, value] : report) {
        if (key.starts_with("pe.")) {
            std::uint64_t sum = 0;
            for (const std::string &ps : split(value, ','))
                sum += number(ps);
            EXPECT_EQ(sum, makespan) << key << '=' << value;
            pes++;
        } else if (key.starts_with("path.")) {
            const std::vector<std::string> parts = split(value, '|');
            ASSERT_EQ(parts.size(), 5u) << value;
            EXPECT_TRUE(late || parts[4] != "waiting") << "nobody accounts for: " << value;
            std::uint64_t sum = 0;
            for (const std::string &cause : split(parts[3], ','))
                sum += number(cause.substr(cause.find(':') + 1));
            EXPECT_EQ(sum, number(parts[2])) << value;
            path += sum;
        } else if (key.starts_with("path_cause.")) {
            causes += number(value);
        } else if (key.starts_with("spent.")) {
            spent += number(value);
        }
    }
    EXPECT_EQ(pes, all);
    EXPECT_LE(number(report.at("overhead_ps")), makespan);
    for (const char *type : {"matrix", "vector"}) {
        const double used =
            std::strtod(report.at(std::string("utilisation.") + type).c_str(), nullptr);
        EXPECT_TRUE(0 <= used && used <= 1) << used;
    }
    EXPECT_EQ(path, makespan);
    EXPECT_EQ(causes, makespan);
    EXPECT_EQ(spent, makespan * number(report.at("pes")));
}

TEST(Why, EveryPicosecondOfRandomGraphs) {
    for (const char *runtime : RUNTIMES) {
        SCOPED_TRACE(runtime);
        Explained timed(runtime);
        for (std::uint64_t seed = 0; seed < graphs_to_explain(); seed++) {
            SCOPED_TRACE(seed);
            RandomScript random(seed, SMALL);
            const std::uint64_t makespan = timed.run(random.script(), random.tensors());
            expect_exact(timed.report, makespan);
            if (HasFailure())
                return;
        }
    }
}

// A sample of several launches has each line once.
TEST(Why, OfLaunchesInARow) {
    for (const char *runtime : RUNTIMES) {
        Explained timed(runtime);
        RandomScript random(1, SMALL);
        timed.run(random.script(), random.tensors());
        const std::string ready = timed.report.at("peak.queue.ready");
        timed.device.begin_report();
        EXPECT_EQ(timed.device.launch(timed.addresses, random.script().words(), 3).status, 0u);
        EXPECT_EQ(parsed(timed.device.report()).at("peak.queue.ready"), ready);
    }
}

// A small ring: submissions wait, and the path goes through what they waited for.
TEST(Why, EveryPicosecondWithBackPressure) {
    Explained timed("RINGMAP", std::string(INSIGHT) + "ring.slots=3\nring.depths=8\n");
    Script script;
    for (std::uint64_t i = 0; i < 40; i++) {
        Submit one;
        one.kernel = VECTOR_KERNEL;
        one.cycles = 20000;
        one.parts[0] = {KL_ACCESS_IN, CONSTANT, 0, 1, 4, COLUMNS};
        one.parts[1] = {KL_ACCESS_INOUT, i % 3, 0, 1, 4, COLUMNS};
        one.parts[2] = {KL_ACCESS_IN, CONSTANT, 0, 0, 0, 0};
        script.submit(one);
    }
    const std::uint64_t makespan = timed.run(script, zeros());
    expect_exact(timed.report, makespan);
    EXPECT_GT(timed.of("spent.queue_full"), 0u);
    EXPECT_EQ(timed.report.at("peak.ring.0.slots"), "3/3/6");
}

// Faults that only take time, several sips, PEs of one kind, and control programs of all speeds.
TEST(Why, EveryPicosecondOfOtherDevices) {
    const struct {
        const char *settings;
        Width width;
        std::uint64_t pes;
    } devices[] = {
        {"faults.late=7:20000\n", SMALL, 6},
        {"faults.slow=noc:9\nqueue=1\n", SMALL, 6},
        {"faults.slow=hbm:50\nqueue=4\n", SMALL, 6},
        {"topology.sips=2\n", {4, 8, 4, 2}, 12},
        {"topology.sips=3\ntopology.cubes=1\nqueue=1\n", {3, 6, 3, 2}, 9},
        {"ring.slots=64\nring.dependencies=200\nring.depths=2\n", SMALL, 6},
        {"control.submit_ns=0\ncontrol.complete_ns=0\ncontrol.dispatch_ns=0\n", SMALL, 6},
        {"control.register_load_ns=0\ncontrol.register_store_ns=0\ncontrol.switch_ns=0\n", SMALL,
         6},
        {"infinite=scheduler,submit\n", SMALL, 6},
    };
    for (const char *runtime : RUNTIMES)
        for (const auto &one : devices) {
            SCOPED_TRACE(std::string(runtime) + " " + one.settings);
            Explained timed(runtime, std::string(INSIGHT) + one.settings);
            for (std::uint64_t seed = 0; seed < graphs_to_explain() / 4; seed++) {
                SCOPED_TRACE(seed);
                RandomScript random(seed, one.width);
                const std::uint64_t makespan = timed.run(random.script(), random.tensors());
                expect_exact(timed.report, makespan, one.pes, &one == devices);
                if (HasFailure())
                    return;
            }
        }
}

// Keeping times changes none.
TEST(Why, InsightTakesNoTime) {
    for (const char *runtime : RUNTIMES) {
        Explained with(runtime), without(runtime, "");
        for (std::uint64_t seed = 0; seed < 10; seed++) {
            RandomScript random(seed, SMALL);
            const std::vector<Tensor> tensors = random.tensors();
            EXPECT_EQ(with.run(random.script(), tensors), without.run(random.script(), tensors));
        }
    }
}

// With the sizes that are advised for a launch that did not wait nothing waits either.
TEST(Why, AdvisedSizesAreEnough) {
    unsigned heaps = 0;
    for (std::uint64_t seed = 0; seed < 40; seed++) {
        SCOPED_TRACE(seed);
        RandomScript random(seed, SMALL);
        const std::vector<Tensor> tensors = random.tensors();
        Explained roomy("RINGMAP");
        const std::uint64_t makespan = roomy.run(random.script(), tensors);
        EXPECT_EQ(roomy.of("spent.queue_full"), 0u);
        std::map<std::string, std::uint64_t> most;
        for (const auto &[key, value] : roomy.report)
            if (key.starts_with("peak.ring.")) {
                const std::string resource = key.substr(key.rfind('.') + 1);
                const std::uint64_t advised = number(split(value, '/')[2]);
                most[resource] = std::max(most[resource], advised);
            }
        std::string sizes = INSIGHT;
        for (const char *resource : {"slots", "dependencies"})
            sizes += std::string("ring.") + resource + "=" + std::to_string(most[resource]) + "\n";
        Explained tight("RINGMAP", sizes);
        EXPECT_EQ(tight.run(random.script(), tensors), makespan) << sizes;
        // Outputs are elsewhere, so that it may take another time.
        sizes = INSIGHT + ("ring.heap=" + std::to_string(most["heap"])) + "\n";
        Explained tightest("RINGMAP", sizes);
        tightest.run(random.script(), tensors);
        EXPECT_EQ(tightest.of("spent.queue_full"), 0u) << sizes;
        heaps += most["heap"] != 0;
    }
    EXPECT_GT(heaps, 10u);
}

// Tasks that wait for one long task, tasks that do not, tasks without work.
TEST(Why, TheLimiterIsNamed) {
    const auto limiter = [](const char *runtime, std::uint64_t cycles, bool wait,
                            const std::string &overrides) {
        Explained one(runtime, INSIGHT + overrides);
        Script script;
        for (std::uint64_t i = 0; i < 48; i++) {
            Submit task;
            task.kernel = VECTOR_KERNEL;
            const bool first = wait && i % 8 == 0;
            task.cycles = wait && !first ? 1 : cycles;
            task.parts[0] = {KL_ACCESS_IN, CONSTANT, 0, 1, 1, COLUMNS};
            task.parts[1] = {KL_ACCESS_WRITE, 0, first ? 0 : i, 1, first ? ROWS * COLUMNS : 1,
                             ROWS * COLUMNS};
            task.parts[2] = {KL_ACCESS_IN, CONSTANT, 0, 0, 0, 0};
            script.submit(task);
        }
        const std::uint64_t makespan = one.run(script, zeros());
        expect_exact(one.report, makespan);
        return one.report.at("limiter");
    };
    for (const char *runtime : RUNTIMES) {
        EXPECT_EQ(limiter(runtime, 100000, true, ""), "dependency");
        EXPECT_EQ(limiter(runtime, 100000, false, ""), "compute.scalar");
        EXPECT_EQ(limiter(runtime, 1, false, "control.submit_ns=9000\n"), "submit");
        EXPECT_EQ(limiter(runtime, 1, false, "control.switch_ns=90000\n"), "scheduler");
    }
}

} // namespace
} // namespace script
