#include "critical_path.hpp"

#include <algorithm>

namespace kernloom::control {

namespace {

// Walks back. Every step goes to an event that is not later than the one before it.
class Walk {
  public:
    Walk(const Times &times, const Scheduler &scheduler, const kl_arch &arch, std::uint64_t now_ps)
        : times_(times), scheduler_(scheduler), arch_(arch), at_(now_ps),
          admission_(times.admissions.size()) {
        switch (times.last) {
        case Times::Last::NOTHING:
            break;
        case Times::Last::COMPLETED:
            completed(times.last_of);
            break;
        case Times::Last::DECIDED:
            decided(times.last_of);
            break;
        case Times::Last::SUBMITTED:
            submitted(times.last_of);
            break;
        }
        while (next_ != Next::NOTHING)
            step();
        // The control program reads the launch.
        back_to(times.arrived_ps, Stretch::DISPATCH);
        std::reverse(path_.begin(), path_.end());
    }

    tasks::Array<Stretch> take() {
        return std::move(path_);
    }

  private:
    enum class Next { NOTHING, COMPLETED, RAN, DISPATCHED, READY, SUBMITTED };

    void back_to(std::uint64_t ps, Stretch::Kind kind, std::uint32_t job = NONE) {
        if (ps >= at_)
            return;
        // Long runs of submissions are one.
        if (job == NONE && !path_.empty() && path_.back().kind == kind &&
            path_.back().begin_ps == at_)
            path_.back().begin_ps = ps;
        else
            path_.push_back({ps, at_, job, kind});
        at_ = ps;
    }

    void go(Next next, std::uint32_t of) {
        next_ = next;
        of_ = of;
    }
    void completed(std::uint32_t job) {
        back_to(times_.jobs[job].completed_ps, Stretch::COMPLETE);
        go(Next::COMPLETED, job);
    }
    void decided(std::uint32_t unit) {
        back_to(times_.units[unit].ready_ps, Stretch::PREDICATE);
        go(Next::READY, unit);
    }
    void submitted(std::uint32_t task) {
        back_to(times_.units[scheduler_.first_unit(task)].submitted_ps, Stretch::SUBMIT);
        go(Next::SUBMITTED, task);
    }

    void step() {
        switch (next_) {
        case Next::NOTHING:
            return;
        case Next::COMPLETED:
            back_to(times_.jobs[of_].ended_ps, Stretch::COMPLETE);
            return go(Next::RAN, of_);
        case Next::RAN:
            return ran();
        case Next::DISPATCHED:
            return dispatched();
        case Next::READY:
            return ready();
        case Next::SUBMITTED:
            return submission();
        }
    }

    void ran() {
        const JobTimes &job = times_.jobs[of_];
        back_to(job.started_ps, Stretch::TASK, of_);
        if (!job.members && job.before != NONE) {
            const JobTimes &before = times_.jobs[job.before];
            // The PE went on as soon as it had ended the one before.
            if (before.ended_ps + arch_.complete_ps + arch_.dispatch_ps + arch_.switch_ps ==
                job.started_ps) {
                back_to(before.ended_ps, Stretch::SWITCH);
                return go(Next::RAN, job.before);
            }
        }
        // A gang waits for the last of its members.
        const std::uint32_t last = job.members ? of_ - job.place + job.members - 1 : of_;
        back_to(times_.jobs[last].dispatched_ps, Stretch::DISPATCH);
        go(Next::DISPATCHED, last);
    }

    void dispatched() {
        const JobTimes &job = times_.jobs[of_];
        const std::uint64_t ready_ps = times_.units[job.unit].ready_ps;
        std::uint32_t room = job.room;
        for (std::uint32_t i = 0; i < job.members; i++) {
            const std::uint32_t other = times_.jobs[of_ - job.place + i].room;
            if (other != NONE &&
                (room == NONE || times_.jobs[room].completed_ps < times_.jobs[other].completed_ps))
                room = other;
        }
        if (room != NONE && times_.jobs[room].completed_ps > ready_ps) {
            back_to(times_.jobs[room].completed_ps, Stretch::DISPATCH);
            return go(Next::COMPLETED, room);
        }
        back_to(ready_ps, Stretch::DISPATCH);
        go(Next::READY, job.unit);
    }

    void ready() {
        const UnitTimes &unit = times_.units[of_];
        if (unit.freed_by == NONE)
            return go(Next::SUBMITTED, scheduler_.task_of(of_));
        const UnitTimes &before = times_.units[unit.freed_by];
        if (before.job != NONE)
            return go(Next::COMPLETED, before.job);
        // Its predicate was false.
        decided(unit.freed_by);
    }

    void submission() {
        while (admission_ && times_.admissions[admission_ - 1].task > of_)
            admission_--;
        // What a submission costs, and what the control program did meanwhile.
        const std::uint64_t own = std::min(at_ - times_.arrived_ps, arch_.submit_ps);
        if (admission_ && times_.admissions[admission_ - 1].task == of_) {
            const std::uint32_t job = times_.admissions[admission_ - 1].job;
            back_to(std::max(times_.jobs[job].completed_ps, at_ - own), Stretch::SUBMIT);
            back_to(times_.jobs[job].completed_ps, Stretch::DISPATCH);
            return go(Next::COMPLETED, job);
        }
        const std::uint64_t before_ps =
            of_ ? times_.units[scheduler_.first_unit(of_ - 1)].submitted_ps : times_.arrived_ps;
        back_to(std::max(before_ps, at_ - own), Stretch::SUBMIT);
        back_to(before_ps, Stretch::DISPATCH);
        go(of_ && before_ps > times_.arrived_ps ? Next::SUBMITTED : Next::NOTHING,
           of_ ? of_ - 1 : 0);
    }

    const Times &times_;
    const Scheduler &scheduler_;
    const kl_arch &arch_;
    std::uint64_t at_;
    std::size_t admission_; // those before it may still be of interest
    Next next_ = Next::NOTHING;
    std::uint32_t of_ = NONE;
    tasks::Array<Stretch> path_;
};

} // namespace

tasks::Array<Stretch> critical_path(const Times &times, const Scheduler &scheduler,
                                    const kl_arch &arch, std::uint64_t now_ps) {
    return Walk(times, scheduler, arch, now_ps).take();
}

} // namespace kernloom::control
