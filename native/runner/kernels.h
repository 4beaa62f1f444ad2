/* Loaded kernel libraries, by handle. */
#ifndef RUNNER_KERNELS_H
#define RUNNER_KERNELS_H

#include <stdint.h>

#include "channel.h"
#include "kernloom/kernel.h"

#pragma GCC visibility push(hidden)

struct kernel {
    kl_entry_function entry;
    uint32_t arguments;
};

void kernels_load(const struct request *request, struct reply *reply);

/* NULL, and the reason in `reply`, for a handle that was never given out. */
const struct kernel *kernels_find(uint64_t handle, struct reply *reply);

#pragma GCC visibility pop

#endif
