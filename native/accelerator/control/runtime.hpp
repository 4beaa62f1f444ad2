// A task runtime: how the tasks of a submission get to PEs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernloom/platform.h"
#include "kernloom/settings.hpp"

namespace kernloom::control {

// The control program as a runtime uses it. Tasks are numbered from 0 in their order.
class Dispatcher {
  public:
    virtual const kl_arch &arch() const = 0;
    // Sends a task to a PE that fits it; `completed` is called at its end.
    virtual void dispatch(std::size_t task) = 0;
    // Calls the runtime's `elapsed` after a while.
    virtual void after(std::uint64_t delay_ps) = 0;
    // All tasks are done.
    virtual void finish() = 0;
    // The tasks cannot be executed.
    virtual void refuse(std::string reason) = 0;

  protected:
    ~Dispatcher() = default;
};

class Runtime {
  public:
    virtual ~Runtime() = default;
    virtual const char *name() const = 0;
    // Whether the host builds all tasks before it submits them (enum RuntimeFlags).
    virtual std::uint64_t flags() const = 0;
    // A submission has arrived; an earlier one that has not ended is forgotten.
    virtual void begin(std::size_t tasks) = 0;
    virtual void completed(std::size_t task) = 0;
    virtual void elapsed() = 0;
};

// Defined once, by the runtime that the program is built with.
std::unique_ptr<Runtime> make_runtime(Dispatcher &dispatcher, const Settings &settings);

} // namespace kernloom::control
