// Executes the tasks of an orchestration: the control program as one serial CPU, which takes up
// completions, then dispatches, then submits, each at its cost.
#pragma once

#include <deque>
#include <vector>

#include "code.hpp"
#include "critical_path.hpp"
#include "graph.hpp"
#include "hazards.hpp"
#include "kernloom/fabric.hpp"
#include "kernloom/settings.hpp"
#include "order.hpp"
#include "replay.hpp"
#include "task_trace.hpp"

namespace kernloom::control {

class Execution {
  public:
    // The low bits of a timer's token; above them is the PE that a watchdog is for.
    enum Token : std::uint64_t { STEP = 5, PE_WATCHDOG = 6 };
    enum { TOKEN_BITS = 3 };

    // `requests` numbers all messages to PEs: an answer to another kind of submission must not
    // have the number of a task.
    Execution(const kl_platform &platform, kl_node node, const char *settings,
              std::unique_ptr<Order> order, std::uint64_t &requests);

    // Whether PEs answer to this.
    bool awaits_pes() const {
        return request_ != 0 || replay_.running();
    }
    void launch(const kl_delivery &delivery, const kl_header &header, Reader &reader);
    void answered(const kl_delivery &delivery);
    void timer(std::uint64_t token);
    // Answers what the host wants to know of the last launch.
    void document(const kl_delivery &delivery, const kl_header &header, Reader &reader);
    // Forgets the launch; its host has given up.
    void forget();

    // Of the last launch; empty unless the setting `times` is 1.
    const Times &times() const {
        return times_;
    }

  private:
    enum class Doing { NOTHING, COMPLETE, DISPATCH, PREDICATE, SUBMIT };

    // A job at a PE.
    struct Sent {
        std::uint64_t request;
        std::uint64_t gang; // 0: none
        std::uint32_t assignment;
        std::uint32_t unit;
        std::uint32_t block; // of the submission: PEs of one mixed block have the same
        std::uint32_t job;   // in `times_`
    };

    struct Pe {
        Pe(const kl_platform &platform, kl_node node, std::uint64_t token)
            : watchdog(platform, node, token) {
        }
        std::deque<Sent> sent; // oldest first
        // If times are kept:
        std::uint32_t last = NONE;      // job that was dispatched
        std::uint32_t completed = NONE; // job that was completed last
        std::uint32_t room = NONE;      // the same, if there was no room before
        Watchdog watchdog;
    };

    struct Completion {
        std::uint32_t pe;
        std::uint64_t request;
        Outcome outcome;
    };

    Outcome read(Reader &reader);
    Outcome orchestrate(const CodeRecord &code);
    std::string gang_of(std::uint32_t place) const;
    void advance();
    void begin(Doing doing, std::uint64_t cost_ps);
    void complete();
    void dispatch();
    void decide();
    bool is_true(std::uint32_t unit, Outcome &problem) const;
    void submit();
    void fail(Outcome outcome);
    void respond_with(const Outcome &outcome);
    void tell_idle();
    void note_submitted(std::uint32_t before);
    void note_ready(std::uint32_t freed_by);
    void note_dispatched(const Job &job);
    void note_completed(const Sent &sent, std::uint32_t pe, const Outcome &outcome, bool full);
    void tell_path() const;
    const char *name_of_task(std::uint32_t unit) const;
    std::uint64_t address_of(std::uint32_t tensor) const;
    std::uint64_t value_of(std::uint32_t unit, const tasks::Argument &argument) const;
    void begin_hazards();
    void begin_replay();
    std::string plain_name(std::uint32_t unit) const;
    std::string tensor_name(const Transcript &transcript, std::uint32_t tensor,
                            const std::vector<std::string> &names) const;
    void write_tasks(const Transcript &transcript, std::string &text) const;
    void write_edges(const Transcript &transcript, const tasks::Array<tasks::Edge> &edges,
                     const std::vector<std::string> &names, std::string &text) const;
    Outcome write_dependencies(const std::vector<std::string> &names, std::string &text) const;
    void write_names(std::string &text) const;
    std::vector<Replay::Range> ranges_of(std::uint32_t unit) const;
    Outcome look_for_hazards(const Sent &job);
    tasks::TaskPlace place_of(std::uint32_t unit) const;
    std::string name_of_place(tasks::TaskPlace place) const;
    std::string name_of_unit(std::uint32_t unit) const;
    std::uint64_t now() const {
        return platform_.now(platform_.self);
    }

    const kl_platform &platform_;
    kl_node node_;
    std::uint64_t timeout_ps_;
    std::unique_ptr<Order> order_;
    tasks::Limits limits_;
    Scheduler scheduler_;
    Code code_;
    std::vector<Pe> pes_;
    Times times_;
    std::vector<std::uint32_t> readied_; // in this step, if times are kept
    bool timed_;
    bool look_; // for hazards
    tasks::Hazards hazards_;
    std::deque<ActionsTransfer> actions_; // by assignment
    bool keeps_launch_;                   // for documents
    Replay replay_;
    TaskTrace trace_;

    // The launch:
    kl_node host_{};
    std::uint64_t request_ = 0; // the host's; 0: none
    std::uint64_t launch_ = 0;
    std::uint64_t heap_ = 0;
    std::vector<KernelRecord> kernels_;
    std::vector<std::uint32_t> core_types_;
    std::vector<TensorRecord> tensors_;
    std::vector<std::uint64_t> values_;
    std::shared_ptr<const tasks::Graph> graph_;
    Transcript own_; // recorded here
    const Transcript *transcript_ = nullptr;
    Outcome failure_; // the first one

    std::uint64_t &requests_;
    std::deque<Completion> completions_;
    Doing doing_ = Doing::NOTHING;
    std::uint64_t step_ = 0; // its number; timers of others are stale
    std::uint32_t idle_[KL_CORE_TYPES] = {};
};

} // namespace kernloom::control
