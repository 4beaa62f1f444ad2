/* What kernels do beside the runs that are timed: threads and timers that outlive a launch, and the
 * time that the measured thread waited for a core. */
#ifndef RUNNER_WATCH_H
#define RUNNER_WATCH_H

#include <stdint.h>

#include "channel.h"

#pragma GCC visibility push(hidden)

/* Opens the files that it reads, and counts the threads there are; call before any kernel is
 * loaded. */
void watch_open(void);

/* Nanoseconds that the calling thread, the one of watch_open, was runnable without a core. */
uint64_t watch_queued(void);

/* Adds a report of lines `key=value` to the reply of a launch. */
void watch_report(struct reply *reply, uint64_t queued_ns);

#pragma GCC visibility pop

#endif
