// Where the time of every PE goes. Each picosecond has one cause.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cause.hpp"

#include "kernloom/platform.h"

namespace kernloom {

class Accounts {
  public:
    struct Pe {
        std::array<uint64_t, CAUSES> spent = {};
        uint64_t since = 0;
        uint64_t tasks = 0;
        Cause cause = Cause::NO_WORK;
        uint8_t type = 0;
        std::array<uint64_t, KL_IDLES> idle = {}; // of its core type, when it was last charged
        uint32_t coming = 0;                      // tasks that were dispatched and have not begun
    };

    void resize(uint32_t pes) {
        pes_.resize(pes);
    }

    void set_type(uint32_t index, uint8_t type) {
        pes_[index].type = type;
        without_task_[type]++;
    }

    // Why PEs of a core type that have nothing to do wait, from now on.
    void set_idle(uint32_t type, uint32_t why, uint64_t now) {
        settle_gap(now);
        settle_overhead(now);
        idles_[type].settle(now);
        idles_[type].why = why;
    }

    const std::vector<Pe> &pes() const {
        return pes_;
    }

    // What a PE has spent its time on, all of it. While no PE has anything to do, and no program
    // says why, the way between host and control program is the cause.
    std::array<uint64_t, CAUSES> spent(uint32_t index) const {
        std::array<uint64_t, CAUSES> found = pes_[index].spent;
        for (uint32_t cause = 0; cause < CAUSES; cause++) {
            found[cause] += gaps_[cause];
            found[static_cast<uint32_t>(Cause::NO_WORK)] -= gaps_[cause];
        }
        return found;
    }

    // Brings the sums of a PE up to date.
    const Pe &settled(uint32_t index, uint64_t now) {
        charge(pes_[index], now);
        return pes_[index];
    }

    void begin(uint64_t now) {
        settle(now);
        for (Pe &pe : pes_) {
            pe.spent = {};
            pe.tasks = 0;
            pe.coming = 0;
        }
        gaps_ = {};
        coming_ = {};
        overhead_ = 0;
    }

    // Brings all sums up to date.
    void settle(uint64_t now) {
        for (Pe &pe : pes_) {
            charge(pe, now);
        }
        settle_gap(now);
        settle_overhead(now);
    }

    void change(uint32_t index, Cause cause, uint64_t now) {
        Pe &pe = pes_[index];
        if (cause == pe.cause) {
            return;
        }
        charge(pe, now);
        if (pe.cause == Cause::NO_WORK) {
            settle_gap(now);
            busy_++;
        } else if (cause == Cause::NO_WORK) {
            settle_gap(now);
            busy_--;
        }
        pe.cause = cause;
    }

    // A task that is ready goes to a PE, begins there, and ends.
    void dispatch(uint32_t index, uint64_t now) {
        settle_overhead(now);
        pes_[index].coming++;
        coming_[pes_[index].type]++;
    }
    void begin_task(uint32_t index, uint64_t now) {
        Pe &pe = pes_[index];
        settle_overhead(now);
        pe.tasks++;
        without_task_[pe.type]--;
        if (pe.coming > 0) { // no probe
            pe.coming--;
            coming_[pe.type]--;
        }
    }
    void end_task(uint32_t index, uint64_t now) {
        settle_overhead(now);
        without_task_[pes_[index].type]++;
    }

    // How long a PE executed no task while one that it could execute was ready: not dispatched, on
    // its way, or behind another one at a PE.
    uint64_t overhead() const {
        return overhead_;
    }

    // A message has come to PCIe (+1) or left it (-1).
    void change_pcie(int by, uint64_t now) {
        settle_gap(now);
        on_pcie_ += static_cast<uint32_t>(by);
    }

  private:
    // How long each reason has held for a core type.
    struct Idle {
        std::array<uint64_t, KL_IDLES> spent = {};
        uint64_t since = 0;
        uint32_t why = KL_IDLE_NO_WORK;

        void settle(uint64_t now) {
            spent[why] += now - since;
            since = now;
        }
    };

    void charge(Pe &pe, uint64_t now) {
        static constexpr Cause CAUSE_OF[KL_IDLES] = {
            Cause::NO_WORK, Cause::DEPENDENCY, Cause::SCHEDULER, Cause::QUEUE_FULL, Cause::SUBMIT};
        Idle &idle = idles_[pe.type];
        idle.settle(now);
        if (pe.cause == Cause::NO_WORK) {
            for (uint32_t i = 0; i < KL_IDLES; i++) {
                pe.spent[static_cast<uint32_t>(CAUSE_OF[i])] += idle.spent[i] - pe.idle[i];
            }
        } else {
            pe.spent[static_cast<uint32_t>(pe.cause)] += now - pe.since;
        }
        pe.idle = idle.spent;
        pe.since = now;
    }

    void settle_overhead(uint64_t now) {
        for (uint32_t type = 0; type < KL_CORE_TYPES; type++) {
            if (without_task_[type] > 0 &&
                (coming_[type] > 0 || idles_[type].why == KL_IDLE_SCHEDULER)) {
                overhead_ += now - overhead_since_;
                break;
            }
        }
        overhead_since_ = now;
    }

    void settle_gap(uint64_t now) {
        if (busy_ == 0 && idles_[0].why == KL_IDLE_NO_WORK && idles_[1].why == KL_IDLE_NO_WORK) {
            const Cause cause = on_pcie_ > 0 ? Cause::PCIE : Cause::SCHEDULER;
            gaps_[static_cast<uint32_t>(cause)] += now - gap_since_;
        }
        gap_since_ = now;
    }

    std::vector<Pe> pes_;
    std::array<Idle, KL_CORE_TYPES> idles_ = {};
    std::array<uint64_t, CAUSES> gaps_ = {};
    uint64_t gap_since_ = 0;
    uint32_t busy_ = 0; // PEs that are not idle
    uint32_t on_pcie_ = 0;
    std::array<uint32_t, KL_CORE_TYPES> without_task_ = {}; // PEs, by core type
    std::array<uint32_t, KL_CORE_TYPES> coming_ = {};       // tasks, by core type of their PE
    uint64_t overhead_ = 0;
    uint64_t overhead_since_ = 0;
};

} // namespace kernloom
