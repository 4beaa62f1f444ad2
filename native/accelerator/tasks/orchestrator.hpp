// Runs orchestrations.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernloom/fabric.hpp"
#include "transcript.hpp"

namespace kernloom::tasks {

struct KernelView {
    std::string_view name;
    std::uint32_t core_type; // KL_CORE_TYPES: any
    std::uint32_t arguments;
    bool has_kinds = false;    // whether `buffers` is known
    std::uint32_t buffers = 0; // bit i: argument i is a tensor

    static KernelView of(const KernelRecord &record) {
        return {record.name, record.core_type, record.arguments, record.has_kinds != 0,
                record.buffers};
    }
};

// A launch as it is needed to run its orchestration. Everything must outlive the call.
struct LaunchView {
    const kl_arch *arch = nullptr;
    std::span<const std::uint64_t> tensor_bytes;
    std::span<const std::uint64_t> values;
    std::span<const KernelView> kernels;
};

// Runs an orchestration to its end. The first thing that is wrong with it is the outcome. What is
// in the transcript before is forgotten; its memory is used again.
Outcome record(kl_orchestrate_function orchestrate, const LaunchView &launch, const Limits &limits,
               Transcript &transcript);

// "task 12 'name'".
std::string name_of_task(const Transcript &transcript, std::span<const KernelView> kernels,
                         std::uint32_t task);

} // namespace kernloom::tasks
