// When the tasks of an orchestration become ready: what the task runtimes differ in.
#pragma once

#include <functional>
#include <memory>

#include "dependencies.hpp"
#include "kernloom/settings.hpp"
#include "scheduler.hpp"

namespace kernloom::tasks {
struct Graph;
}

namespace kernloom::control {

class Order : public Ends {
  public:
    virtual ~Order() = default;

    // Forgets everything before. The transcript must outlive this; `graph` is what the host has
    // built, if it builds.
    virtual Outcome begin(const Transcript &transcript, const tasks::Graph *graph,
                          Scheduler &scheduler) = 0;
    // Whether a task is to be submitted, and can be now.
    virtual bool can_submit() const = 0;
    virtual void submit() = 0;
    // Tasks that have been submitted.
    virtual std::uint32_t submitted() const = 0;
    // Whether a task is to be submitted, and cannot be before others have ended.
    virtual bool blocked() const = 0;
    // All tasks have ended.
    virtual bool done() const = 0;
    // Nothing runs, nothing is ready, and yet not all is done.
    virtual Outcome stuck(std::uint64_t now_ps) const = 0;
    // Where an output is in the heap.
    virtual std::uint64_t offset_of(std::uint32_t output) const = 0;
    // Tasks for PEs of a core type that are submitted and wait for others.
    std::uint32_t waiting(std::uint32_t core_type) const {
        return waiting_[core_type] + waiting_[Scheduler::ANY] + waiting_[Scheduler::GANG] +
               waiting_[Scheduler::NOWHERE];
    }
    // What was used most of each resource: lines of a report.
    virtual std::string peaks() const = 0;
    virtual std::uint64_t bytes() const = 0;
    // What is used now of each resource, for counters.
    virtual void each_use(const std::function<void(const char *name, std::uint64_t used)> &) const {
    }
    // The edges of the launch so far with their reasons, if they are kept.
    virtual const tasks::Array<tasks::Edge> &edges() const = 0;

  protected:
    std::uint32_t waiting_[Scheduler::CLASSES + 1] = {}; // by enum Scheduler::Class
};

// Defined once, by the runtime that the program is built with.
std::unique_ptr<Order> make_order(const Settings &settings);

} // namespace kernloom::control
