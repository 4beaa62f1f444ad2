// A brute-force model of copies: every cycle all rates are computed anew and all bytes moved on.
// Slow and simple; the simulator must agree with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <vector>

#include "device.hpp"
#include "progressive_filling.hpp"

namespace kernloom::testing {

constexpr uint64_t CYCLE_PS = 1000;

// The device of SMALL with two sips and no cost of translation.
class CycleModel {
  public:
    static constexpr uint32_t SIPS = 2;
    static constexpr uint32_t CUBES = 4; // of all sips
    static constexpr uint32_t PES = 3;   // of each cube
    static constexpr uint32_t CHANNELS = 4;

    struct Step {
        uint32_t kind; // enum kl_action_kind
        uint32_t tag;
        uint64_t ps; // COMPUTE
        uint64_t bytes;
        uint32_t owner;
        uint32_t channels; // mask
    };

    struct Task {
        std::vector<Step> steps;
        uint64_t ended = 0;
    };

    CycleModel() : capacities_(SIPS * 2 + CUBES * (2 + CHANNELS) + CUBES * PES) {
        std::fill(capacities_.begin(), capacities_.end(), 512.0); // SRAM
        for (uint32_t sip = 0; sip < SIPS; sip++) {
            capacities_[sip_in(sip)] = capacities_[sip_in(sip) + 1] = 50;
        }
        for (uint32_t cube = 0; cube < CUBES; cube++) {
            capacities_[noc_in(cube)] = capacities_[noc_in(cube) + 1] = 128;
            for (uint32_t channel = 0; channel < CHANNELS; channel++) {
                capacities_[hbm(cube) + channel] = 32;
            }
        }
        for (Pe &pe : pes) {
            pe.engines.assign(2, nullptr);
        }
    }

    void run() {
        bool busy = true;
        for (now_ = 0; busy; now_ += CYCLE_PS) {
            busy = false;
            for (uint32_t pe = 0; pe < CUBES * PES; pe++) {
                busy |= advance(pe);
            }
            std::vector<FilledFlow *> flows;
            for (Copy &copy : copies_) {
                if (copy.engine >= 0 && copy.ready <= now_) {
                    flows.push_back(&copy.flow);
                }
            }
            fill_progressively(capacities_, flows);
            for (auto copy = copies_.begin(); copy != copies_.end();) {
                if (copy->engine >= 0 && copy->ready <= now_) {
                    copy->left -= copy->flow.rate * CYCLE_PS / 1000;
                }
                if (copy->left <= 1e-6) {
                    pes[copy->pe].engines[static_cast<size_t>(copy->engine)] = nullptr;
                    copy = copies_.erase(copy);
                } else {
                    ++copy;
                }
            }
        }
    }

    struct Copy {
        uint32_t pe;
        uint32_t tag;
        int engine;
        uint64_t ready; // when its bytes begin to move
        uint64_t latency;
        double left;
        FilledFlow flow;
    };

    struct Pe {
        std::vector<Task> tasks;
        size_t task = 0;
        size_t step = 0;
        uint64_t computing_until = 0;
        std::vector<Copy *> engines;
    };

    Pe pes[CUBES * PES];

  private:
    static uint32_t sip_in(uint32_t sip) {
        return sip * 2;
    }
    static uint32_t noc_in(uint32_t cube) {
        return SIPS * 2 + cube * (2 + CHANNELS);
    }
    static uint32_t hbm(uint32_t cube) {
        return noc_in(cube) + 2;
    }
    static uint32_t sram(uint32_t pe) {
        return SIPS * 2 + CUBES * (2 + CHANNELS) + pe;
    }

    void start(uint32_t pe, const Step &step) {
        Copy copy = {pe, step.tag, -1, 0, 0, static_cast<double>(step.bytes), {}};
        copy.flow.cap = 96;
        std::vector<double> &uses = copy.flow.coefficients;
        uses.assign(capacities_.size(), 0);
        const uint32_t mine = pe / PES;
        const uint32_t other = step.owner / PES;
        const uint32_t source = step.kind == KL_ACTION_LOAD ? other : mine;
        const uint32_t target = step.kind == KL_ACTION_LOAD ? mine : other;
        copy.latency = 20000 + 110000 + 8000;
        if (source != target) {
            uses[noc_in(target)] = uses[noc_in(source) + 1] = 1;
            copy.latency += 2 * 40000;
        }
        if (source / 2 != target / 2) {
            uses[sip_in(target / 2)] = uses[sip_in(source / 2) + 1] = 1;
            copy.latency += 2 * 400000;
        }
        for (uint32_t channel = 0; channel < CHANNELS; channel++) {
            if ((step.channels >> channel & 1) != 0) {
                uses[hbm(other) + channel] = 1.0 / __builtin_popcount(step.channels);
            }
        }
        uses[sram(pe)] = 1;
        copies_.push_back(copy);
    }

    // Takes engines for copies that wait, in their order.
    void assign_engines(uint32_t pe) {
        for (Copy &copy : copies_) {
            for (size_t engine = 0; copy.pe == pe && copy.engine < 0 && engine < 2; engine++) {
                if (pes[pe].engines[engine] == nullptr) {
                    pes[pe].engines[engine] = &copy;
                    copy.engine = static_cast<int>(engine);
                    copy.ready = now_ + copy.latency;
                }
            }
        }
    }

    bool under_way(uint32_t pe, const uint32_t *tag) const {
        for (const Copy &copy : copies_) {
            if (copy.pe == pe && (tag == nullptr || copy.tag == *tag)) {
                return true;
            }
        }
        return false;
    }

    bool advance(uint32_t index) {
        Pe &pe = pes[index];
        while (pe.task < pe.tasks.size() && pe.computing_until <= now_) {
            Task &task = pe.tasks[pe.task];
            if (pe.step == task.steps.size()) {
                if (under_way(index, nullptr)) {
                    break;
                }
                task.ended = now_;
                pe.task++;
                pe.step = 0;
                continue;
            }
            const Step &step = task.steps[pe.step];
            if (step.kind == KL_ACTION_WAIT && under_way(index, &step.tag)) {
                break;
            }
            if (step.kind == KL_ACTION_COMPUTE) {
                pe.computing_until = now_ + step.ps;
            } else if (step.kind != KL_ACTION_WAIT) {
                start(index, step);
            }
            pe.step++;
        }
        assign_engines(index);
        return pe.task < pe.tasks.size();
    }

    std::vector<double> capacities_;
    std::list<Copy> copies_;
    uint64_t now_ = 0;
};

} // namespace kernloom::testing
