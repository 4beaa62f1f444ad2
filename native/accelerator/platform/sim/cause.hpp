// What the time of a PE is spent on, and what limits a transfer.
#pragma once

#include <cstdint>

namespace kernloom {

enum class Cause : uint8_t {
    COMPUTE_MATRIX,
    COMPUTE_VECTOR,
    COMPUTE_SCALAR,
    DMA, // engines: waiting for a free one, issue, latency of the path, the engine's own rate
    HBM,
    SRAM,
    NOC,
    SIP,
    TRANSLATION,
    PCIE,
    SCHEDULER,  // messages, timers: dispatch, complete; a ready task that waits for them
    SUBMIT,     // tasks are built and submitted
    DEPENDENCY, // tasks wait for others to end
    QUEUE_FULL, // tasks cannot be submitted before others have ended
    NO_WORK,
};

constexpr uint32_t CAUSES = static_cast<uint32_t>(Cause::NO_WORK) + 1;

constexpr const char *CAUSE_NAMES[CAUSES] = {
    "compute.matrix",
    "compute.vector",
    "compute.scalar",
    "dma",
    "hbm",
    "sram",
    "noc",
    "sip",
    "translation",
    "pcie",
    "scheduler",
    "submit",
    "dependency",
    "queue_full",
    "no_work",
};

} // namespace kernloom
