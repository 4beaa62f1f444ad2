/* What the runner asks of the system for itself: limits, its parent, its cores, its addresses. */
#ifndef RUNNER_PROCESS_H
#define RUNNER_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Leave no core file and fill no disk. An emulator writes core files of its own accord. */
void process_limit(bool emulated);

/* Die with the supervisor, take no more than `data_limit` bytes of private memory (0: any number),
 * be the first to go when memory is short. */
void process_confine(bool emulated, uint64_t data_limit);

/* Makes an open folder the current one, and closes it. */
bool process_enter(int folder);

/* How many cores this process may use; to be called before pinning. */
int process_cores(void);

bool process_pin(int cpu);

/* Where the main thread is pinned, a worker takes the next core of those allowed. */
void process_pin_worker(int worker);

/* Executes this program again, once, with the same addresses every time. Returns where that is so
 * already or where the system refuses it, which is then said on stderr. */
void process_fix_addresses(char **arguments);

/* Whether a process started from this one gets other addresses each time. */
bool process_randomized(void);

/* Puts every thread of the process into the real-time class, at its lowest priority; threads that
 * they start follow. False, and nothing changed, where the system does not permit it. */
bool process_start_realtime(void);

/* Back to the class from before process_start_realtime. */
void process_end_realtime(void);

#pragma GCC visibility pop

#endif
