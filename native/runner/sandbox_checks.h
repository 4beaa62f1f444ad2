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

/* What the filter keeps: the code that may make system calls, [start, end], as two halves of the
 * same 4 GiB, and what else is the runner's. */
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

/* Allows or refuses: nothing follows it but other checks, and that of memory at last. */
void sandbox_emit_check(enum sandbox_check check);
void sandbox_emit_memory_check(void);

#pragma GCC visibility pop

#endif
