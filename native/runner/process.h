/* What the runner asks of the system for itself: limits, its parent, its cores. */
#ifndef RUNNER_PROCESS_H
#define RUNNER_PROCESS_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* Die with the engine, leave no core file, fill no disk, be the first to go when memory is short.
 * An emulator writes core files of its own accord. */
void process_confine(bool emulated);

/* How many cores this process may use; to be called before pinning. */
int process_cores(void);

bool process_pin(int cpu);

/* Where the main thread is pinned, a worker takes the next core of those allowed. */
void process_pin_worker(int worker);

#pragma GCC visibility pop

#endif
