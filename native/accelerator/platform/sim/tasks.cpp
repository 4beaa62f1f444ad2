// Tasks: recorded actions repeated in virtual time. Copies go on beside the PE; waiting for one and
// computing hold it up.
#include "simulator.hpp"

namespace kernloom {

namespace {

uint64_t compute_ps(uint64_t cycles, uint64_t khz) {
    const unsigned __int128 ps =
        (static_cast<unsigned __int128>(cycles) * 1000000000 + khz / 2) / khz;
    return ps < NEVER ? static_cast<uint64_t>(ps) : NEVER;
}

} // namespace

void Simulator::start_work(kl_node node, WorkPool::Work work, void *context) {
    if (node.kind == KL_NODE_PE && known(node)) {
        work_.start(pe_number(node), work, context);
    } else {
        work(context);
    }
}

void Simulator::finish_work(kl_node node) {
    if (node.kind == KL_NODE_PE && known(node)) {
        work_.finish(pe_number(node));
    }
}

void Simulator::replay(kl_node node, uint64_t number, const char *label, const kl_action *actions,
                       size_t count) {
    if (node.kind != KL_NODE_PE || !known(node)) {
        return;
    }
    Pe &pe = *pes_[pe_number(node)];
    const uint32_t index = tasks_.acquire();
    Task &task = tasks_[index];
    task.number = number;
    task.label = trace_ ? trace_->name(label != nullptr ? label : "task") : 0;
    task.actions.assign(actions, actions + count);
    pe.tasks.push_back(index);
    if (pe.doing == Doing::NOTHING) {
        begin_task(pe);
    }
}

void Simulator::begin_task(Pe &pe) {
    pe.task = pe.tasks.front();
    pe.tasks.erase(pe.tasks.begin());
    pe.next_action = 0;
    pe.task_begin = now_;
    tasks_run_++;
    accounts_.begin_task(pe.index, now_);
    if (settings_.times) {
        pe.before = accounts_.settled(pe.index, now_).spent;
    }
    advance(pe);
}

bool Simulator::unfinished(const Pe &pe, uint32_t tag, uint32_t &copy) const {
    for (copy = pe.oldest; copy != NONE; copy = copies_[copy].newer) {
        if (copies_[copy].tag == tag) {
            return true;
        }
    }
    return false;
}

// Goes on with the task until something holds it up.
void Simulator::advance(Pe &pe) {
    const std::vector<kl_action> &actions = tasks_[pe.task].actions;
    if (pe.doing == Doing::WAITING) {
        pe.next_action--; // a tag may have been used for several copies
    }
    pe.doing = Doing::ISSUING;
    pe.awaited = NONE;
    while (pe.next_action < actions.size()) {
        const kl_action &action = actions[pe.next_action++];
        switch (action.kind) {
        case KL_ACTION_LOAD:
        case KL_ACTION_STORE: {
            const uint64_t end =
                action.sram + action.rows.bytes +
                (action.rows.rows > 0 ? action.rows.rows - 1 : 0) * action.rows.sram_stride;
            sram_peak_ = end > sram_peak_ ? end : sram_peak_;
            start_copy(pe, action);
            break;
        }
        case KL_ACTION_WAIT:
            if (unfinished(pe, action.tag, pe.awaited)) {
                pe.doing = Doing::WAITING;
                refresh(pe);
                return;
            }
            break;
        case KL_ACTION_COMPUTE: {
            if (action.cycles == 0) {
                break;
            }
            if ((settings_.infinite & INFINITE_COMPUTE) != 0) {
                break;
            }
            const uint64_t end = later(compute_ps(action.cycles, settings_.core_khz));
            pe.doing = Doing::COMPUTING;
            pe.unit = action.unit < KL_UNITS ? action.unit : uint32_t{KL_UNIT_SCALAR};
            if (traces(TRANSFERS)) {
                trace_->add(pe.track, unit_names_[pe.unit], now_, end);
            }
            queue_.push(end, COMPUTED, pe.index);
            refresh(pe);
            return;
        }
        default:
            break;
        }
    }
    if (pe.oldest != NONE) {
        pe.doing = Doing::DRAINING;
    } else {
        pe.doing = Doing::ENDING;
        queue_.push(now_, TASK_ENDED, pe.index, NOW_LANE);
    }
    refresh(pe);
}

// The program is called from the event loop only, never from inside its own call of `replay`.
void Simulator::end_task(Pe &pe) {
    const uint64_t number = tasks_[pe.task].number;
    if (trace_) {
        trace_->add_task(pe.track, tasks_[pe.task].label, pe.task_begin, now_, traces(WAITS));
    }
    if (settings_.times) {
        Spent spent = accounts_.settled(pe.index, now_).spent;
        for (uint32_t cause = 0; cause < CAUSES; cause++) {
            spent[cause] -= pe.before[cause];
        }
        pe.log.add(now_, spent);
    }
    accounts_.end_task(pe.index, now_);
    tasks_.release(pe.task);
    pe.task = NONE;
    pe.doing = Doing::NOTHING;
    if (pe.tasks.empty()) {
        refresh(pe);
    } else {
        begin_task(pe);
    }
    const kl_program *program = program_of(pe.node);
    if (program != nullptr && program->replayed != nullptr) {
        program->replayed(states_[this->number(pe.node)], number);
    }
}

void Simulator::meet(kl_node node, uint64_t group, uint32_t count, uint64_t token) {
    if (node.kind != KL_NODE_PE || !known(node)) {
        return;
    }
    Pe &pe = *pes_[pe_number(node)];
    std::vector<Arrival> &arrived = meetings_[group];
    if (count == 0) {
        pe.control -= static_cast<uint32_t>(
            std::erase_if(arrived, [&](const Arrival &one) { return one.pe == pe.index; }));
        if (arrived.empty()) {
            meetings_.erase(group);
        }
        refresh(pe);
        return;
    }
    arrived.push_back({pe.index, token});
    pe.control++;
    refresh(pe);
    if (arrived.size() < count) {
        return;
    }
    const std::vector<Arrival> all = std::move(arrived);
    meetings_.erase(group);
    for (const Arrival &one : all) {
        Pe &other = *pes_[one.pe];
        after(other.node, 0, one.token);
        other.control--;
    }
}

void Simulator::waiting(uint32_t core_type, uint32_t why) {
    if (core_type < KL_CORE_TYPES && why < KL_IDLES) {
        accounts_.set_idle(core_type, why, now_);
        if (traces(WAITS)) {
            idle_slices_.set_reason(core_type, why, now_, *trace_);
        }
    }
}

void Simulator::dispatched(kl_node pe) {
    if (pe.kind == KL_NODE_PE && known(pe)) {
        accounts_.dispatch(pe_number(pe), now_);
    }
}

void Simulator::path(const kl_stretch *stretches, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const kl_node pe = stretches[i].pe;
        const bool ran = stretches[i].kind == KL_STRETCH_TASK && pe.kind == KL_NODE_PE;
        path_.add(stretches[i], ran && known(pe) ? &pes_[pe_number(pe)]->log : nullptr);
    }
}

void Simulator::note(const char *lines) {
    notes_ = lines;
}

// What the PE spends its time on now.
Cause Simulator::cause_of(const Pe &pe) const {
    switch (pe.doing) {
    case Doing::NOTHING:
        return pe.control > 0 ? Cause::SCHEDULER : Cause::NO_WORK;
    case Doing::ISSUING: // takes no time
        return accounts_.pes()[pe.index].cause;
    case Doing::COMPUTING:
        return static_cast<Cause>(static_cast<uint32_t>(Cause::COMPUTE_MATRIX) + pe.unit);
    case Doing::ENDING:
        return Cause::SCHEDULER;
    default:
        break;
    }
    const uint32_t copy = pe.doing == Doing::WAITING ? pe.awaited : pe.oldest;
    if (copies_[copy].phase != Phase::QUEUED) {
        return copies_[copy].cause;
    }
    // It waits for an engine: the reason is what holds up the copy on one.
    for (const uint32_t other : pe.engines) {
        if (other != NONE) {
            return copies_[other].cause;
        }
    }
    return Cause::DMA;
}

void Simulator::refresh(const Pe &pe) {
    const Cause cause = cause_of(pe);
    accounts_.change(pe.index, cause, now_);
    if (traces(WAITS)) {
        idle_slices_.set_idle(pe.index, cause == Cause::NO_WORK, now_, *trace_);
    }
}

// After a change of a copy, which matters only to a PE that waits.
void Simulator::refresh_waiting(const Pe &pe) {
    if (pe.doing == Doing::WAITING || pe.doing == Doing::DRAINING) {
        refresh(pe);
    }
}

} // namespace kernloom
