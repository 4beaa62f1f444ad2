// Gives ready tasks to PEs, in order of submission. It knows neither messages nor time.
//
// A unit is what goes to PEs: a task, or a task of a submitted graph. Units are numbered in order
// of submission. A gang is PEs that start together: those of a mixed task, or of all blocks of a
// task with sync start. Its PEs are claimed when it is ready, and get nothing else until it has
// started.
#pragma once

#include <span>

#include "kernloom/fabric.hpp"
#include "ordered_set.hpp"
#include "transcript.hpp"

namespace kernloom::control {

using tasks::NONE;
using tasks::Task;
using tasks::Transcript;

// Part of a unit, for one PE.
struct Job {
    std::uint32_t assignment; // to be named when it has ended
    std::uint32_t unit;
    std::uint32_t pe;
    std::uint32_t kernel;
    std::uint32_t block;
    std::uint32_t of_blocks;
    std::uint32_t members; // of the gang; 0: none
    std::uint64_t gang;
};

// Is told of every task that has ended.
class Ends {
  public:
    virtual void ended(std::uint32_t task) = 0;

  protected:
    ~Ends() = default;
};

class Scheduler {
  public:
    // Kinds of tasks, by where they run.
    enum Class : std::uint32_t { MATRIX, VECTOR, ANY, GANG, NOWHERE, CLASSES = NOWHERE };

    // `queue`: jobs that a PE has at once, one of them running.
    Scheduler(const kl_arch &arch, std::uint32_t queue);

    // Forgets everything before. No task is wider than the device. The transcript must outlive
    // this.
    Outcome begin(const Transcript &transcript, std::span<const std::uint32_t> core_types,
                  Ends &ends);
    // All that a task waits for has ended.
    void ready(std::uint32_t task);

    enum class Next { NOTHING, DISPATCH, PREDICATE };
    Next next();
    // After Next::DISPATCH.
    Job dispatch();
    // After Next::PREDICATE: the unit, and what its predicate said.
    std::uint32_t undecided() const {
        return candidate_;
    }
    void decide(std::uint32_t unit, bool execute);
    void completed(std::uint32_t assignment);
    // Nothing more is dispatched.
    void abandon();

    // The most ready units that waited for PEs at once.
    std::uint32_t most_ready() const {
        return most_ready_;
    }
    // Jobs that a PE has at most.
    std::uint32_t queue() const {
        return queue_;
    }
    // Jobs that have been dispatched and not completed.
    std::uint32_t running() const {
        return running_;
    }
    // Whether a ready unit waits for a PE of this core type.
    bool waits(std::uint32_t core_type) const {
        return !ready_[core_type].empty() || !ready_[ANY].empty() || gangs_for_[core_type] != 0;
    }
    // Ready units of a kind that are not dispatched whole.
    std::uint32_t ready_count(std::uint32_t kind) const {
        return ready_[kind].size();
    }
    Class class_of(const Task &task) const;
    // The task, and for a unit of a graph its place there, or NONE.
    std::uint32_t task_of(std::uint32_t unit) const {
        return task_of_unit_.empty() ? unit : task_of_unit_[unit];
    }
    const Transcript &transcript_of(std::uint32_t unit) const {
        const std::uint32_t task = task_of(unit);
        return is_graph(task) ? transcript_->graphs[transcript_->tasks[task].kernel].body
                              : *transcript_;
    }
    const Task &node(std::uint32_t unit) const {
        const std::uint32_t task = task_of(unit);
        return is_graph(task) ? transcript_of(unit).tasks[unit - first_unit_[task]]
                              : transcript_->tasks[task];
    }
    std::uint32_t place_in_graph(std::uint32_t unit) const {
        return unit - first_unit_[task_of(unit)];
    }
    bool is_graph(std::uint32_t task) const {
        return transcript_->tasks[task].flags & tasks::TASK_GRAPH;
    }
    std::uint32_t units() const {
        return units_;
    }
    // The units of a task: the first one, and how many.
    std::uint32_t first_unit(std::uint32_t task) const {
        return first_unit_.empty() ? task : first_unit_[task];
    }
    std::uint32_t units_of(std::uint32_t task) const {
        return (task + 1 < transcript_->tasks.size() ? first_unit(task + 1) : units_) -
               first_unit(task);
    }
    // Has every unit that becomes ready added to a list.
    void list_ready(std::vector<std::uint32_t> *list) {
        list_ = list;
    }
    const std::vector<kl_node> &pes() const {
        return nodes_;
    }
    // Memory in use.
    std::uint64_t bytes() const;

  private:
    struct Pe {
        std::uint32_t type;
        std::uint32_t load = 0;
        std::uint32_t gang = NONE; // that has claimed it
    };

    struct Assignment {
        std::uint32_t unit;
        std::uint32_t pe;
    };

    struct Member {
        std::uint32_t pe;
        std::uint32_t kernel;
        std::uint32_t block;
        std::uint32_t of_blocks;
    };

    struct Gang {
        std::uint32_t unit;
        std::uint32_t missing; // members that still have other jobs
        std::uint32_t sent;
        std::vector<Member> members;
    };

    void make_ready(std::uint32_t unit, const Task &node);
    void finish(std::uint32_t unit);
    void end(std::uint32_t unit);
    bool is_decided(std::uint32_t unit, const Task &node) const;
    std::uint32_t level(std::uint32_t type) const;
    void set_load(std::uint32_t pe, std::uint32_t load);
    bool claim(std::uint32_t unit);
    bool find_members(const Task &node, std::uint32_t block, std::vector<Member> &members);
    bool find_mixed(const Task &node, std::uint32_t block, std::vector<Member> &members);
    void count_gang(const Task &node, int by);
    void claim_pe(std::uint32_t pe, std::uint32_t gang);
    void unclaim(std::uint32_t pe);
    Job send(std::uint32_t unit, const Member &member);

    const kl_arch &arch_;
    std::uint32_t queue_;
    std::vector<kl_node> nodes_;
    std::vector<Pe> pes_;
    // By core type and load: the PEs that no gang has claimed.
    std::vector<OrderedSet> free_[KL_CORE_TYPES];

    const Transcript *transcript_ = nullptr;
    std::span<const std::uint32_t> core_types_;
    Ends *ends_ = nullptr;
    std::uint32_t units_ = 0;
    // Only if there are graphs:
    tasks::Array<std::uint32_t> first_unit_;   // by task
    tasks::Array<std::uint32_t> task_of_unit_; // by unit
    tasks::Array<std::uint32_t> waiting_;      // by unit: predecessors in its graph
    tasks::Array<std::uint32_t> nodes_left_;   // by task

    tasks::Array<std::uint32_t> undispatched_; // blocks, by unit
    tasks::Array<std::uint32_t> unfinished_;   // jobs, by unit
    tasks::Array<std::uint64_t> decided_;      // bits, by unit; only if there are predicates
    OrderedSet ready_[CLASSES];
    std::uint32_t ready_count_ = 0;
    std::uint32_t most_ready_ = 0;
    std::uint32_t candidate_ = NONE;
    std::vector<std::uint32_t> *list_ = nullptr;

    std::vector<std::uint32_t> ended_; // units whose end is not dealt with yet
    bool ending_ = false;

    std::vector<Assignment> assignments_;
    std::vector<std::uint32_t> free_assignments_;
    std::uint32_t running_ = 0;

    std::vector<Gang> gangs_; // some are unused
    std::vector<std::uint32_t> unused_gangs_;
    std::vector<std::uint32_t> complete_gangs_;   // to be dispatched, in order
    std::uint32_t gangs_for_[KL_CORE_TYPES] = {}; // ready or claimed, with PEs of a core type
    std::uint64_t last_gang_ = 0;
};

} // namespace kernloom::control
