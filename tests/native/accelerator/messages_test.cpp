// Messages: their way through the fabric, timers, programs, and what happens when the fabric fails.
#include <gtest/gtest.h>

#include "device.hpp"

namespace kernloom::testing {

namespace hops {

constexpr uint64_t PCIE = 500000;
constexpr uint64_t IO = 200000;
constexpr uint64_t MANAGEMENT = 100000;
constexpr uint64_t NOC = 40000;
constexpr uint64_t SIP = 400000;

// On each hop the bytes follow the latency.
constexpr uint64_t to_control(uint64_t bytes) {
    return PCIE + transfer_ps(bytes, 32) + IO + transfer_ps(bytes, 32) + MANAGEMENT +
           transfer_ps(bytes, 64);
}

constexpr uint64_t over_noc(uint64_t bytes) {
    return NOC + transfer_ps(bytes, 128);
}

} // namespace hops

TEST(Messages, latency_is_the_sum_of_the_hops) {
    const std::string text(96, 'm');
    const struct {
        kl_node from;
        kl_node to;
        uint64_t time;
    } cases[] = {
        {HOST, control(0), hops::to_control(96)},
        {control(0), HOST, hops::to_control(96)},
        {HOST, pe(0, 1, 2), hops::to_control(96) + hops::over_noc(96)},
        {pe(0, 1, 2), HOST, hops::to_control(96) + hops::over_noc(96)},
        {control(0), pe(0, 1, 2), hops::over_noc(96)},
        {pe(0, 1, 2), control(0), hops::over_noc(96)},
        {pe(0, 0, 0), pe(0, 1, 0), 2 * hops::over_noc(96)},
        {control(0), control(1), 2 * (hops::SIP + transfer_ps(96, 50))},
        {pe(0, 0, 0), pe(1, 1, 0), 2 * hops::over_noc(96) + 2 * (hops::SIP + transfer_ps(96, 50))},
    };
    for (const auto &one : cases) {
        Device device("topology.sips=2\n");
        device.send(one.from, one.to, text);
        EXPECT_EQ(device.run(), 0);
        const Recorder &receiver = device.at(one.to);
        ASSERT_EQ(receiver.received.size(), 1u);
        EXPECT_EQ(receiver.received[0].time, one.time);
        EXPECT_EQ(std::string(receiver.received[0].data.begin(), receiver.received[0].data.end()),
                  text);
    }
}

TEST(Messages, bulk_takes_its_time_on_each_hop) {
    Device device;
    device.send(HOST, pe(0, 0, 0), std::string(100, 'm'), 1000000);
    device.run();
    const Received &received = device.at(pe(0, 0, 0)).received.at(0);
    EXPECT_EQ(received.time, hops::to_control(1000100) + hops::over_noc(1000100));
    EXPECT_EQ(received.bulk, 1000000u);
}

TEST(Messages, who_is_not_addressed_sees_nothing) {
    Device device;
    device.send(HOST, pe(0, 0, 1), "hello");
    device.run();
    for (const kl_node node : {pe(0, 0, 0), pe(0, 0, 2), pe(0, 1, 1), control(0), HOST}) {
        EXPECT_TRUE(device.at(node).received.empty());
    }
}

TEST(Messages, a_cpu_handles_one_message_after_the_other) {
    Device device("links.pcie.bandwidth=1000000\nlinks.io_cpu.bandwidth=1000000\n"
                  "links.management.bandwidth=1000000\n");
    for (int i = 0; i < 3; i++) {
        device.send(HOST, control(0), "x");
    }
    device.run();
    const auto &received = device.at(control(0)).received;
    ASSERT_EQ(received.size(), 3u);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_EQ(received[i].time, hops::PCIE + (i + 1) * hops::IO + hops::MANAGEMENT);
    }
}

TEST(Messages, messages_between_two_nodes_keep_their_order) {
    Device device;
    for (int i = 0; i < 20; i++) {
        device.send(control(0), pe(0, 1, 1), std::string(40, static_cast<char>('a' + i)));
    }
    device.run();
    const auto &received = device.at(pe(0, 1, 1)).received;
    ASSERT_EQ(received.size(), 20u);
    for (int i = 0; i < 20; i++) {
        EXPECT_EQ(received[static_cast<size_t>(i)].data[0], 'a' + i);
    }
}

TEST(Messages, timers_fire_in_order_of_time_then_of_setting) {
    Device device;
    const auto after = [&](uint64_t delay, uint64_t token) {
        device.platform->after(device.platform->self, HOST, delay, token);
    };
    after(5, 1);
    after(3, 2);
    after(5, 3);
    after(0, 4);
    EXPECT_EQ(device.run(), 0);
    const std::vector<std::pair<uint64_t, uint64_t>> expected = {{4, 0}, {2, 3}, {1, 5}, {3, 5}};
    EXPECT_EQ(device.at(HOST).timers, expected);
}

TEST(Messages, run_goes_on_after_a_stop) {
    Device device;
    static const kl_program stopping = [] {
        kl_program program = recorder_program(KL_NODE_HOST);
        program.timer = [](void *state, uint64_t token) {
            record_timer(state, token);
            const auto &recorder = *static_cast<Recorder *>(state);
            recorder.platform->stop(recorder.platform->self);
        };
        return program;
    }();
    char problem[100];
    struct kl_platform *platform = kl_platform()->open(SMALL, problem, sizeof problem);
    ASSERT_TRUE(kl_platform()->attach(platform, &stopping, problem, sizeof problem));
    platform->after(platform->self, HOST, 10, 1);
    platform->after(platform->self, HOST, 20, 2);
    EXPECT_EQ(platform->run(platform->self), 1);
    EXPECT_EQ(platform->now(platform->self), 10u);
    EXPECT_EQ(platform->run(platform->self), 1);
    EXPECT_EQ(platform->run(platform->self), 0);
    kl_platform()->close(platform);
}

TEST(Programs, each_node_has_a_state_of_its_own) {
    Device device;
    EXPECT_NE(&device.at(pe(0, 0, 0)), &device.at(pe(0, 0, 1)));
    EXPECT_EQ(device.at(pe(0, 1, 2)).node.cube, 1);
    EXPECT_EQ(kl_platform()->program_state(device.platform, pe(0, 7, 0)), nullptr);
}

TEST(Programs, what_cannot_be_attached_is_refused_with_the_reason) {
    Device device;
    char problem[100] = "";
    EXPECT_FALSE(kl_platform()->attach(device.platform, &RECORDERS[0], problem, sizeof problem));
    EXPECT_STREQ(problem, "recorder: another program runs on these nodes");
    kl_program other = recorder_program(KL_NODE_HOST);
    other.abi = 99;
    EXPECT_FALSE(kl_platform()->attach(device.platform, &other, problem, sizeof problem));
    EXPECT_STREQ(problem, "recorder: built for another version of the platform's ABI");
}

TEST(Faults, a_dead_pe_drops_every_message_and_the_run_ends) {
    Device device("faults.dead=0.0.1,0.1.0\n");
    for (const kl_node node : {pe(0, 0, 0), pe(0, 0, 1), pe(0, 1, 0)}) {
        device.send(HOST, node, "hello");
    }
    device.send(pe(0, 0, 1), HOST, "from the dead");
    EXPECT_EQ(device.run(), 0);
    EXPECT_EQ(device.at(pe(0, 0, 0)).received.size(), 1u);
    EXPECT_TRUE(device.at(pe(0, 0, 1)).received.empty());
    EXPECT_TRUE(device.at(pe(0, 1, 0)).received.empty());
    EXPECT_TRUE(device.at(HOST).received.empty());
}

TEST(Faults, every_nth_message_is_lost) {
    Device device("faults.lose=3\n");
    for (int i = 0; i < 9; i++) {
        device.send(HOST, control(0), std::string(1, static_cast<char>('1' + i)));
    }
    EXPECT_EQ(device.run(), 0);
    std::string arrived;
    for (const Received &received : device.at(control(0)).received) {
        arrived += static_cast<char>(received.data[0]);
    }
    EXPECT_EQ(arrived, "124578");
}

TEST(Faults, every_nth_message_is_late) {
    Device device("faults.late=2:5000\n");
    device.send(control(0), pe(0, 0, 0), "a");
    device.send(control(0), pe(0, 1, 0), "b");
    EXPECT_EQ(device.run(), 0);
    EXPECT_EQ(device.at(pe(0, 0, 0)).received.at(0).time, hops::over_noc(1));
    EXPECT_EQ(device.at(pe(0, 1, 0)).received.at(0).time, hops::over_noc(1) + 5000000);
}

TEST(Faults, every_nth_message_is_damaged_and_says_so) {
    Device device("faults.corrupt=2\n");
    device.send(HOST, control(0), "hello");
    device.send(HOST, control(0), "hello");
    EXPECT_EQ(device.run(), 0);
    const auto &received = device.at(control(0)).received;
    EXPECT_FALSE(received.at(0).damaged);
    EXPECT_TRUE(received.at(1).damaged);
    EXPECT_NE(received.at(0).data, received.at(1).data);
}

TEST(Faults, a_slow_link_slows_what_passes_it) {
    Device device("faults.slow=noc:4,pcie:2\nmmu.walk_ns=0\nmmu.hit_ns=0\n");
    device.map(pe(0, 0, 0), {entry(VIRTUAL, 0, 320000, pe(0, 1, 0))});
    EXPECT_EQ(device.time_task(pe(0, 0, 0), {load(1, VIRTUAL, 320000)}),
              20000u + 118000 + 80000 + transfer_ps(320000, 32));
    device.send(HOST, control(0), std::string(64, 'x'));
    const uint64_t begin = device.now();
    EXPECT_EQ(device.run(), 0);
    EXPECT_EQ(device.at(control(0)).received.at(0).time - begin,
              hops::to_control(64) + transfer_ps(64, 32));
}

TEST(Faults, all_at_once_still_end) {
    Device device("faults.dead=0.0.0\nfaults.lose=3\nfaults.late=2:7\nfaults.corrupt=5\n"
                  "faults.slow=noc:3,hbm:2\n");
    for (int i = 0; i < 100; i++) {
        device.send(HOST, pe(0, static_cast<uint16_t>(i % 2), static_cast<uint16_t>(i % 3)), "x",
                    1000);
        device.replay(pe(0, 1, 0), {load(1, 0, 5000), wait(1), store(2, 0, 5000)});
    }
    EXPECT_EQ(device.run(), 0);
    EXPECT_EQ(device.at(pe(0, 1, 0)).replayed.size(), 100u);
}

TEST(Faults, nodes_that_do_not_exist_are_ignored) {
    Device device;
    device.send(HOST, pe(0, 0, 3), "x");
    device.send(pe(5, 0, 0), HOST, "x");
    device.send(HOST, {7, 0, 0, 0}, "x");
    device.platform->after(device.platform->self, pe(0, 9, 0), 1, 1);
    device.replay(pe(0, 9, 0), {compute(1)});
    EXPECT_EQ(device.run(), 0);
    EXPECT_EQ(device.now(), 0u);
}

} // namespace kernloom::testing
