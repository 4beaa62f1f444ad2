// Launches: calls become tasks, which go to PEs through the control program.
#pragma once

#include "programs.hpp"

namespace kernloom::host {

// A prepared launch: the tasks of one iteration.
struct Work {
    std::vector<TaskRecord> tasks;
    std::vector<std::uint64_t> arguments;
};

class Launcher {
  public:
    Launcher(const kl_platform &platform, Exchange &exchange, Tensors &tensors, Programs &programs)
        : platform_(platform), exchange_(exchange), tensors_(tensors), programs_(programs) {
    }

    // Checks all calls; `pe` is where they must run, or null.
    Outcome prepare(const std::vector<kl_launch_call> &calls,
                    const std::vector<kl_launch_argument> &arguments, const kl_node *pe,
                    Work &work);
    // Executes all tasks once.
    Outcome run(Work &work);

  private:
    Outcome describe();

    const kl_platform &platform_;
    Exchange &exchange_;
    Tensors &tensors_;
    Programs &programs_;
    bool described_ = false;
    bool host_builds_ = false;
    std::uint64_t tasks_ = 0;
};

} // namespace kernloom::host
