// Tasks are submitted on the device, into a ring of slots, while earlier ones execute. A full ring
// holds up the submission until its oldest slot is reclaimed.
#include <algorithm>

#include "kernloom/fabric.hpp"
#include "ring_order.hpp"
#include "runtime.hpp"

namespace kernloom::control {

namespace {

class RingMap final : public Runtime {
  public:
    RingMap(Dispatcher &dispatcher, const Settings &settings)
        : dispatcher_(dispatcher), slots_(ring_slots(settings)) {
    }

    const char *name() const override {
        return "ringmap";
    }

    std::uint64_t flags() const override {
        return 0;
    }

    void begin(std::size_t tasks) override {
        tasks_ = tasks;
        submitted_ = retired_ = 0;
        if (!slots_)
            return dispatcher_.refuse("a ring of 0 slots never drains: the least that works is 1 "
                                      "(runtime.ring.slots)");
        if (!tasks)
            return dispatcher_.finish();
        // A delay of an earlier submission may still be under way.
        stale_ += submitting_;
        submitting_ = false;
        submit_next();
    }

    void elapsed() override {
        if (stale_) {
            stale_--;
            return;
        }
        submitting_ = false;
        submitted_++;
        // Nothing is running, unless an earlier task is still in the ring.
        if (submitted_ == retired_ + 1)
            dispatcher_.dispatch(retired_);
        submit_next();
    }

    void completed(std::size_t) override {
        retired_++;
        if (retired_ == tasks_)
            return dispatcher_.finish();
        if (retired_ < submitted_)
            dispatcher_.dispatch(retired_);
        submit_next();
    }

  private:
    void submit_next() {
        if (submitting_ || submitted_ == tasks_ || submitted_ - retired_ == slots_)
            return;
        submitting_ = true;
        dispatcher_.after(dispatcher_.arch().submit_ps);
    }

    Dispatcher &dispatcher_;
    std::uint64_t slots_;
    std::size_t tasks_ = 0;
    std::size_t submitted_ = 0; // also those that have retired
    std::size_t retired_ = 0;
    bool submitting_ = false;
    unsigned stale_ = 0;
};

} // namespace

std::unique_ptr<Runtime> make_runtime(Dispatcher &dispatcher, const Settings &settings) {
    return std::make_unique<RingMap>(dispatcher, settings);
}

std::unique_ptr<Order> make_order(const Settings &settings) {
    return std::make_unique<RingOrder>(ring_sizes(settings), wants_edges(settings));
}

} // namespace kernloom::control
