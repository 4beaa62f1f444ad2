// Tasks that are submitted while others execute. Each takes a place in the ring of its scope depth;
// what it depends on is derived at that moment, among tasks that are not retired. A task is retired
// when it has ended, all before it in its ring are retired, and its outputs are dead: their scope
// has ended, and all tasks that use them.
#pragma once

#include <vector>

#include "dependencies.hpp"
#include "order.hpp"
#include "ring.hpp"

namespace kernloom::control {

class RingOrder final : public Order {
  public:
    RingOrder(const RingSizes &sizes, bool keep_edges) : sizes_(sizes), keep_edges_(keep_edges) {
    }

    Outcome begin(const Transcript &transcript, const tasks::Graph *graph,
                  Scheduler &scheduler) override;
    void ended(std::uint32_t task) override;
    bool can_submit() const override {
        return next_ < tasks_ && lacking_ == RESOURCES;
    }
    void submit() override;
    std::uint32_t submitted() const override {
        return next_;
    }
    bool blocked() const override {
        return next_ < tasks_ && lacking_ != RESOURCES;
    }
    bool done() const override {
        return ended_count_ == tasks_;
    }
    Outcome stuck(std::uint64_t now_ps) const override;
    std::uint64_t offset_of(std::uint32_t output) const override {
        return offsets_[output];
    }
    std::string peaks() const override;
    std::uint64_t bytes() const override;
    void
    each_use(const std::function<void(const char *name, std::uint64_t used)> &visit) const override;
    const tasks::Array<tasks::Edge> &edges() const override {
        return edges_;
    }

  private:
    struct Link {
        std::uint32_t task;
        std::uint32_t next;
    };

    void prepare();
    void find_lacking();
    void reclaim(std::uint32_t ring);
    bool dead(std::uint32_t task) const;
    void count_users();
    template <class Visit> void each_user(std::uint32_t task, Visit visit) const;
    void link(std::uint32_t from, std::uint32_t to);
    std::string name_of(std::uint32_t task) const;

    RingSizes sizes_;
    bool keep_edges_;
    const Transcript *transcript_ = nullptr;
    Scheduler *scheduler_ = nullptr;
    std::unique_ptr<tasks::Dependencies> dependencies_;
    std::vector<Ring> rings_;
    std::uint32_t tasks_ = 0;
    std::uint32_t next_ = 0; // to be submitted
    std::uint32_t ended_count_ = 0;
    bool submitting_ = false;
    // Of the next task:
    RingNeed need_{};
    std::uint32_t ring_ = 0;
    std::uint32_t first_output_ = 0;
    std::uint32_t end_output_ = 0;
    Resource lacking_ = RESOURCES;

    // By task:
    tasks::Array<std::uint32_t> predecessors_; // that have not ended; ENDED
    tasks::Array<std::uint32_t> successors_;   // first link, or NONE
    tasks::Array<std::uint32_t> users_;        // tasks that use its outputs and have not ended
    tasks::Array<std::uint64_t> offsets_;      // by output
    tasks::Array<Link> links_;
    std::uint32_t free_link_ = NONE;
    tasks::Array<std::uint32_t> found_;
    tasks::Array<tasks::Edge> edges_;
};

} // namespace kernloom::control
