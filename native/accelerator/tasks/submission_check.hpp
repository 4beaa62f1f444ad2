// Whether an arch can execute what is submitted.
#pragma once

#include <span>

#include "orchestrator.hpp"

namespace kernloom::tasks {

// PEs of an arch, counted.
struct Machine {
    explicit Machine(const kl_arch &arch);

    std::uint32_t of_cube[KL_CORE_TYPES] = {};
    std::uint32_t pes[KL_CORE_TYPES] = {};
    std::uint32_t cubes;
};

// How often PEs execute a kernel for a submission that has been checked.
inline std::uint64_t executions_of(const kl_submission &submission) {
    const std::uint64_t blocks = submission.blocks > 1 ? submission.blocks : 1;
    return blocks * (1 + std::uint64_t{submission.vectors});
}

// Whether a name can be written into a line of a report.
bool is_printable(std::string_view name);

// Checks a submission's name, its kernels, its blocks, and how many PEs must start together. If it
// returns false, `problem` says why.
bool check_submission(const kl_submission &submission, std::span<const KernelView> kernels,
                      const Machine &machine, Outcome &problem);

} // namespace kernloom::tasks
