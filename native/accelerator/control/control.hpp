// The program of a management CPU: takes submissions from the host and sends tasks to PEs.
#pragma once

#include <vector>

#include "execution.hpp"
#include "kernloom/fabric.hpp"
#include "runtime.hpp"

namespace kernloom::control {

class Control final : private Dispatcher {
  public:
    Control(const kl_platform &platform, kl_node node, const char *settings);

    void receive(const kl_delivery &delivery);
    void timer(std::uint64_t token);

    const Execution &execution() const {
        return execution_;
    }

  private:
    // The low bits of a timer's token; above them is the request of the task it is for.
    // Execution has others.
    enum Token : std::uint64_t { WATCHDOG = 1, SUBMITTED = 2, STORED = 3, LOADED = 4 };
    enum { TOKEN_BITS = Execution::TOKEN_BITS };

    struct Task {
        TaskRecord record{};
        std::vector<std::uint64_t> arguments;
    };

    // The task that a PE executes.
    struct Running {
        std::size_t task = 0;
        kl_node pe{};
        std::uint64_t request = 0; // 0: none
        std::uint64_t begin_ps = 0;
        Outcome outcome;
    };

    const kl_arch &arch() const override {
        return *platform_.arch;
    }
    void dispatch(std::size_t task) override;
    void after(std::uint64_t delay_ps) override;
    void finish() override;
    void refuse(std::string reason) override;

    void submit(const kl_delivery &delivery, const kl_header &header, Reader &reader);
    void answered(const kl_delivery &delivery);
    bool choose(const TaskRecord &task, kl_node &pe) const;
    void send();
    void tell_path() const;
    void end(const Outcome &outcome);

    const kl_platform &platform_;
    kl_node node_;
    std::uint64_t timeout_ps_;
    Watchdog watchdog_;
    std::unique_ptr<Runtime> runtime_;
    std::uint64_t requests_ = 0; // to PEs
    Execution execution_;
    std::vector<Task> tasks_;
    Running running_;
    kl_node submitter_{};
    std::uint64_t submission_ = 0;    // the host's request; 0: none
    std::uint64_t idle_since_ps_ = 0; // for the critical path
};

} // namespace kernloom::control
