// What the trace shows of tasks beside their slices: arrows for dependencies, and counters.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "order.hpp"

namespace kernloom::control {

class TaskTrace {
  public:
    TaskTrace(const kl_platform &platform, kl_node node, bool wanted)
        : platform_(platform), node_(node), wanted_(wanted) {
    }

    bool wanted() const {
        return wanted_;
    }
    void begin(std::uint32_t units) {
        spans_.assign(units, {});
    }
    // A part of a unit has ended on a PE.
    void ended(std::uint32_t unit, std::uint32_t pe, std::uint64_t started_ps,
               std::uint64_t ended_ps);
    // Draws an arrow for each dependency of a launch that has ended.
    void draw(const Transcript &transcript, const Scheduler &scheduler,
              const tasks::Array<tasks::Edge> &edges) const;
    // Counters that have changed.
    void count(const Scheduler &scheduler, const Order &order);

  private:
    // The first part that started and the last one that ended.
    struct Span {
        std::uint32_t first_pe = NONE;
        std::uint32_t last_pe = NONE;
        std::uint64_t started_ps = 0;
        std::uint64_t ended_ps = 0;
        std::uint64_t last_started_ps = 0;
    };

    Span span_of(const Scheduler &scheduler, const Transcript &transcript,
                 std::uint32_t task) const;
    void arrow(const Scheduler &scheduler, const Span &from, const Span &to) const;
    void set(const char *name, std::uint64_t value);

    const kl_platform &platform_;
    kl_node node_;
    bool wanted_;
    std::vector<Span> spans_; // by unit
    std::unordered_map<std::string, std::uint64_t> counters_;
};

} // namespace kernloom::control
