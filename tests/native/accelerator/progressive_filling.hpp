// Max-min fair rates by the textbook: all rates rise together until a link is full.
#pragma once

#include <cstddef>
#include <vector>

namespace kernloom::testing {

struct FilledFlow {
    double cap;
    std::vector<double> coefficients; // by link; 0: not used
    double rate = 0;
    bool frozen = false;
};

inline void fill_progressively(const std::vector<double> &capacities,
                               std::vector<FilledFlow *> &flows) {
    std::vector<double> left = capacities;
    for (FilledFlow *flow : flows) {
        flow->rate = 0;
        flow->frozen = false;
    }
    double level = 0;
    for (size_t frozen = 0; frozen < flows.size();) {
        // How much further the rates of all that are not frozen can rise.
        double step = 1e300;
        for (size_t link = 0; link < capacities.size(); link++) {
            double load = 0;
            for (const FilledFlow *flow : flows) {
                load += flow->frozen ? 0 : flow->coefficients[link];
            }
            if (load > 0 && left[link] / load < step) {
                step = left[link] / load;
            }
        }
        for (const FilledFlow *flow : flows) {
            if (!flow->frozen && flow->cap - level < step) {
                step = flow->cap - level;
            }
        }
        level += step;
        for (FilledFlow *flow : flows) {
            for (size_t link = 0; !flow->frozen && link < capacities.size(); link++) {
                left[link] -= flow->coefficients[link] * step;
            }
        }
        for (FilledFlow *flow : flows) {
            if (flow->frozen) {
                continue;
            }
            bool full = level >= flow->cap * (1 - 1e-12);
            for (size_t link = 0; link < capacities.size(); link++) {
                full |= flow->coefficients[link] > 0 && left[link] <= capacities[link] * 1e-12;
            }
            if (full) {
                flow->rate = level;
                flow->frozen = true;
                frozen++;
            }
        }
    }
}

} // namespace kernloom::testing
