/* Loaded kernel libraries, by handle. */
#ifndef RUNNER_KERNELS_H
#define RUNNER_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "kernloom/kernel.h"

#pragma GCC visibility push(hidden)

struct kernel {
    kl_entry_function entry;
    uint32_t arguments;
};

/* Opens a library whose symbols the kernels loaded later may use. Where it cannot be used, nothing
 * is served: kernels_usable says why. */
void kernels_add_library(const char *path);

/* False, and the reason in `reply`, when a library that was to be added cannot be used. */
bool kernels_usable(struct reply *reply);

void kernels_load(const struct request *request, struct reply *reply);

/* NULL, and the reason in `reply`, for a handle that was never given out. */
const struct kernel *kernels_find(uint64_t handle, struct reply *reply);

#pragma GCC visibility pop

#endif
