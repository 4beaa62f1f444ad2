// Times that can be written as a formula are exact to the picosecond.
#include <gtest/gtest.h>

#include "device.hpp"

namespace kernloom::testing {

namespace closed_forms {

constexpr uint64_t ISSUE = 20000;
constexpr uint64_t NEAR = 110000 + 8000;
constexpr uint64_t NOC = 40000;
constexpr uint64_t SIP = 400000;

} // namespace closed_forms

using namespace closed_forms;

TEST(ClosedForms, a_lone_transfer_takes_latency_and_bytes_over_bandwidth) {
    for (const uint64_t bytes : {16384, 100003, 262144, 524288}) {
        Device device;
        EXPECT_EQ(device.time_task(pe(0, 0, 0), {load(1, 0, bytes), wait(1)}),
                  ISSUE + NEAR + transfer_ps(bytes, 96));
    }
}

TEST(ClosedForms, the_slowest_part_of_the_path_decides) {
    Device slow_memory("hbm.bandwidth=7\n");
    EXPECT_EQ(slow_memory.time_task(pe(0, 0, 0), {load(1, 0, 100003)}),
              ISSUE + NEAR + transfer_ps(100003, 7));
    Device slow_banks("sram.bank_bandwidth=1\n");
    EXPECT_EQ(slow_banks.time_task(pe(0, 0, 0), {load(1, 0, 100003)}),
              ISSUE + NEAR + transfer_ps(100003, 16));
}

TEST(ClosedForms, a_transfer_on_k_channels_gets_their_bandwidth) {
    Device device;
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {load(1, 0, 4096)}),
              ISSUE + NEAR + transfer_ps(4096, 32));
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {load(1, 4096, 8192)}),
              ISSUE + NEAR + transfer_ps(8192, 64));
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {load(1, 0, 64)}), ISSUE + NEAR + transfer_ps(64, 32));
}

TEST(ClosedForms, distance_adds_the_latency_of_each_hop) {
    Device device("topology.sips=2\nmmu.hit_ns=0\nmmu.walk_ns=0\n");
    const uint64_t bytes = 65536;
    device.map(pe(0, 0, 0), {entry(VIRTUAL, 0, bytes, pe(0, 0, 1)),
                             entry(VIRTUAL + bytes, 0, bytes, pe(0, 1, 0)),
                             entry(VIRTUAL + 2 * bytes, 0, bytes, pe(1, 1, 2))});
    const auto time = [&](uint64_t address) {
        return device.time_task(pe(0, 0, 0), {load(1, address, bytes), wait(1)});
    };
    EXPECT_EQ(time(VIRTUAL), ISSUE + NEAR + transfer_ps(bytes, 96));
    EXPECT_EQ(time(VIRTUAL + bytes), ISSUE + NEAR + 2 * NOC + transfer_ps(bytes, 96));
    EXPECT_EQ(time(VIRTUAL + 2 * bytes), ISSUE + NEAR + 2 * NOC + 2 * SIP + transfer_ps(bytes, 50));
}

TEST(ClosedForms, n_equal_flows_get_one_nth_each) {
    for (uint16_t n = 1; n <= 7; n++) {
        Device device("topology.pes.vector=6\nhbm.bandwidth=31\nsram.bank_bandwidth=64\n");
        const uint64_t bytes = 100003;
        for (uint16_t i = 0; i < n; i++) {
            device.replay(pe(0, 0, i), {load(1, 0, bytes)});
        }
        device.run();
        for (uint16_t i = 0; i < n; i++) {
            EXPECT_EQ(device.at(pe(0, 0, i)).replayed.at(0).second,
                      ISSUE + NEAR + transfer_ps(n * bytes, 31))
                << n;
        }
    }
}

TEST(ClosedForms, a_flow_that_comes_later_shares_what_is_left) {
    Device device("hbm.bandwidth=31\n");
    const uint64_t bytes = 100003;
    const uint64_t later = 1000000;
    device.replay(pe(0, 0, 0), {load(1, 0, bytes)});
    device.replay(pe(0, 0, 1), {compute(2 * later / 1000), load(1, 0, bytes)});
    device.run();
    const uint64_t begin = ISSUE + NEAR;
    // Alone for `later`, then half of the bandwidth until the first is done.
    const uint64_t first = begin + transfer_ps(2 * bytes, 31) - later;
    EXPECT_EQ(device.at(pe(0, 0, 0)).replayed.at(0).second, first);
    EXPECT_EQ(device.at(pe(0, 0, 1)).replayed.at(0).second, begin + transfer_ps(2 * bytes, 31));
}

TEST(ClosedForms, flows_limited_elsewhere_leave_their_share_to_others) {
    // Three PEs of cube 0 read cube 1 through its port; one PE of cube 1 reads its own memory.
    Device device("links.noc.bandwidth=30\nmmu.hit_ns=0\nmmu.walk_ns=0\n");
    const uint64_t bytes = 300000;
    for (uint16_t i = 0; i < 3; i++) {
        device.map(pe(0, 0, i), {entry(VIRTUAL, 0, bytes, pe(0, 1, i))});
        device.replay(pe(0, 0, i), {load(1, VIRTUAL, bytes)});
    }
    device.replay(pe(0, 1, 0), {load(1, 0, bytes)});
    device.run();
    EXPECT_EQ(device.at(pe(0, 0, 2)).replayed.at(0).second,
              ISSUE + NEAR + 2 * NOC + transfer_ps(bytes, 10));
    EXPECT_EQ(device.at(pe(0, 1, 0)).replayed.at(0).second,
              ISSUE + NEAR + transfer_ps(bytes, 96)); // 128 - 30 are left, the engine moves 96
}

TEST(ClosedForms, a_group_of_channels_serves_whole_and_partial_transfers_fairly) {
    // One transfer on all four channels, one on a single channel: they share that channel, so the
    // first is held up to a quarter of it on each.
    Device device("hbm.bandwidth=40\n");
    device.replay(pe(0, 0, 0), {load(1, 0, 400000)});
    kl_action single = load(1, 0, 4096);
    single.rows = {100, 1000, 16384, 1000};
    device.replay(pe(0, 0, 1), {single});
    device.run();
    // r1/4 + r2 = 10 and both rise together: 8 each.
    EXPECT_EQ(device.at(pe(0, 0, 1)).replayed.at(0).second, ISSUE + NEAR + transfer_ps(100000, 8));
    // Then it is alone at 40.
    EXPECT_EQ(device.at(pe(0, 0, 0)).replayed.at(0).second,
              ISSUE + NEAR + transfer_ps(100000, 8) + transfer_ps(300000, 40));
}

TEST(ClosedForms, double_buffered_tiles_overlap_copies_with_computing) {
    for (const uint64_t cycles : {100, 1500, 20000}) {
        Device device;
        const uint64_t n = 9;
        const uint64_t bytes = 32768;
        const uint64_t c = cycles * 500;
        const uint64_t d = ISSUE + NEAR + transfer_ps(bytes, 96);
        std::vector<kl_action> actions = {load(0, 0, bytes)};
        for (uint32_t i = 0; i < n; i++) {
            actions.push_back(wait(i));
            if (i + 1 < n) {
                actions.push_back(load(i + 1, (i + 1) * bytes, bytes, (i + 1) % 2 * bytes));
            }
            actions.push_back(compute(cycles));
        }
        EXPECT_EQ(device.time_task(pe(0, 0, 1), actions), (n - 1) * std::max(c, d) + c + d);
    }
}

TEST(ClosedForms, copies_queue_for_the_engines) {
    Device device;
    const uint64_t bytes = 49152;
    const uint64_t d = ISSUE + NEAR + transfer_ps(2 * bytes, 128); // two share the memory
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {load(1, 0, bytes), load(2, 0, bytes),
                                             load(3, 0, bytes), load(4, 0, bytes)}),
              2 * d);
}

TEST(ClosedForms, a_task_ends_with_its_last_store) {
    Device device;
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {store(1, 0, 96000), compute(10)}),
              ISSUE + NEAR + 1000000);
}

TEST(ClosedForms, cycles_are_exact_at_any_clock) {
    Device device("clock.core_mhz=1850\n");
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {compute(1850000)}), 1000000000u);
}

TEST(ClosedForms, the_same_task_takes_the_same_time_at_any_instant) {
    Device device("hbm.bandwidth=31\ndma.bandwidth=13\n");
    const std::vector<kl_action> task = {load(1, 0, 100003), load(2, 0, 7777), wait(2),
                                         compute(12345),     wait(1),          store(3, 0, 9999)};
    const uint64_t first = device.time_task(pe(0, 0, 0), task);
    for (int i = 0; i < 50; i++) {
        EXPECT_EQ(device.time_task(pe(0, 0, 0), task), first);
    }
}

} // namespace kernloom::testing
