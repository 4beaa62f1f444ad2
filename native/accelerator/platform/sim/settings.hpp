// The device that settings describe: lines `key=value`, which are configs/arch flattened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernloom/platform.h"

namespace kernloom {

enum class LinkKind : uint8_t { PCIE, IO_CPU, MANAGEMENT, NOC, SIP };
constexpr uint32_t LINK_KINDS = 5;
constexpr const char *LINK_NAMES[LINK_KINDS] = {"pcie", "io_cpu", "management", "noc", "sip"};

struct LinkCosts {
    uint64_t latency_ps = 0;
    double bandwidth = 0; // bytes per nanosecond, in each direction
};

// What goes wrong on purpose.
struct Faults {
    std::vector<kl_node> dead;
    uint64_t lose = 0; // every how many messages; 0: none
    uint64_t late = 0;
    uint64_t late_ps = 0;
    uint64_t corrupt = 0;
};

// What takes no time, to find out what limits.
enum Infinite : uint32_t { INFINITE_COMPUTE = 1 };

struct Settings {
    kl_arch arch = {};
    uint64_t core_khz = 0;

    double hbm_bandwidth = 0; // of a cube
    uint32_t hbm_channels = 0;
    uint64_t hbm_interleave = 0;
    uint64_t hbm_latency_ps = 0;

    uint32_t sram_banks = 0;
    double sram_bank_bandwidth = 0;
    uint64_t sram_latency_ps = 0;

    uint32_t tlb_entries = 0;
    uint32_t walkers = 0; // of a cube
    uint64_t walk_ps = 0;
    uint64_t hit_ps = 0;

    uint32_t engines = 0; // of a PE
    double engine_bandwidth = 0;
    uint64_t issue_ps = 0;

    LinkCosts links[LINK_KINDS];
    Faults faults;
    uint32_t threads = 1;     // that record kernels; 1: the simulation's own
    uint32_t trace_level = 0; // 0: no trace
    bool times = false;       // of every task, for the critical path
    bool each_pe = false;     // each of them in reports
    uint32_t infinite = 0;    // bits of enum Infinite

    uint32_t pes() const {
        return arch.sips * arch.cubes * arch.pes;
    }
};

// False and `key: what is wrong`, with the key that a user types, if no device can be made of the
// text.
bool parse_settings(const char *text, Settings &settings, std::string &problem);

} // namespace kernloom
