// The library: the simulator behind the platform's ABI.
#include "simulator.hpp"

#include <cstdio>
#include <new>

namespace kernloom {

namespace {

Simulator &simulator(void *self) {
    return *static_cast<Simulator *>(self);
}

Simulator &simulator(struct kl_platform *platform) {
    return simulator(platform->self);
}

void report_problem(char *problem, size_t bytes, const std::string &text) {
    if (problem != nullptr && bytes > 0) {
        std::snprintf(problem, bytes, "%s", text.c_str());
    }
}

int write_memory(void *self, kl_node pe, uint64_t address, const void *from, uint64_t bytes) {
    Memory *memory = simulator(self).memory(pe, address);
    return memory != nullptr && memory->write(address, from, bytes);
}

int read_memory(void *self, kl_node pe, uint64_t address, void *to, uint64_t bytes) {
    const Memory *memory = simulator(self).memory(pe, address);
    return memory != nullptr && memory->read(address, to, bytes);
}

int fill_memory(void *self, kl_node pe, uint64_t address, int value, uint64_t bytes) {
    Memory *memory = simulator(self).memory(pe, address);
    return memory != nullptr && memory->fill(address, value, bytes);
}

int load(void *self, kl_node pe, void *to, uint64_t from, const kl_rows *rows, kl_fault *fault) {
    kl_fault found = {};
    const bool good = simulator(self).load(pe, to, from, *rows, found);
    if (fault != nullptr) {
        *fault = found;
    }
    return good;
}

int store(void *self, kl_node pe, uint64_t to, const void *from, const kl_rows *rows,
          kl_fault *fault) {
    kl_fault found = {};
    const bool good = simulator(self).store(pe, to, from, *rows, found);
    if (fault != nullptr) {
        *fault = found;
    }
    return good;
}

struct kl_platform *open(const char *text, char *problem, size_t problem_bytes) {
    Settings settings;
    std::string wrong;
    if (!parse_settings(text, settings, wrong)) {
        report_problem(problem, problem_bytes, wrong);
        return nullptr;
    }
    Simulator *created = nullptr;
    try {
        created = new Simulator(settings, text);
    } catch (const std::bad_alloc &) {
        report_problem(problem, problem_bytes, "arch.topology: this machine has too little memory");
        return nullptr;
    }
    struct kl_platform &table = created->table;
    table.abi = KL_PLATFORM_ABI;
    table.bytes = sizeof table;
    table.self = created;
    table.arch = &created->arch();
    table.now = [](void *self) { return simulator(self).now(); };
    table.send = [](void *self, kl_node from, kl_node to, const void *message, size_t bytes,
                    uint64_t bulk) { simulator(self).send(from, to, message, bytes, bulk); };
    table.after = [](void *self, kl_node node, uint64_t delay_ps, uint64_t token) {
        simulator(self).after(node, delay_ps, token);
    };
    table.run = [](void *self) -> int { return simulator(self).run(); };
    table.stop = [](void *self) { simulator(self).stop(); };
    table.memory_write = write_memory;
    table.memory_read = read_memory;
    table.memory_fill = fill_memory;
    table.mmu_map = [](void *self, kl_node pe, const kl_map_entry *entries, size_t count) -> int {
        return simulator(self).map(pe, entries, count);
    };
    table.mmu_unmap = [](void *self, kl_node pe, uint64_t address, uint64_t bytes) -> int {
        return simulator(self).unmap(pe, address, bytes);
    };
    table.load = load;
    table.store = store;
    table.replay = [](void *self, kl_node pe, uint64_t task, const char *label,
                      const kl_action *actions,
                      size_t count) { simulator(self).replay(pe, task, label, actions, count); };
    table.meet = [](void *self, kl_node pe, uint64_t group, uint32_t count, uint64_t token) {
        simulator(self).meet(pe, group, count, token);
    };
    table.waiting = [](void *self, uint32_t core_type, uint32_t why) {
        simulator(self).waiting(core_type, why);
    };
    table.dispatched = [](void *self, kl_node pe) { simulator(self).dispatched(pe); };
    table.begin_launch = [](void *self) { simulator(self).begin_report(); };
    table.path = [](void *self, const kl_stretch *stretches, size_t count) {
        simulator(self).path(stretches, count);
    };
    table.note = [](void *self, const char *lines) { simulator(self).note(lines); };
    table.trace = [](void *self, kl_node node, const char *name, uint64_t begin_ps,
                     uint64_t end_ps) { simulator(self).slice(node, name, begin_ps, end_ps); };
    table.flow = [](void *self, kl_node from, uint64_t from_ps, kl_node to, uint64_t to_ps) {
        simulator(self).flow(from, from_ps, to, to_ps);
    };
    table.counter = [](void *self, kl_node node, const char *name, uint64_t value) {
        simulator(self).count(node, name, value);
    };
    table.start_work = [](void *self, kl_node pe, void (*work)(void *), void *context) {
        simulator(self).start_work(pe, work, context);
    };
    table.finish_work = [](void *self, kl_node pe) { simulator(self).finish_work(pe); };
    return &table;
}

int attach(struct kl_platform *platform, const struct kl_program *program, char *problem,
           size_t problem_bytes) {
    std::string wrong;
    if (simulator(platform).attach(program, wrong)) {
        return 1;
    }
    report_problem(problem, problem_bytes, wrong);
    return 0;
}

void *program_state(struct kl_platform *platform, kl_node node) {
    return simulator(platform).state(node);
}

const char *trace(struct kl_platform *platform, size_t *bytes) {
    const std::string &text = simulator(platform).trace_text();
    *bytes = text.size();
    return text.c_str();
}

void begin_report(struct kl_platform *platform) {
    simulator(platform).begin_report();
}

const char *report(struct kl_platform *platform, size_t *bytes) {
    const std::string &text = simulator(platform).report();
    *bytes = text.size();
    return text.c_str();
}

void close(struct kl_platform *platform) {
    delete &simulator(platform);
}

constexpr kl_platform_library LIBRARY = {
    KL_PLATFORM_ABI, sizeof(kl_platform_library),
    "sim",           open,
    attach,          program_state,
    trace,           begin_report,
    report,          close,
};

} // namespace

} // namespace kernloom

extern "C" __attribute__((visibility("default"))) const struct kl_platform_library *
kl_platform(void) {
    return &kernloom::LIBRARY;
}
