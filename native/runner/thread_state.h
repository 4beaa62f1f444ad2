/* State of a thread that a kernel must leave as it found it: how floating-point numbers are
 * rounded, what happens to denormal ones, and which signals are blocked. Of workers only the
 * floating-point state is checked, because reading the signal mask after each job would cost a
 * system call. */
#ifndef RUNNER_THREAD_STATE_H
#define RUNNER_THREAD_STATE_H

#include <stdbool.h>

#include "channel.h"

#pragma GCC visibility push(hidden)

/* Records the state of this thread. */
void thread_state_save(void);

/* Restores it. */
void thread_state_restore(void);

/* Gives a worker the floating-point state of the thread that was saved, and looks at it after a
 * job: what differs is restored, and reported by the next thread_state_intact. */
void thread_state_prepare_worker(void);
void thread_state_look_at_worker(void);

/* Restores it; false, with what a kernel changed in `reply`, if it differed. */
bool thread_state_intact(struct reply *reply);

#pragma GCC visibility pop

#endif
