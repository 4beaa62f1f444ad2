// Tasks of a graph whose edges are all known: a task is ready when the last of its predecessors
// has ended.
#pragma once

#include "graph.hpp"
#include "order.hpp"

namespace kernloom::control {

// What the host refuses to exceed.
struct GraphLimits {
    std::uint64_t tasks, heap, edges;
};

class GraphOrder final : public Order {
  public:
    explicit GraphOrder(const GraphLimits &limits) : limits_(limits) {
    }

    Outcome begin(const Transcript &transcript, const tasks::Graph *graph,
                  Scheduler &scheduler) override;
    void ended(std::uint32_t task) override;
    bool can_submit() const override {
        return false;
    }
    void submit() override {
    }
    std::uint32_t submitted() const override {
        return static_cast<std::uint32_t>(predecessors_.size());
    }
    bool blocked() const override {
        return false;
    }
    bool done() const override {
        return left_ == 0;
    }
    Outcome stuck(std::uint64_t now_ps) const override;
    std::uint64_t offset_of(std::uint32_t output) const override {
        return graph_->heap.offsets[output];
    }
    std::string peaks() const override;
    std::uint64_t bytes() const override {
        return predecessors_.bytes();
    }
    const tasks::Array<tasks::Edge> &edges() const override {
        return graph_->reasons;
    }

  private:
    GraphLimits limits_;
    const tasks::Graph *graph_ = nullptr;
    Scheduler *scheduler_ = nullptr;
    tasks::Array<std::uint32_t> predecessors_; // that have not ended
    std::uint32_t left_ = 0;
};

} // namespace kernloom::control
