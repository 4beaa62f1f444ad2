// Slices of the trace that say why PEs have nothing to do.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "trace.hpp"

#include "kernloom/platform.h"

namespace kernloom {

class IdleSlices {
  public:
    // In order of their numbers.
    void add_pe(uint32_t track, uint8_t type) {
        pes_.push_back({track, type, true, 0});
    }

    // Why PEs of a core type that have nothing to do wait, from now on.
    void set_reason(uint32_t type, uint32_t why, uint64_t now, Trace &trace) {
        if (reasons_[type] == why) {
            return;
        }
        for (Pe &pe : pes_) {
            if (pe.type == type && pe.idle) {
                end(pe, now, trace);
            }
        }
        reasons_[type] = why;
    }

    void set_idle(uint32_t index, bool idle, uint64_t now, Trace &trace) {
        Pe &pe = pes_[index];
        if (pe.idle && !idle) {
            end(pe, now, trace);
        }
        if (!pe.idle) {
            pe.since = now;
        }
        pe.idle = idle;
    }

  private:
    struct Pe {
        uint32_t track;
        uint8_t type;
        bool idle;
        uint64_t since;
    };

    void end(Pe &pe, uint64_t now, Trace &trace) const {
        static constexpr const char *NAMES[] = {"", "wait: dependency", "wait: scheduler",
                                                "wait: queue full", "wait: submit"};
        static_assert(std::size(NAMES) == KL_IDLES);
        const uint32_t why = reasons_[pe.type];
        if (why != KL_IDLE_NO_WORK && now > pe.since) {
            trace.add(pe.track, trace.name(NAMES[why]), pe.since, now);
        }
        pe.since = now;
    }

    std::vector<Pe> pes_;
    uint32_t reasons_[KL_CORE_TYPES] = {};
};

} // namespace kernloom
