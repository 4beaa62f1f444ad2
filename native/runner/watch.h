/* What kernels do beside the runs that are timed: threads and timers that outlive a launch, and the
 * time that the measured thread waited for a core. */
#ifndef RUNNER_WATCH_H
#define RUNNER_WATCH_H

#include <stdint.h>

#include "channel.h"

#pragma GCC visibility push(hidden)

/* Opens the files that it reads, and counts the threads there are, in the open folder of them or
 * -1; call before any kernel is loaded. */
void watch_open(int folder_of_threads);

/* The files that it reads, or -1: no kernel may close them. */
void watch_descriptors(int *tasks, int *schedule);

/* Nanoseconds that the calling thread, the one of watch_open, was runnable without a core;
 * WATCH_UNKNOWN if the system does not tell. */
#define WATCH_UNKNOWN UINT64_MAX
uint64_t watch_queued(void);

/* What a launch knows of itself. */
struct watched {
    uint64_t queued_before, queued_after; /* watch_queued around the samples */
    uint64_t flush_ns;                    /* spent on flushing caches, outside of samples */
    uint64_t stride;                      /* runs between two changes of tensors, or 0 */
};

/* Adds a report of lines `key=value` to the reply of a launch. */
void watch_report(struct reply *reply, const struct watched *watched);

#pragma GCC visibility pop

#endif
