/* Process settings of the runner: limits, parent, cores, addresses, scheduling. */
#ifndef RUNNER_PROCESS_H
#define RUNNER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Writes no core file and limits file sizes. An emulator writes core files by itself. */
void process_limit(bool emulated);

/* Closes the descriptors that whoever started the engine had open, since kernels could use them:
 * all but the standard streams and those that are kept. */
void process_close_inherited(const int *kept, size_t count);

/* Dies with the supervisor, uses at most `data_limit` bytes of private memory (0: no limit), and is
 * the first choice of the OOM killer. */
void process_confine(bool emulated, uint64_t data_limit);

/* Makes an open folder the current one, and closes its descriptor. */
bool process_enter(int folder);

/* Number of cores this process may use; call before pinning. */
int process_cores(void);

bool process_pin(int cpu);

/* Pins a worker to the next allowed core, if the main thread is pinned. */
void process_pin_worker(int worker);

/* Executes this program again, once, without address randomization. Returns if that is already off,
 * or if the system refuses it, with a message on stderr. */
void process_fix_addresses(char **arguments);

/* Whether a process started from this one gets random addresses. */
bool process_randomized(void);

/* Opens the folder of this process's threads, which the sandbox does not let open, and returns its
 * descriptor or -1. */
int process_open_threads(void);

/* Puts every thread of the process, and threads they start, into the real-time class at its lowest
 * priority. False, with nothing changed, if the system does not permit it. */
bool process_start_realtime(void);

/* Restores the class from before process_start_realtime. */
void process_end_realtime(void);

#pragma GCC visibility pop

#endif
