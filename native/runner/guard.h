/* Faults of a kernel: out of bounds becomes a response, everything else a death by its signal. */
#ifndef RUNNER_GUARD_H
#define RUNNER_GUARD_H

#pragma GCC visibility push(hidden)

void guard_install(void);

/* A signal stack of its own for the calling thread: its usual one may be what overflowed. */
void guard_thread(void);

#pragma GCC visibility pop

#endif
