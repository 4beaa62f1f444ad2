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

/* Opens a library whose symbols kernels loaded later may use. If it fails, every request is
 * refused: kernels_usable says why. */
void kernels_add_library(const char *path);

/* False, with the reason in `reply`, if an added library is not usable. */
bool kernels_usable(struct reply *reply);

void kernels_load(const struct request *request, struct reply *reply);

/* Whether a kernel starts in [start, end). */
bool kernels_inside(const void *start, const void *end);

/* NULL, with the reason in `reply`, for an unknown handle. */
const struct kernel *kernels_find(uint64_t handle, struct reply *reply);

#pragma GCC visibility pop

#endif
