// PEs that wait for each other, and why PEs have nothing to do.
#include <gtest/gtest.h>

#include <numeric>

#include "device.hpp"

namespace kernloom::testing {

TEST(Meet, AllGoOnAtTheInstantWhenTheLastHasArrived) {
    Device device;
    const auto meet = [&](kl_node node, uint64_t group, uint32_t count, uint64_t token) {
        device.platform->meet(device.platform->self, node, group, count, token);
    };
    meet(pe(0, 0, 0), 7, 3, 1);
    meet(pe(0, 1, 2), 8, 2, 9);
    device.replay(pe(0, 0, 2), {compute(1000)});
    device.run();
    EXPECT_TRUE(device.at(pe(0, 0, 0)).timers.empty());
    const uint64_t later = device.now();
    EXPECT_GT(later, 0u);
    meet(pe(0, 0, 1), 7, 3, 2);
    meet(pe(0, 1, 0), 7, 3, 3);
    device.run();
    using Timers = std::vector<std::pair<uint64_t, uint64_t>>;
    EXPECT_EQ(device.at(pe(0, 0, 0)).timers, (Timers{{1, later}}));
    EXPECT_EQ(device.at(pe(0, 0, 1)).timers, (Timers{{2, later}}));
    EXPECT_EQ(device.at(pe(0, 1, 0)).timers, (Timers{{3, later}}));
    // The other group still waits.
    EXPECT_TRUE(device.at(pe(0, 1, 2)).timers.empty());
}

TEST(Waiting, IdleTimeIsSplitByWhatTheControlProgramSays) {
    Device device;
    const auto pass = [&](uint64_t cycles) {
        device.replay(pe(0, 0, 0), {compute(cycles, KL_UNIT_MATRIX)});
        device.run();
    };
    const auto say = [&](uint32_t type, uint32_t why) {
        device.platform->waiting(device.platform->self, type, why);
    };
    kl_platform()->begin_report(device.platform);
    const uint64_t begin = device.now();
    pass(1000);
    const uint64_t one = device.now();
    say(KL_CORE_VECTOR, KL_IDLE_DEPENDENCY);
    pass(500);
    const uint64_t two = device.now();
    say(KL_CORE_VECTOR, KL_IDLE_QUEUE_FULL);
    pass(300);
    const uint64_t three = device.now();
    say(KL_CORE_VECTOR, KL_IDLE_SCHEDULER);
    pass(200);
    const uint64_t end = device.now();
    for (const Accounts::Pe &found : device.simulator().settled_accounts().pes()) {
        EXPECT_EQ(std::accumulate(found.spent.begin(), found.spent.end(), uint64_t{0}),
                  end - begin);
        if (found.type != KL_CORE_VECTOR) {
            continue;
        }
        EXPECT_EQ(found.spent[static_cast<uint32_t>(Cause::NO_WORK)], one - begin);
        EXPECT_EQ(found.spent[static_cast<uint32_t>(Cause::DEPENDENCY)], two - one);
        EXPECT_EQ(found.spent[static_cast<uint32_t>(Cause::QUEUE_FULL)], three - two);
        EXPECT_EQ(found.spent[static_cast<uint32_t>(Cause::SCHEDULER)], end - three);
    }
}

} // namespace kernloom::testing
