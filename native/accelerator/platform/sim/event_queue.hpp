// Pending events, ordered by time and, at the same time, by the order in which they were added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kernloom {

struct Event {
    uint64_t time;
    uint64_t order; // sequence, kind, argument: from the high bits to the low ones

    static constexpr unsigned KIND_BITS = 3;
    static constexpr unsigned ARGUMENT_BITS = 23;

    uint32_t kind() const {
        return order >> ARGUMENT_BITS & ((1u << KIND_BITS) - 1);
    }

    uint32_t argument() const {
        return order & ((1u << ARGUMENT_BITS) - 1);
    }
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
        const Event event = {
            time, (sequence_++ << Event::KIND_BITS | kind) << Event::ARGUMENT_BITS | argument};
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
    // One number, so that comparisons need no branches.
    static unsigned __int128 key(const Event &event) {
        return static_cast<unsigned __int128>(event.time) << 64 | event.order;
    }

    static bool before(const Event &a, const Event &b) {
        return key(a) < key(b);
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
