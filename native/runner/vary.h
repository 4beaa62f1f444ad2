/* Changes of tensors between the runs of a launch (message Vary), so that no run can reuse the
 * results of another one, and copies of the tensors after a run that is drawn. Before that run
 * nothing happens that does not happen before others. */
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

/* Restores the data set of this launch, and poisons the pieces of outputs: for a run that can only
 * be proven from copies of before it. */
void vary_unmix(void);

/* Whether there are such copies. */
bool vary_around(void);

/* Poisons outputs as a whole. */
void vary_poison(void);

/* Copies tensors into the window, or takes as long as that does; returns nanoseconds. */
uint64_t vary_copy(enum kl_moment moment, bool drawn);

/* Keeps which pieces are exchanged in the run that was drawn. */
void vary_keep(void);

/* The same, and what became of the piece that was restored before that run, for one of the calls of
 * a launch that is drawn. */
void vary_keep_one(void);

/* Adds the pieces that were exchanged in the run that was drawn, and in the last one, to a reply.
 */
void vary_report(struct reply *reply);

/* Forgets the pieces. */
void vary_end(void);

#pragma GCC visibility pop

#endif
