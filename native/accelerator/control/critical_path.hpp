// What the end of a launch waited for, found by walking back from it: the last completion, the task
// before it, what kept that from starting, and so on to the arrival of the launch.
#pragma once

#include <vector>

#include "scheduler.hpp"

namespace kernloom::control {

// What is kept of a unit beside the times of its jobs.
struct UnitTimes {
    std::uint64_t submitted_ps = 0;
    std::uint64_t ready_ps = 0;
    std::uint32_t freed_by = NONE; // the unit whose end made it ready
    std::uint32_t job = NONE;      // that was completed last; NONE: its predicate was false
};

// When things happened to a job.
struct JobTimes {
    std::uint64_t dispatched_ps = 0;
    std::uint64_t started_ps = 0;
    std::uint64_t ended_ps = 0;
    std::uint64_t completed_ps = 0;
    std::uint32_t unit = NONE;
    std::uint32_t pe = NONE;
    std::uint32_t before = NONE; // the job that the PE had before
    std::uint32_t room = NONE;   // the job whose completion made room for it at the PE
    std::uint32_t members = 0;   // of its gang, which were dispatched one after the other
    std::uint32_t place = 0;     // in the gang
};

// A submission that waited for room until a job was completed.
struct Admission {
    std::uint32_t task;
    std::uint32_t job;
};

struct Times {
    std::vector<UnitTimes> units;
    tasks::Array<JobTimes> jobs;        // in order of dispatch
    tasks::Array<Admission> admissions; // in order of tasks
    std::uint64_t arrived_ps = 0;       // the launch, at the control program

    // What the control program did last.
    enum class Last { NOTHING, COMPLETED, DECIDED, SUBMITTED } last = Last::NOTHING;
    std::uint32_t last_of = NONE; // the job, the unit or the task

    void clear() {
        units.clear();
        jobs.clear();
        admissions.clear();
        last = Last::NOTHING;
    }
};

// Part of the path, without a name: `job` is NONE unless it is a task.
struct Stretch {
    enum Kind : std::uint8_t { COMPLETE, SWITCH, DISPATCH, PREDICATE, SUBMIT, TASK };
    std::uint64_t begin_ps;
    std::uint64_t end_ps;
    std::uint32_t job;
    Kind kind;
};

// Stretches in order of time, which tile the time from the arrival of the launch until now.
tasks::Array<Stretch> critical_path(const Times &times, const Scheduler &scheduler,
                                    const kl_arch &arch, std::uint64_t now_ps);

} // namespace kernloom::control
