/* Worker threads of kl_parallel (kernloom/kernel.h). */
#ifndef RUNNER_PARALLEL_H
#define RUNNER_PARALLEL_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Sets the number of usable cores, a function that every worker calls first with its number,
 * starting at 1, and one that it calls after each job. Call before the first launch. */
void parallel_open(int cores, void (*prepare)(int worker), void (*after)(void));

/* CPU time of all workers so far, in nanoseconds. */
uint64_t parallel_cpu(void);

/* Number of workers. */
int parallel_workers(void);

#pragma GCC visibility pop

#endif
