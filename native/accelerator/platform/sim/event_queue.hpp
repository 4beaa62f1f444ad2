// Pending events, ordered by time and, at the same time, by the order in which they were added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kernloom {

struct Event {
    uint64_t time;
    uint64_t sequence;
    uint32_t kind;
    uint32_t argument;
};

// A heap whose nodes have four children: fewer cache misses than two.
class EventQueue {
  public:
    bool empty() const {
        return heap_.empty();
    }

    const Event &top() const {
        return heap_.front();
    }

    void push(uint64_t time, uint32_t kind, uint32_t argument) {
        const Event event = {time, sequence_++, kind, argument};
        size_t at = heap_.size();
        heap_.push_back(event);
        while (at > 0) {
            const size_t parent = (at - 1) / 4;
            if (!before(event, heap_[parent])) {
                break;
            }
            heap_[at] = heap_[parent];
            at = parent;
        }
        heap_[at] = event;
    }

    Event pop() {
        const Event first = heap_.front();
        const Event last = heap_.back();
        heap_.pop_back();
        if (!heap_.empty()) {
            sink(last);
        }
        return first;
    }

  private:
    static bool before(const Event &a, const Event &b) {
        return a.time < b.time || (a.time == b.time && a.sequence < b.sequence);
    }

    void sink(const Event &event) {
        const size_t count = heap_.size();
        size_t at = 0;
        for (;;) {
            const size_t child = 4 * at + 1;
            if (child >= count) {
                break;
            }
            const size_t end = child + 4 < count ? child + 4 : count;
            size_t least = child;
            for (size_t i = child + 1; i < end; i++) {
                if (before(heap_[i], heap_[least])) {
                    least = i;
                }
            }
            if (!before(heap_[least], event)) {
                break;
            }
            heap_[at] = heap_[least];
            at = least;
        }
        heap_[at] = event;
    }

    std::vector<Event> heap_;
    uint64_t sequence_ = 0;
};

} // namespace kernloom
