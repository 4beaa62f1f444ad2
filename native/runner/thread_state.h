/* State of a thread that a kernel must leave as it found it: how floating-point numbers are
 * rounded, what happens to denormal ones, and which signals are blocked. */
#ifndef RUNNER_THREAD_STATE_H
#define RUNNER_THREAD_STATE_H

#include <stdbool.h>

#include "channel.h"

#pragma GCC visibility push(hidden)

/* Records the state of this thread. */
void thread_state_save(void);

/* Restores it. */
void thread_state_restore(void);

/* Restores it; false, with what a kernel changed in `reply`, if it differed. */
bool thread_state_intact(struct reply *reply);

#pragma GCC visibility pop

#endif
