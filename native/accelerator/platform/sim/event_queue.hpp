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

    // One number, so that comparisons need no branches.
    bool before(const Event &other) const {
        return key() < other.key();
    }

  private:
    unsigned __int128 key() const {
        return static_cast<unsigned __int128>(time) << 64 | order;
    }
};

// A heap whose nodes have four children: fewer cache misses than two.
class EventHeap {
  public:
    bool empty() const {
        return heap_.empty();
    }

    const Event &front() const {
        return heap_.front();
    }

    void push(const Event &event) {
        size_t at = heap_.size();
        heap_.push_back(event);
        while (at > 0) {
            const size_t parent = (at - 1) / 4;
            if (!event.before(heap_[parent])) {
                break;
            }
            heap_[at] = heap_[parent];
            at = parent;
        }
        heap_[at] = event;
    }

    void pop() {
        const Event last = heap_.back();
        heap_.pop_back();
        if (!heap_.empty()) {
            sink(last);
        }
    }

  private:
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
                if (heap_[i].before(heap_[least])) {
                    least = i;
                }
            }
            if (!heap_[least].before(event)) {
                break;
            }
            heap_[at] = heap_[least];
            at = least;
        }
        heap_[at] = event;
    }

    std::vector<Event> heap_;
};

// First in, first out, in a ring that grows.
class EventLane {
  public:
    bool empty() const {
        return first_ == end_;
    }

    const Event &front() const {
        return ring_[first_ & (ring_.size() - 1)];
    }

    const Event &back() const {
        return ring_[(end_ - 1) & (ring_.size() - 1)];
    }

    void push(const Event &event) {
        if (end_ - first_ == ring_.size()) {
            grow();
        }
        ring_[end_++ & (ring_.size() - 1)] = event;
    }

    void pop() {
        first_++;
    }

  private:
    void grow() {
        std::vector<Event> larger(2 * ring_.size());
        for (size_t i = first_; i != end_; i++) {
            larger[i - first_] = ring_[i & (ring_.size() - 1)];
        }
        end_ -= first_;
        first_ = 0;
        ring_.swap(larger);
    }

    std::vector<Event> ring_ = std::vector<Event>(16); // a power of two
    size_t first_ = 0;
    size_t end_ = 0;
};

// Events that come after equal delays are in order when they are added: each such delay has a lane,
// which costs less than the heap. An event that is out of order in its lane goes to the heap.
class EventQueue {
  public:
    static constexpr uint32_t LANES = 7;
    static constexpr uint32_t NO_LANE = LANES;

    bool empty() const {
        return size_ == 0;
    }

    const Event &top() const {
        return fronts_[first_];
    }

    void push(uint64_t time, uint32_t kind, uint32_t argument, uint32_t lane = NO_LANE) {
        const Event event = {
            time, (sequence_++ << Event::KIND_BITS | kind) << Event::ARGUMENT_BITS | argument};
        size_++;
        if (lane != NO_LANE && (lanes_[lane].empty() || lanes_[lane].back().time <= time)) {
            lanes_[lane].push(event);
            fronts_[lane] = lanes_[lane].front();
        } else {
            lane = NO_LANE;
            heap_.push(event);
            fronts_[lane] = heap_.front();
        }
        if (event.before(fronts_[first_])) {
            first_ = lane;
        }
    }

    Event pop() {
        const Event event = fronts_[first_];
        size_--;
        if (first_ == NO_LANE) {
            heap_.pop();
            fronts_[NO_LANE] = heap_.empty() ? NOTHING : heap_.front();
        } else {
            EventLane &lane = lanes_[first_];
            lane.pop();
            fronts_[first_] = lane.empty() ? NOTHING : lane.front();
        }
        first_ = 0;
        for (uint32_t i = 1; i <= LANES; i++) {
            first_ = fronts_[i].before(fronts_[first_]) ? i : first_;
        }
        return event;
    }

  private:
    static constexpr Event NOTHING = {UINT64_MAX, UINT64_MAX};

    EventHeap heap_;
    EventLane lanes_[LANES];
    Event fronts_[LANES + 1] = {NOTHING, NOTHING, NOTHING, NOTHING,
                                NOTHING, NOTHING, NOTHING, NOTHING}; // of the lanes and the heap
    uint32_t first_ = 0;                                             // which of them comes next
    size_t size_ = 0;
    uint64_t sequence_ = 0;
};

} // namespace kernloom
