/* The threads behind kl_parallel (kernloom/kernel.h). */
#ifndef RUNNER_PARALLEL_H
#define RUNNER_PARALLEL_H

#pragma GCC visibility push(hidden)

/* How many cores there are to use, and what every worker calls first, with its number, starting
 * at 1. To be called before the first launch. */
void parallel_open(int cores, void (*prepare)(int worker));

#pragma GCC visibility pop

#endif
