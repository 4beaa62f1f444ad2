/* System calls that the sandbox allows to the runner alone, on the channel to the engine: all made
 * by one instruction. */
#ifndef RUNNER_GATE_H
#define RUNNER_GATE_H

#include <stdint.h>

#if defined(__aarch64__) || defined(__x86_64__) || (defined(__riscv) && __riscv_xlen == 64)
#define HAS_GATE 1
#endif

#pragma GCC visibility push(hidden)

#ifdef HAS_GATE

/* Returns what the system returns: -errno for a failure. */
long gate_call(long number, long a, long b, long c, long d, long e, long f);

/* The address after the system call's instruction. */
extern const char gate_return[];

/* The system's own struct, all zero: SIG_DFL, no flags, no signals. */
extern const unsigned long gate_default_action[8];

#endif

/* recv(), sendmsg() and poll(), and signal(number, SIG_DFL): with their results, and errno. */
long gate_receive(int socket, void *to, unsigned long bytes);
long gate_send(int socket, const void *message, int flags);
int gate_poll(void *descriptors, int milliseconds);
void gate_reset_signal(int number);

#pragma GCC visibility pop

#endif
