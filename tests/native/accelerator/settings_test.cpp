// Settings that make no device are refused by the key that a user types, with the reason.
#include <gtest/gtest.h>

#include "device.hpp"

namespace kernloom::testing {

namespace {

std::string problem_of(const std::string &overrides) {
    char problem[256] = "";
    struct kl_platform *platform =
        kl_platform()->open((SMALL + overrides).c_str(), problem, sizeof problem);
    if (platform != nullptr) {
        kl_platform()->close(platform);
        return "";
    }
    return problem;
}

} // namespace

TEST(Settings, what_makes_no_device_is_refused) {
    const std::pair<const char *, const char *> cases[] = {
        {"topology.pes.matrix=0\ntopology.pes.vector=0\n", "arch.topology.pes: there is no PE"},
        {"topology.cubes=0\n", "arch.topology.cubes: must be above 0"},
        {"topology.sips=\n", "arch.topology.sips: is no whole number: "},
        {"topology.pes.scalar=1\n",
         "arch.topology.pes.scalar: there is no such core type; there are matrix, vector"},
        {"topology.pes.vector=64\n", "arch.topology.pes: a cube has at most 64 PEs"},
        {"topology.sips=1000\ntopology.cubes=1000\n", "arch.topology: more than 65536 PEs"},
        {"hbm.bandwidth=0\n", "arch.hbm.bandwidth: must be above 0"},
        {"hbm.bandwidth=fast\n", "arch.hbm.bandwidth: is no number: fast"},
        {"hbm.bandwidth=nan\n", "arch.hbm.bandwidth: is no number: nan"},
        {"hbm.bandwidth=inf\n", "arch.hbm.bandwidth: is too large: inf"},
        {"hbm.bytes=1GiB\n", "arch.hbm.bytes: is no whole number: 1GiB"},
        {"hbm.channels=65\n", "arch.hbm.channels: must be between 1 and 64, not 65"},
        {"links.noc.bandwidth=0\n", "arch.links.noc.bandwidth: must be above 0"},
        {"links.pcie.latency_ns=-1\n", "arch.links.pcie.latency_ns: must not be negative"},
        {"dma.engines=0\n", "arch.dma.engines: must be above 0"},
        {"clock.core_mhz=0\n", "arch.clock.core_mhz: must be above 0"},
        {"mmu.page=0\n", "arch.mmu.page: must be above 0"},
        {"faults.dead=0.0\n", "target.options.dead: must be SIP.CUBE.PE, not 0.0"},
        {"faults.dead=0.0.1,0.5.0\n", "target.options.dead: there is no PE 0.5.0"},
        {"faults.late=3\n", "target.options.late: must be N:NS, not 3"},
        {"faults.slow=usb:2\n", "target.options.slow: there is no link usb; there are pcie, "
                                "io_cpu, management, noc, sip, hbm"},
        {"faults.slow=noc:0\n",
         "target.options.slow: must be LINK:FACTOR with a factor from 1, not noc:0"},
        {"threads=0\n", "target.options.threads: must be above 0"},
        {"threads=65\n", "target.options.threads: must be between 1 and 64, not 65"},
    };
    for (const auto &[overrides, expected] : cases) {
        EXPECT_EQ(problem_of(overrides), expected);
    }
}

TEST(Settings, what_is_missing_is_named) {
    char problem[256] = "";
    EXPECT_EQ(kl_platform()->open("topology.sips=1\n", problem, sizeof problem), nullptr);
    EXPECT_STREQ(problem, "arch.topology.cubes: is missing");
}

TEST(Settings, unknown_keys_are_ignored) {
    EXPECT_EQ(problem_of("future.key=1\nno equals sign\n\n"), "");
}

TEST(Settings, programs_see_what_they_need) {
    Device device("topology.pes.matrix=2\nhbm.latency_ns=0.5\n");
    const kl_arch &arch = *device.platform->arch;
    EXPECT_EQ(arch.pes, 4u);
    EXPECT_EQ(arch.core_types[1], KL_CORE_MATRIX);
    EXPECT_EQ(arch.core_types[2], KL_CORE_VECTOR);
    EXPECT_EQ(arch.core_period_ps, 500u);
    EXPECT_EQ(arch.rates[KL_CORE_MATRIX][KL_UNIT_MATRIX][KL_DTYPE_FLOAT32], 2048);
    EXPECT_EQ(arch.rates[KL_CORE_VECTOR][KL_UNIT_MATRIX][KL_DTYPE_FLOAT32], 0);
    EXPECT_EQ(arch.complete_ps, 600000u);
    EXPECT_EQ(arch.unit_startup_cycles[KL_UNIT_MATRIX], 32u);
}

} // namespace kernloom::testing
