// A ring of the tasks of one scope depth: slots, heap and dependency entries, which a task takes
// when it is submitted and which are given back in the same order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "kernloom/settings.hpp"
#include "transcript.hpp"

namespace kernloom::control {

constexpr std::uint32_t MOST_DEPTHS = 64;

enum Resource : std::uint32_t { SLOTS, HEAP, DEPENDENCIES, RESOURCES };

constexpr const char *RESOURCE_KEYS[RESOURCES] = {"runtime.ring.slots", "runtime.ring.heap",
                                                  "runtime.ring.dependencies"};
constexpr const char *RESOURCE_NAMES[RESOURCES] = {"slots", "heap", "dependencies"};

struct RingSizes {
    std::uint64_t size[RESOURCES];
    std::uint32_t depths;
};

inline RingSizes ring_sizes(const Settings &settings) {
    const std::uint64_t depths = ring_depths(settings);
    return {{ring_slots(settings), ring_heap(settings), ring_dependencies(settings)},
            depths < MOST_DEPTHS ? static_cast<std::uint32_t>(depths) : MOST_DEPTHS};
}

// What a task takes of its ring.
struct RingNeed {
    std::uint64_t size[RESOURCES];
};

// The ring of a task's scope depth.
inline std::uint32_t ring_of(const tasks::Transcript &transcript, const tasks::Task &task,
                             std::uint32_t depths) {
    const std::uint32_t depth = transcript.scopes[task.scope].depth;
    return depth < depths ? depth : depths - 1;
}

// Dependency entries: one for each region that later tasks are compared with, and for each task
// that it names.
inline std::uint64_t entries_of(const tasks::Task &task) {
    if (task.flags & tasks::TASK_BARRIER)
        return 1;
    return std::uint64_t{task.after} + (task.flags & tasks::TASK_MANUAL ? 0u : task.regions);
}

inline std::uint64_t heap_bytes(std::uint64_t bytes) {
    return (bytes + HEAP_ALIGNMENT - 1) / HEAP_ALIGNMENT * HEAP_ALIGNMENT;
}

// What the tasks of one ring hold. The heap is used round and round; outputs of one task are side
// by side, and what is too small for them at the end is skipped: it is taken as long as outputs
// before it are. So what is taken depends on the tasks in the ring alone, not on when others left.
class Ring {
  public:
    struct Entry {
        std::uint32_t task;
        std::uint32_t dependencies;
        std::uint64_t heap;
    };

    void reset(const RingSizes &sizes) {
        for (std::uint32_t i = 0; i < RESOURCES; i++)
            size_[i] = sizes.size[i];
        // Whole places only.
        size_[HEAP] = size_[HEAP] / HEAP_ALIGNMENT * HEAP_ALIGNMENT;
        for (std::uint64_t &used : used_)
            used = 0;
        for (std::uint32_t i = 0; i < RESOURCES; i++)
            peak_[i] = total_[i] = blocked_[i] = 0;
        skip_ = before_skip_ = 0;
        live_peak_ = largest_ = 0;
        next_ = 0;
        entries_.clear();
    }

    // RESOURCES if there is room for all that a task needs; else what there is too little of.
    Resource lacks(const RingNeed &need) const {
        if (used_[SLOTS] + 1 > size_[SLOTS])
            return SLOTS;
        if (used_[HEAP] + more(need, HEAP) > size_[HEAP])
            return HEAP;
        if (used_[DEPENDENCIES] + need.size[DEPENDENCIES] > size_[DEPENDENCIES])
            return DEPENDENCIES;
        return RESOURCES;
    }

    // Returns where its outputs are.
    std::uint64_t take(std::uint32_t task, const RingNeed &need) {
        const std::uint64_t at = next_ + need.size[HEAP] > size_[HEAP] ? 0 : next_;
        if (const std::uint64_t skip = need.size[HEAP] ? skipped(need) : 0) {
            skip_ = skip;
            before_skip_ = used_[HEAP];
            used_[HEAP] += skip;
        }
        if (need.size[HEAP])
            next_ = at + need.size[HEAP];
        entries_.push_back(
            {task, static_cast<std::uint32_t>(need.size[DEPENDENCIES]), need.size[HEAP]});
        used_[SLOTS]++;
        used_[HEAP] += need.size[HEAP];
        used_[DEPENDENCIES] += need.size[DEPENDENCIES];
        live_peak_ = std::max(live_peak_, used_[HEAP] - skip_);
        largest_ = need.size[HEAP] > largest_ ? need.size[HEAP] : largest_;
        for (std::uint32_t i = 0; i < RESOURCES; i++) {
            peak_[i] = used_[i] > peak_[i] ? used_[i] : peak_[i];
            total_[i] += need.size[i];
        }
        return at;
    }

    bool empty() const {
        return entries_.empty();
    }
    std::uint32_t oldest() const {
        return entries_.front().task;
    }
    void give_back() {
        const Entry &entry = entries_.front();
        used_[SLOTS]--;
        used_[HEAP] -= entry.heap;
        used_[DEPENDENCIES] -= entry.dependencies;
        if (skip_ && (before_skip_ -= entry.heap) == 0) {
            used_[HEAP] -= skip_;
            skip_ = 0;
        }
        entries_.pop_front();
    }

    std::uint64_t size(std::uint32_t resource) const {
        return size_[resource];
    }
    std::uint64_t used(std::uint32_t resource) const {
        return used_[resource];
    }
    std::uint64_t peak(std::uint32_t resource) const {
        return peak_[resource];
    }
    // A submission waits for this resource.
    void block(std::uint32_t resource) {
        blocked_[resource] = 1;
    }
    // A size with which the same tasks would not wait for this resource; if they did, twice as
    // much, at most what all of them take together.
    std::uint64_t advised(std::uint32_t resource) const {
        std::uint64_t enough = peak_[resource];
        if (blocked_[resource])
            enough = 2 * size_[resource];
        else if (resource == HEAP)
            // Outputs are side by side: some room is skipped where the ring begins again.
            enough = live_peak_ + 2 * largest_;
        return enough < total_[resource] ? enough : total_[resource];
    }
    // What a task needs of a resource beside what is used now.
    std::uint64_t more(const RingNeed &need, std::uint32_t resource) const {
        return need.size[resource] + (resource == HEAP && need.size[HEAP] ? skipped(need) : 0);
    }

  private:
    std::uint64_t skipped(const RingNeed &need) const {
        return used_[HEAP] && next_ + need.size[HEAP] > size_[HEAP] ? size_[HEAP] - next_ : 0;
    }

    std::uint64_t size_[RESOURCES] = {};
    std::uint64_t used_[RESOURCES] = {};
    std::uint64_t peak_[RESOURCES] = {};
    std::uint64_t total_[RESOURCES] = {}; // of all tasks
    std::uint64_t blocked_[RESOURCES] = {};
    std::uint64_t skip_ = 0;        // bytes at the end of the heap that are taken by nothing,
    std::uint64_t before_skip_ = 0; // as long as so many before them are
    std::uint64_t live_peak_ = 0;   // without what was skipped
    std::uint64_t largest_ = 0;
    std::uint64_t next_ = 0;
    std::deque<Entry> entries_;
};

// What a task takes. `output` is the place in the transcript's tensors from which its outputs are
// looked for; it moves behind them.
inline RingNeed need_of(const tasks::Transcript &transcript, std::uint32_t task,
                        std::uint32_t &output) {
    RingNeed need = {{1, 0, entries_of(transcript.tasks[task])}};
    for (; output < transcript.tensors.size() && transcript.tensors[output].producer == task;
         output++)
        need.size[HEAP] += heap_bytes(transcript.tensors[output].bytes);
    return need;
}

// The least size of each resource with which no ring of these tasks can come to a standstill. What
// tasks take at a moment does not matter, only what is held when all that is submitted has ended:
// tasks with outputs whose scope goes on, and all after them in their ring.
struct LeastSizes {
    RingNeed need;
    bool exact; // false: a smaller heap may work, and finding out would take too long
};

// `sizes` are too small: of `lacking`, and maybe of others. Unless it is the heap that lacks, one
// that works is taken as it is.
LeastSizes least_sizes(const tasks::Transcript &transcript, const RingSizes &sizes,
                       Resource lacking);

} // namespace kernloom::control
