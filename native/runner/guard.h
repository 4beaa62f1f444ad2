/* Faults of a kernel: out of bounds becomes a response, others end the process by their signal. */
#ifndef RUNNER_GUARD_H
#define RUNNER_GUARD_H

#pragma GCC visibility push(hidden)

void guard_install(void);

/* Sets a separate signal stack for the calling thread, since its usual one may have overflowed. */
void guard_thread(void);

#pragma GCC visibility pop

#endif
