// Where the time of every PE goes. Each picosecond has one cause.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cause.hpp"

namespace kernloom {

class Accounts {
  public:
    struct Pe {
        std::array<uint64_t, CAUSES> spent = {};
        uint64_t since = 0;
        uint64_t tasks = 0;
        Cause cause = Cause::IDLE;
    };

    void resize(uint32_t pes) {
        pes_.resize(pes);
    }

    const std::vector<Pe> &pes() const {
        return pes_;
    }

    // Time in which no PE had anything to do, by what the others were busy with.
    uint64_t gap(Cause cause) const {
        return gaps_[static_cast<uint32_t>(cause)];
    }

    void begin(uint64_t now) {
        settle(now);
        for (Pe &pe : pes_) {
            pe.spent = {};
            pe.tasks = 0;
        }
        gaps_ = {};
    }

    // Brings all sums up to date.
    void settle(uint64_t now) {
        for (Pe &pe : pes_) {
            charge(pe, now);
        }
        settle_gap(now);
    }

    void change(uint32_t index, Cause cause, uint64_t now) {
        Pe &pe = pes_[index];
        if (cause == pe.cause) {
            return;
        }
        charge(pe, now);
        if (pe.cause == Cause::IDLE) {
            settle_gap(now);
            busy_++;
        } else if (cause == Cause::IDLE) {
            settle_gap(now);
            busy_--;
        }
        pe.cause = cause;
    }

    void count_task(uint32_t index) {
        pes_[index].tasks++;
    }

    // A message has come to PCIe (+1) or left it (-1).
    void change_pcie(int by, uint64_t now) {
        settle_gap(now);
        on_pcie_ += static_cast<uint32_t>(by);
    }

  private:
    static void charge(Pe &pe, uint64_t now) {
        pe.spent[static_cast<uint32_t>(pe.cause)] += now - pe.since;
        pe.since = now;
    }

    void settle_gap(uint64_t now) {
        if (busy_ == 0) {
            const Cause cause = on_pcie_ > 0 ? Cause::PCIE : Cause::CONTROL;
            gaps_[static_cast<uint32_t>(cause)] += now - gap_since_;
        }
        gap_since_ = now;
    }

    std::vector<Pe> pes_;
    std::array<uint64_t, CAUSES> gaps_ = {};
    uint64_t gap_since_ = 0;
    uint32_t busy_ = 0; // PEs that are not idle
    uint32_t on_pcie_ = 0;
};

} // namespace kernloom
