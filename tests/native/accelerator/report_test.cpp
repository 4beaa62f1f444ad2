// Where the time goes, what passes the links, and the trace.
#include <gtest/gtest.h>

#include <numeric>

#include "device.hpp"

namespace kernloom::testing {

namespace {

// Some of everything: local and remote copies, computing, messages, timers.
void mixed_load(Device &device, uint16_t sips) {
    for (uint16_t s = 0; s < sips; s++) {
        for (uint16_t c = 0; c < 2; c++) {
            for (uint16_t p = 0; p < 3; p++) {
                const kl_node node = pe(s, c, p);
                const kl_node other = pe(static_cast<uint16_t>((s + 1) % sips), c ^ 1, p);
                device.map(node, {entry(VIRTUAL, 0, 1 << 24, node),
                                  entry(VIRTUAL + (1 << 24), 0, 1 << 24, other)});
                for (uint64_t i = 0; i < 6; i++) {
                    const uint64_t at = VIRTUAL + i * 5000000 + 333 * p;
                    device.replay(node,
                                  {load(1, at, 30000 + 1000 * i), load(2, at + 77, 5000),
                                   load(3, at + 4096, 200), wait(1), compute(3000 + 100 * p),
                                   wait(2), wait(3), store(4, at + (1 << 20), 20000)},
                                  i);
                }
                device.send(HOST, node, std::string(90, 'x'), 5000);
                device.send(control(s), node, "dispatch");
                device.send(node, control(s), "complete");
                device.send(node, other, "peer");
            }
        }
    }
}

std::string mixed_trace() {
    Device device("topology.sips=2\ntrace=1\n");
    mixed_load(device, 2);
    device.run();
    return device.trace();
}

} // namespace

TEST(Report, every_picosecond_of_every_pe_has_a_cause) {
    Device device("topology.sips=2\n");
    mixed_load(device, 2);
    device.run();
    for (const Accounts::Pe &pe : device.simulator().settled_accounts().pes()) {
        EXPECT_EQ(std::accumulate(pe.spent.begin(), pe.spent.end(), uint64_t{0}), device.now());
        EXPECT_GT(pe.spent[static_cast<uint32_t>(Cause::COMPUTE_VECTOR)], 0u);
        EXPECT_GT(pe.spent[static_cast<uint32_t>(Cause::TRANSLATION)], 0u);
    }
}

TEST(Report, time_is_split_into_its_phases) {
    Device device;
    device.map(pe(0, 0, 0), {entry(VIRTUAL, 0, 1 << 20, pe(0, 0, 0))});
    device.time_task(pe(0, 0, 0),
                     {load(1, VIRTUAL, 96000), wait(1), compute(100), compute(50, KL_UNIT_MATRIX)});
    const auto &spent = device.simulator().settled_accounts().pes()[0].spent;
    const auto of = [&](Cause cause) { return spent[static_cast<uint32_t>(cause)]; };
    EXPECT_EQ(of(Cause::DMA), 20000u + 118000 + 1000000);
    EXPECT_EQ(of(Cause::TRANSLATION), 242000u);
    EXPECT_EQ(of(Cause::COMPUTE_VECTOR), 50000u);
    EXPECT_EQ(of(Cause::COMPUTE_MATRIX), 25000u);
    EXPECT_EQ(of(Cause::NO_WORK), 0u);
}

TEST(Report, shares_add_up_to_one) {
    Device device("topology.sips=2\n");
    mixed_load(device, 2);
    device.run();
    double sum = 0;
    for (const char *name : CAUSE_NAMES) {
        sum += std::stod(device.reported(std::string("share.") + name));
    }
    EXPECT_NEAR(sum, 1, 0.001);
}

TEST(Report, the_limiter_is_named) {
    const auto limiter = [](const std::string &overrides, const std::vector<kl_action> &task,
                            kl_node owner = pe(0, 0, 0)) {
        Device device(overrides);
        for (uint16_t p = 0; p < 3; p++) {
            device.map(pe(0, 0, p), {entry(VIRTUAL, 0, 1 << 20, owner)});
            device.replay(pe(0, 0, p), task);
        }
        device.run();
        return device.reported("limiter");
    };
    const std::vector<kl_action> copying = {load(1, VIRTUAL, 400000), wait(1)};
    EXPECT_EQ(limiter("", copying), "hbm");
    EXPECT_EQ(limiter("hbm.bandwidth=1000\n", copying), "dma");
    EXPECT_EQ(limiter("", {load(1, VIRTUAL, 400), wait(1), compute(99999)}), "compute.vector");
    EXPECT_EQ(limiter("", {compute(99999, KL_UNIT_MATRIX)}), "compute.matrix");
    EXPECT_EQ(limiter("links.noc.bandwidth=10\n", copying, pe(0, 1, 0)), "noc");
    EXPECT_EQ(limiter("topology.sips=2\nlinks.sip.bandwidth=10\n", copying, pe(1, 1, 0)), "sip");
    EXPECT_EQ(limiter("sram.bank_bandwidth=1\nhbm.bandwidth=1000\n", copying), "sram");
    EXPECT_EQ(limiter("mmu.walk_ns=1000000\n", copying), "translation");
    Device control_only;
    control_only.send(control(0), pe(0, 0, 0), "x");
    control_only.run();
    EXPECT_EQ(control_only.reported("limiter"), "scheduler");
    Device writing;
    writing.send(HOST, control(0), "x", 1000);
    writing.run();
    EXPECT_EQ(writing.reported("limiter"), "pcie");
}

TEST(Report, counts_begin_with_begin_report) {
    Device device;
    device.time_task(pe(0, 0, 0), {load(1, 0, 1000), compute(10)});
    kl_platform()->begin_report(device.platform);
    EXPECT_EQ(device.reported("virtual_ps"), "0");
    device.time_task(pe(0, 0, 0), {store(1, 0, 500, 1500), compute(10)});
    EXPECT_EQ(device.reported("virtual_ps"), std::to_string(138000 + transfer_ps(500, 32)));
    EXPECT_EQ(device.reported("bytes.hbm"), "500");
    EXPECT_EQ(device.reported("tasks"), "1");
    EXPECT_EQ(device.reported("peak.sram"), "2000");
    EXPECT_LT(device.report().size(), 2048u);
}

TEST(Report, utilisation_is_by_core_type) {
    Device device;
    device.replay(pe(0, 0, 0), {compute(1000, KL_UNIT_MATRIX)});
    device.replay(pe(0, 0, 1), {compute(1000)});
    device.run();
    EXPECT_EQ(device.reported("utilisation.matrix"), "0.5000");
    EXPECT_EQ(device.reported("utilisation.vector"), "0.2500");
}

TEST(Report, bytes_are_conserved_on_every_link) {
    Device device("topology.sips=2\n");
    mixed_load(device, 2);
    for (int i = 0; i < 5; i++) {
        device.send(pe(1, 1, 1), HOST, "answer", 123);
        device.send(HOST, control(1), "write", 5000);
    }
    device.run();
    const Simulator &simulator = device.simulator();
    for (const LinkKind kind : {LinkKind::NOC, LinkKind::SIP}) {
        EXPECT_GT(simulator.port_bytes(kind, true), 0u);
        EXPECT_EQ(simulator.port_bytes(kind, true), simulator.port_bytes(kind, false));
    }
    for (const bool down : {true, false}) {
        EXPECT_GT(simulator.port_bytes(LinkKind::PCIE, down), 0u);
        EXPECT_EQ(simulator.port_bytes(LinkKind::PCIE, down),
                  simulator.port_bytes(LinkKind::IO_CPU, down));
        EXPECT_EQ(simulator.port_bytes(LinkKind::PCIE, down),
                  simulator.port_bytes(LinkKind::MANAGEMENT, down));
    }
    EXPECT_EQ(device.reported("bytes.hbm"), device.reported("bytes.sram"));
    uint64_t copied = 0;
    for (uint64_t i = 0; i < 6; i++) {
        copied += 12 * (30000 + 1000 * i + 5000 + 200 + 20000);
    }
    EXPECT_EQ(device.reported("bytes.hbm"), std::to_string(copied));
}

TEST(Trace, is_byte_identical_in_every_run) {
    const std::string first = mixed_trace();
    EXPECT_GT(first.size(), 10000u);
    for (int i = 0; i < 5; i++) {
        EXPECT_EQ(mixed_trace(), first);
    }
}

TEST(Trace, shows_the_hops_of_a_message_and_nothing_else) {
    Device device("trace=1\n");
    device.send(HOST, pe(0, 1, 2), "hello");
    device.run();
    const std::string trace = device.trace();
    size_t hops = 0;
    for (size_t at = 0; (at = trace.find("\"name\":\"host to pe 0.1.2\"", at)) != std::string::npos;
         at++) {
        hops++;
    }
    EXPECT_EQ(hops, 4u);
    for (const char *track : {"pcie down", "io cpu down", "management down", "noc in"}) {
        EXPECT_NE(trace.find("\"args\":{\"name\":\"" + std::string(track) + "\"}"),
                  std::string::npos);
    }
    EXPECT_EQ(trace.find("noc out"), std::string::npos);
    EXPECT_NE(trace.find("\"ts\":0,\"dur\":0.500156,"), std::string::npos);
}

TEST(Trace, names_are_escaped) {
    Device device("trace=1\n");
    device.platform->trace(device.platform->self, HOST, "a\"b\\c\n", 1, 1000001);
    EXPECT_NE(device.trace().find("\"ts\":0.000001,\"dur\":1,\"name\":\"a\\\"b\\\\c\\u000a\""),
              std::string::npos);
}

TEST(Trace, is_empty_unless_asked_for) {
    Device device;
    mixed_load(device, 1);
    device.run();
    EXPECT_EQ(device.trace(), "");
}

} // namespace kernloom::testing
