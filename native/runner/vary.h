/* Changes of tensors between the runs of a launch (message Vary), so that no run can reuse the
 * results of another one, and copies of the tensors around a run that is drawn. */
#ifndef RUNNER_VARY_H
#define RUNNER_VARY_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"

#pragma GCC visibility push(hidden)

/* Keeps the contents of the pieces; applies to the next launch only. */
void vary(const struct request *request, struct reply *reply);

/* Whether the launch that begins varies. */
bool vary_begin(void);

/* A random number below `limit`. */
uint64_t vary_draw(uint64_t limit);

/* Changes one piece of each kind. */
void vary_change(void);

/* Restores the data set of this launch, and poisons the pieces of outputs. */
void vary_unmix(void);

/* Poisons outputs as a whole. */
void vary_poison(void);

/* Copies tensors into the window. */
void vary_copy(enum kl_moment moment);

/* Forgets the pieces. */
void vary_end(void);

#pragma GCC visibility pop

#endif
