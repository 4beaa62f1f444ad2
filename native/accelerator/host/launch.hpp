// Launches: calls become tasks, which go to PEs through the control program.
#pragma once

#include "code.hpp"
#include "graph.hpp"
#include "kernloom/settings.hpp"
#include "programs.hpp"

namespace kernloom::host {

// A prepared launch: the tasks of one iteration.
struct Work {
    std::vector<TaskRecord> tasks;
    std::vector<std::uint64_t> arguments;
    // With an orchestration:
    bool orchestrated = false;
    LaunchRecord launch{};
    std::vector<KernelRecord> kernels;
    std::vector<TensorRecord> tensors;
    std::vector<std::uint64_t> values;
    std::shared_ptr<const tasks::Graph> graph; // if the host builds it
};

constexpr kl_node CONTROL = {KL_NODE_CONTROL, 0, 0, 0};

class Launcher {
  public:
    Launcher(const kl_platform &platform, kl_node node, const Settings &settings,
             Exchange &exchange, Tensors &tensors, Device &device, Programs &programs);

    // Checks all calls; `pe` is where they must run, or null.
    Outcome prepare(const std::vector<kl_launch_call> &calls,
                    const std::vector<kl_launch_argument> &arguments, const kl_node *pe,
                    Work &work);
    // Checks a launch with an orchestration. The calls are its kernels.
    Outcome prepare(std::uint64_t orchestration, const std::vector<kl_launch_call> &calls,
                    const std::vector<kl_launch_argument> &arguments, Work &work);
    // Executes all tasks once.
    Outcome run(Work &work);
    // Asks for a document about the last launch with an orchestration (enum kl_documents).
    Outcome document(std::uint32_t kind, std::string &text);

  private:
    Outcome describe();
    Outcome add_kernels(const std::vector<kl_launch_call> &calls, Work &work);
    Outcome add_arguments(const std::vector<kl_launch_argument> &arguments, Work &work);
    Outcome build(Work &work);
    Outcome reserve_heap(Work &work);
    Outcome run_orchestration(Work &work);
    void add_nearest(Outcome &outcome) const;

    const kl_platform &platform_;
    Exchange &exchange_;
    Tensors &tensors_;
    Device &device_;
    Programs &programs_;
    Code code_;
    tasks::Limits limits_;
    bool keep_edges_;
    std::uint64_t ring_heap_; // of all rings
    std::uint64_t heap_ = 0;  // address of the memory for outputs; 0: none
    std::uint64_t heap_bytes_ = 0;
    std::deque<GraphTransfer> transfers_;    // that a control program may look at
    std::deque<DocumentTransfer> documents_; // likewise
    std::vector<std::string> tensor_names_;  // of the last launch with an orchestration
    std::uint64_t launches_ = 0;
    bool described_ = false;
    bool host_builds_ = false;
    std::uint64_t tasks_ = 0;
};

} // namespace kernloom::host
