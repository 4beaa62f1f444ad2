/* The checks of rules, as parts of the sandbox's filter. */
#ifndef RUNNER_SANDBOX_CHECKS_H
#define RUNNER_SANDBOX_CHECKS_H

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox.h"

#pragma GCC visibility push(hidden)

enum {
    MAX_RANGES = 64,
    /* Data of SIGSYS: a system call from the code of a kernel, one of another instruction set, and
     * one for memory of the runner; and one that a rule refuses. */
    BY_ITSELF = 0xFFFF,
    OTHER_MACHINE = 0xFFFE,
    OF_RUNNER = 0xFFFD,
    BY_RULE = 0xFFFC,
};

#define SANDBOX_REFUSED (SECCOMP_RET_TRAP | BY_RULE)

/* Input of the filter: ranges of code that may make system calls, and the runner's descriptors and
 * window. Addresses are two halves of 32 bits; a range has one high half. */
struct sandbox_runner {
    struct sandbox_owned owned;
    bool reading; /* of files is allowed */
    struct sandbox_range {
        uint32_t high, low, last;
        bool of_linker;
    } ranges[MAX_RANGES];
    size_t range_count;
};

extern struct sandbox_runner sandbox_runner;

/* Allows if the low half of the argument is `value`. */
void sandbox_allow_if_equal(int argument, uint32_t value);

/* A jump that is taken if the call's instruction is in the range. */
size_t sandbox_jump_from(struct sandbox_range range);

/* Emits a check, which allows or refuses. That of memory is emitted last, for the others jump to
 * it. */
void sandbox_emit_check(enum sandbox_check check);
void sandbox_emit_memory_check(void);

#pragma GCC visibility pop

#endif
