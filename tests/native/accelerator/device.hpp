// A simulated device whose programs only record what happens to them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "simulator.hpp"

#include "kernloom/platform.h"

extern "C" const struct kl_platform_library *kl_platform(void);

namespace kernloom::testing {

struct Received {
    uint64_t time;
    kl_node from;
    std::vector<unsigned char> data;
    uint64_t bulk;
    bool damaged;
};

// The state of a program on a node.
struct Recorder {
    const struct kl_platform *platform;
    kl_node node;
    std::vector<Received> received;
    std::vector<std::pair<uint64_t, uint64_t>> replayed; // task, time
    std::vector<std::pair<uint64_t, uint64_t>> timers;   // token, time
};

inline void *open_recorder(const struct kl_platform *platform, kl_node node, const char *) {
    return new Recorder{platform, node, {}, {}, {}};
}

inline uint64_t time_of(const Recorder &recorder) {
    return recorder.platform->now(recorder.platform->self);
}

inline void record_message(void *state, const kl_delivery *delivery) {
    auto &recorder = *static_cast<Recorder *>(state);
    const auto *data = static_cast<const unsigned char *>(delivery->message);
    recorder.received.push_back({time_of(recorder),
                                 delivery->from,
                                 {data, data + delivery->bytes},
                                 delivery->bulk,
                                 delivery->damaged != 0});
}

inline void record_timer(void *state, uint64_t token) {
    auto &recorder = *static_cast<Recorder *>(state);
    recorder.timers.emplace_back(token, time_of(recorder));
}

inline void record_replayed(void *state, uint64_t task) {
    auto &recorder = *static_cast<Recorder *>(state);
    recorder.replayed.emplace_back(task, time_of(recorder));
}

inline void close_recorder(void *state) {
    delete static_cast<Recorder *>(state);
}

constexpr kl_program recorder_program(uint32_t kind) {
    return {KL_PLATFORM_ABI, sizeof(struct kl_program),
            "recorder",      kind,
            open_recorder,   record_message,
            record_timer,    record_replayed,
            close_recorder};
}

inline constexpr struct kl_program RECORDERS[3] = {recorder_program(KL_NODE_HOST),
                                                   recorder_program(KL_NODE_CONTROL),
                                                   recorder_program(KL_NODE_PE)};

// Two cubes of one matrix and two vector PEs. Numbers are chosen so that each cost can be told from
// the others in a sum.
inline const char *const SMALL = R"(topology.sips=1
topology.cubes=2
topology.pes.matrix=1
topology.pes.vector=2
clock.core_mhz=2000
hbm.bytes=1073741824
hbm.bandwidth=128
hbm.channels=4
hbm.interleave=4096
hbm.latency_ns=110
sram.bytes=524288
sram.banks=16
sram.bank_bandwidth=32
sram.latency_ns=8
mmu.page=2097152
mmu.tlb_entries=64
mmu.walkers=2
mmu.walk_ns=240
mmu.hit_ns=2
dma.engines=2
dma.bandwidth=96
dma.issue_ns=20
links.pcie.latency_ns=500
links.pcie.bandwidth=32
links.io_cpu.latency_ns=200
links.io_cpu.bandwidth=32
links.management.latency_ns=100
links.management.bandwidth=64
links.noc.latency_ns=40
links.noc.bandwidth=128
links.sip.latency_ns=400
links.sip.bandwidth=50
compute.matrix.matrix.float32=2048
compute.vector.vector.float32=128
compute.startup_cycles.matrix=32
control.submit_ns=750
control.dispatch_ns=140
control.complete_ns=600
control.switch_ns=800
control.register_store_ns=5
control.register_load_ns=100
)";

constexpr kl_node HOST = {KL_NODE_HOST, 0, 0, 0};

constexpr kl_node control(uint16_t sip) {
    return {KL_NODE_CONTROL, sip, 0, 0};
}

constexpr kl_node pe(uint16_t sip, uint16_t cube, uint16_t number) {
    return {KL_NODE_PE, sip, cube, number};
}

class Device {
  public:
    // Later lines override earlier ones.
    explicit Device(const std::string &overrides = "") {
        char problem[256] = "";
        platform = kl_platform()->open((SMALL + overrides).c_str(), problem, sizeof problem);
        if (platform == nullptr) {
            std::fprintf(stderr, "%s\n", problem);
            std::abort();
        }
        for (const struct kl_program &program : RECORDERS) {
            kl_platform()->attach(platform, &program, problem, sizeof problem);
        }
    }

    ~Device() {
        kl_platform()->close(platform);
    }

    Device(const Device &) = delete;

    Recorder &at(kl_node node) {
        return *static_cast<Recorder *>(kl_platform()->program_state(platform, node));
    }

    Simulator &simulator() {
        return *static_cast<Simulator *>(platform->self);
    }

    uint64_t now() {
        return platform->now(platform->self);
    }

    int run() {
        return platform->run(platform->self);
    }

    bool map(kl_node node, const std::vector<kl_map_entry> &entries) {
        return platform->mmu_map(platform->self, node, entries.data(), entries.size()) != 0;
    }

    void replay(kl_node node, const std::vector<kl_action> &actions, uint64_t task = 1) {
        platform->replay(platform->self, node, task, "task", actions.data(), actions.size());
    }

    // How long one task takes on a device that does nothing else.
    uint64_t time_task(kl_node node, const std::vector<kl_action> &actions) {
        const uint64_t begin = now();
        replay(node, actions);
        run();
        return at(node).replayed.back().second - begin;
    }

    void send(kl_node from, kl_node to, const std::string &text, uint64_t bulk = 0) {
        platform->send(platform->self, from, to, text.data(), text.size(), bulk);
    }

    std::string trace() {
        size_t bytes = 0;
        const char *text = kl_platform()->trace(platform, &bytes);
        return {text, bytes};
    }

    std::string report() {
        size_t bytes = 0;
        const char *text = kl_platform()->report(platform, &bytes);
        return {text, bytes};
    }

    // The value of a line of the report.
    std::string reported(const std::string &key) {
        const std::string text = "\n" + report();
        const size_t at = text.find("\n" + key + "=");
        if (at == std::string::npos) {
            return "";
        }
        const size_t begin = at + key.size() + 2;
        return text.substr(begin, text.find('\n', begin) - begin);
    }

    struct kl_platform *platform;
};

inline kl_action copy(uint32_t kind, uint32_t tag, uint64_t address, uint64_t bytes,
                      uint64_t sram = 0) {
    kl_action action = {};
    action.kind = kind;
    action.tag = tag;
    action.address = address;
    action.sram = sram;
    action.rows = {1, bytes, bytes, bytes};
    return action;
}

inline kl_action load(uint32_t tag, uint64_t address, uint64_t bytes, uint64_t sram = 0) {
    return copy(KL_ACTION_LOAD, tag, address, bytes, sram);
}

inline kl_action store(uint32_t tag, uint64_t address, uint64_t bytes, uint64_t sram = 0) {
    return copy(KL_ACTION_STORE, tag, address, bytes, sram);
}

inline kl_action wait(uint32_t tag) {
    kl_action action = {};
    action.kind = KL_ACTION_WAIT;
    action.tag = tag;
    return action;
}

inline kl_action compute(uint64_t cycles, uint32_t unit = KL_UNIT_VECTOR) {
    kl_action action = {};
    action.kind = KL_ACTION_COMPUTE;
    action.unit = unit;
    action.cycles = cycles;
    return action;
}

inline kl_map_entry entry(uint64_t address, uint64_t physical, uint64_t bytes, kl_node owner) {
    return {address, physical, bytes, owner.sip, owner.cube, owner.pe, 0};
}

// bytes / (gigabytes per second) in picoseconds, to the nearest.
constexpr uint64_t transfer_ps(uint64_t bytes, uint64_t bandwidth) {
    return (2 * bytes * 1000 + bandwidth) / (2 * bandwidth);
}

constexpr uint64_t VIRTUAL = KL_VIRTUAL_BASE;

} // namespace kernloom::testing
