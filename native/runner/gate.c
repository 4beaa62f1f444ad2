#define _GNU_SOURCE 1

#include "gate.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef HAS_GATE

/* clang-format off */
__asm__(
    ".text\n"
    ".hidden gate_call\n.globl gate_call\n.type gate_call, %function\n"
    ".hidden gate_return\n.globl gate_return\n"
    ".balign 16\n"
    "gate_call:\n"
#if defined(__aarch64__)
    "mov x8, x0\nmov x0, x1\nmov x1, x2\nmov x2, x3\nmov x3, x4\nmov x4, x5\nmov x5, x6\nsvc 0\n"
#elif defined(__x86_64__)
    "mov %rdi, %rax\nmov %rsi, %rdi\nmov %rdx, %rsi\nmov %rcx, %rdx\nmov %r8, %r10\n"
    "mov %r9, %r8\nmov 8(%rsp), %r9\nsyscall\n"
#else
    "mv a7, a0\nmv a0, a1\nmv a1, a2\nmv a2, a3\nmv a3, a4\nmv a4, a5\nmv a5, a6\necall\n"
#endif
    "gate_return:\n"
    "ret\n"
    ".size gate_call, . - gate_call\n");
/* clang-format on */

const unsigned long gate_default_action[8];

static long checked(long result) {
    if (result >= 0 || result < -4095)
        return result;
    errno = (int)-result;
    return -1;
}

long gate_receive(int socket, void *to, unsigned long bytes) {
    return checked(gate_call(SYS_recvfrom, socket, (long)to, (long)bytes, 0, 0, 0));
}

long gate_send(int socket, const void *message, int flags) {
    return checked(gate_call(SYS_sendmsg, socket, (long)message, flags, 0, 0, 0));
}

int gate_poll(void *descriptors, int milliseconds) {
    struct timespec most = {.tv_sec = milliseconds / 1000,
                            .tv_nsec = milliseconds % 1000 * 1000000L};
    return (int)checked(gate_call(SYS_ppoll, (long)descriptors, 1, (long)&most, 0, 0, 0));
}

void gate_reset_signal(int number) {
    enum { SET_BYTES = 8 };
    gate_call(SYS_rt_sigaction, number, (long)gate_default_action, 0, SET_BYTES, 0, 0);
}

#else

long gate_receive(int socket, void *to, unsigned long bytes) {
    return recv(socket, to, bytes, 0);
}

long gate_send(int socket, const void *message, int flags) {
    return sendmsg(socket, message, flags);
}

int gate_poll(void *descriptors, int milliseconds) {
    return poll(descriptors, 1, milliseconds);
}

void gate_reset_signal(int number) {
    signal(number, SIG_DFL);
}

#endif
