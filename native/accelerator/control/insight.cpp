// What the control program keeps and tells of an execution: when things happened to tasks, the
// critical path, and why PEs wait.
#include "execution.hpp"

namespace kernloom::control {

void Execution::note_submitted(std::uint32_t before) {
    if (!timed_)
        return;
    for (std::uint32_t task = before; task < order_->submitted(); task++)
        for (std::uint32_t i = 0; i < scheduler_.units_of(task); i++)
            times_.units[scheduler_.first_unit(task) + i].submitted_ps = now();
}

void Execution::note_ready(std::uint32_t freed_by) {
    for (const std::uint32_t unit : readied_) {
        times_.units[unit].ready_ps = now();
        times_.units[unit].freed_by = freed_by;
    }
    readied_.clear();
}

void Execution::note_dispatched(const Job &job) {
    Pe &pe = pes_[job.pe];
    JobTimes one;
    one.dispatched_ps = now();
    one.unit = job.unit;
    one.pe = job.pe;
    one.before = pe.last;
    one.room = job.members ? pe.completed : pe.room;
    one.members = job.members;
    if (job.members && !times_.jobs.empty()) {
        const JobTimes &other = times_.jobs.back();
        one.place = other.members && other.place + 1 < other.members ? other.place + 1 : 0;
    }
    pe.room = NONE;
    pe.last = static_cast<std::uint32_t>(times_.jobs.size());
    times_.jobs.push_back(one);
}

void Execution::note_completed(const Sent &sent, std::uint32_t place, const Outcome &outcome,
                               bool full) {
    JobTimes &job = times_.jobs[sent.job];
    job.started_ps = outcome.virtual_ps - outcome.value;
    job.ended_ps = outcome.virtual_ps;
    job.completed_ps = now();
    times_.units[sent.unit].job = sent.job;
    pes_[place].completed = sent.job;
    pes_[place].room = full ? sent.job : NONE;
    times_.last = Times::Last::COMPLETED;
    times_.last_of = sent.job;
}

const char *Execution::name_of_task(std::uint32_t unit) const {
    const Task &task = scheduler_.node(unit);
    return task.name != NONE ? scheduler_.transcript_of(unit).names[task.name].c_str()
                             : kernels_[task.kernel].name;
}

void Execution::tell_path() const {
    static constexpr const char *NAMES[] = {"complete", "switch", "dispatch", "predicate"};
    // The path may be as long as the launch has tasks.
    constexpr std::size_t AT_ONCE = 1024;
    std::vector<kl_stretch> told;
    const auto tell = [&] {
        platform_.path(platform_.self, told.data(), told.size());
        told.clear();
    };
    for (const Stretch &one : critical_path(times_, scheduler_, *platform_.arch, now())) {
        kl_stretch stretch{};
        stretch.begin_ps = one.begin_ps;
        stretch.end_ps = one.end_ps;
        if (one.kind == Stretch::TASK) {
            const JobTimes &job = times_.jobs[one.job];
            stretch.kind = KL_STRETCH_TASK;
            stretch.pe = scheduler_.pes()[job.pe];
            stretch.name = name_of_task(job.unit);
        } else if (one.kind == Stretch::SUBMIT) {
            stretch.kind = KL_STRETCH_SUBMIT;
            stretch.name = "tasks";
        } else {
            stretch.kind = KL_STRETCH_SCHEDULER;
            stretch.name = NAMES[one.kind];
        }
        told.push_back(stretch);
        if (told.size() == AT_ONCE)
            tell();
    }
    tell();
}

// Tells the platform why PEs wait, if that has changed.
void Execution::tell_idle() {
    for (std::uint32_t type = 0; type < KL_CORE_TYPES; type++) {
        const std::uint32_t why = !request_                ? KL_IDLE_NO_WORK
                                  : scheduler_.waits(type) ? KL_IDLE_SCHEDULER
                                  : order_->blocked()      ? KL_IDLE_QUEUE_FULL
                                  : order_->can_submit()   ? KL_IDLE_SUBMIT
                                  : order_->waiting(type)  ? KL_IDLE_DEPENDENCY
                                                           : KL_IDLE_NO_WORK;
        if (why == idle_[type])
            continue;
        idle_[type] = why;
        platform_.waiting(platform_.self, type, why);
    }
}

} // namespace kernloom::control
