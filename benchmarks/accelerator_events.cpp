// Events per second of CPU time: every PE runs tasks that load tiles, compute and store, dispatched
// and completed by messages.
//
//   events SETTINGS [TASKS [REMOTE [TRACE]]]
//     SETTINGS  file of `key=value` lines
//     TASKS     of each PE
//     REMOTE    how many of 8 tiles lie in another cube
//     TRACE     file for the trace, with the setting trace=1
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "kernloom/platform.h"

extern "C" const struct kl_platform_library *kl_platform(void);

namespace {

constexpr uint64_t TILE = 32768;
constexpr uint32_t TILES = 8;
constexpr uint64_t REGION = 64 * TILE;
constexpr kl_node CONTROL = {KL_NODE_CONTROL, 0, 0, 0};

struct Dispatch {
    uint64_t tasks;
    uint64_t remote;
};

// A program's state: on the control node what is left to dispatch, on a PE its recorded task.
struct State {
    const struct kl_platform *platform;
    kl_node node;
    std::vector<uint64_t> left;
    std::vector<kl_action> actions;
};

uint32_t pe_number(const kl_arch &arch, kl_node pe) {
    return pe.cube * arch.pes + pe.pe;
}

void *open_state(const struct kl_platform *platform, kl_node node, const char *) {
    return new State{platform, node, {}, {}};
}

void close_state(void *state) {
    delete static_cast<State *>(state);
}

void dispatch(State &control, kl_node pe, Dispatch message) {
    control.platform->send(control.platform->self, CONTROL, pe, &message, sizeof message, 0);
}

// From the host: start all PEs. From a PE: its task is complete.
void control_receive(void *opaque, const kl_delivery *delivery) {
    State &state = *static_cast<State *>(opaque);
    const kl_arch &arch = *state.platform->arch;
    const Dispatch message = *static_cast<const Dispatch *>(delivery->message);
    if (delivery->from.kind == KL_NODE_HOST) {
        state.left.assign(arch.cubes * arch.pes, message.tasks);
        for (uint16_t cube = 0; cube < arch.cubes; cube++) {
            for (uint16_t pe = 0; pe < arch.pes; pe++) {
                dispatch(state, {KL_NODE_PE, 0, cube, pe}, message);
            }
        }
    } else if (--state.left[pe_number(arch, delivery->from)] > 0) {
        dispatch(state, delivery->from, message);
    }
}

kl_action copy(uint32_t kind, uint32_t tag, uint64_t address, uint64_t sram) {
    kl_action action = {};
    action.kind = kind;
    action.tag = tag;
    action.address = address;
    action.sram = sram;
    action.rows = {64, TILE / 64, TILE / 32, TILE / 64};
    return action;
}

// Two buffers: a tile is loaded while the one before is computed.
void record(State &state, uint64_t remote) {
    kl_action wait = {};
    wait.kind = KL_ACTION_WAIT;
    kl_action compute = {};
    compute.kind = KL_ACTION_COMPUTE;
    compute.unit = KL_UNIT_VECTOR;
    const auto load = [&](uint32_t tile) {
        const uint64_t base = KL_VIRTUAL_BASE + (tile < remote ? REGION : 0);
        state.actions.push_back(
            copy(KL_ACTION_LOAD, tile, base + tile * 2 * TILE, tile % 2 * TILE));
    };
    load(0);
    for (uint32_t tile = 0; tile < TILES; tile++) {
        wait.tag = tile;
        state.actions.push_back(wait);
        if (tile + 1 < TILES) {
            load(tile + 1);
        }
        compute.cycles = 900 + 37 * ((pe_number(*state.platform->arch, state.node) + tile) % 11);
        state.actions.push_back(compute);
        state.actions.push_back(copy(KL_ACTION_STORE, TILES + tile,
                                     KL_VIRTUAL_BASE + 2 * REGION + tile * 2 * TILE,
                                     (2 + tile % 2) * TILE));
    }
}

void pe_receive(void *opaque, const kl_delivery *delivery) {
    State &state = *static_cast<State *>(opaque);
    const struct kl_platform &platform = *state.platform;
    const Dispatch message = *static_cast<const Dispatch *>(delivery->message);
    if (state.actions.empty()) {
        const kl_node me = state.node;
        const auto other =
            static_cast<uint16_t>((me.cube + 1u + 5u * me.pe) % platform.arch->cubes);
        const kl_map_entry entries[] = {
            {KL_VIRTUAL_BASE, 0, REGION, 0, me.cube, me.pe, 0},
            {KL_VIRTUAL_BASE + REGION, REGION, REGION, 0, other, me.pe, 0},
            {KL_VIRTUAL_BASE + 2 * REGION, 2 * REGION, REGION, 0, me.cube, me.pe, 0},
        };
        platform.mmu_map(platform.self, me, entries, 3);
        record(state, message.remote);
    }
    platform.replay(platform.self, state.node, message.remote, "tile", state.actions.data(),
                    state.actions.size());
}

void pe_replayed(void *opaque, uint64_t remote) {
    const State &state = *static_cast<State *>(opaque);
    const Dispatch message = {0, remote};
    state.platform->send(state.platform->self, state.node, CONTROL, &message, sizeof message, 0);
}

std::string read_file(const char *path) {
    std::string text;
    std::FILE *file = std::fopen(path, "r");
    if (file == nullptr) {
        return text;
    }
    char buffer[4096];
    for (size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;) {
        text.append(buffer, got);
    }
    std::fclose(file);
    return text;
}

bool write_trace(const kl_platform_library &library, struct kl_platform *platform,
                 const char *path) {
    size_t bytes = 0;
    const char *text = library.trace(platform, &bytes);
    std::FILE *file = std::fopen(path, "w");
    if (file == nullptr) {
        return false;
    }
    const bool whole = std::fwrite(text, 1, bytes, file) == bytes;
    return std::fclose(file) == 0 && whole;
}

double cpu_seconds() {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

} // namespace

int main(int count, char **arguments) {
    if (count < 2) {
        std::fprintf(stderr, "events SETTINGS [TASKS [REMOTE [TRACE]]]\n");
        return 2;
    }
    const kl_program control = {KL_PLATFORM_ABI, sizeof control, "control",
                                KL_NODE_CONTROL, open_state,     control_receive,
                                nullptr,         nullptr,        close_state};
    const kl_program core = {KL_PLATFORM_ABI, sizeof core, "core",      KL_NODE_PE, open_state,
                             pe_receive,      nullptr,     pe_replayed, close_state};
    char problem[256];
    const kl_platform_library &library = *kl_platform();
    struct kl_platform *platform =
        library.open(read_file(arguments[1]).c_str(), problem, sizeof problem);
    if (platform == nullptr || !library.attach(platform, &control, problem, sizeof problem) ||
        !library.attach(platform, &core, problem, sizeof problem)) {
        std::fprintf(stderr, "%s\n", problem);
        return 1;
    }
    Dispatch start = {1000, 2};
    if (count > 2) {
        start.tasks = std::strtoull(arguments[2], nullptr, 10);
    }
    if (count > 3) {
        start.remote = std::strtoull(arguments[3], nullptr, 10);
    }
    library.begin_report(platform);
    const double begin = cpu_seconds();
    platform->send(platform->self, {KL_NODE_HOST, 0, 0, 0}, CONTROL, &start, sizeof start, 0);
    platform->run(platform->self);
    const double seconds = cpu_seconds() - begin;
    size_t bytes = 0;
    const std::string report = "\n" + std::string(library.report(platform, &bytes));
    const size_t at = report.find("\nevents=");
    const double events = std::strtod(report.c_str() + at + 8, nullptr);
    std::printf("%scpu_seconds=%.3f\nevents_per_second=%.0f\n", report.c_str() + 1, seconds,
                events / seconds);
    const bool written = count <= 4 || write_trace(library, platform, arguments[4]);
    library.close(platform);
    return written ? 0 : 1;
}
