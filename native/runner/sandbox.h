/* The sandbox: what kernels may not ask of the system, as a filter of system calls (seccomp) that
 * the process enters before its first kernel runs. */
#ifndef RUNNER_SANDBOX_H
#define RUNNER_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Groups of system calls that a workload may allow: also in build/admission.py. Libraries of its
 * own are loaded outside the sandbox, which the process enters at the first launch then. */
enum sandbox_group {
    SANDBOX_FILES = 1,
    SANDBOX_NETWORK = 2,
    SANDBOX_PROCESSES = 4,
    SANDBOX_SIGNALS = 8,
    SANDBOX_TIMERS = 16,
    SANDBOX_LIBRARIES = 32,
    SANDBOX_READING = 64, /* of files: no workload's, but that of sanitizers and accelerators */
};

enum sandbox_check {
    SANDBOX_NEVER,
    SANDBOX_NOT_THERE,       /* fails with ENOSYS, so that the C library takes an older call */
    SANDBOX_THREAD,          /* for threads only, by the flags of clone() */
    SANDBOX_MEMORY,          /* not for memory of the runner: the first two arguments */
    SANDBOX_MAPPING,         /* nor for executable memory, except by the dynamic linker */
    SANDBOX_PROTECTION,      /* the same, for memory that is there */
    SANDBOX_MOVE,            /* neither from nor to memory of the runner */
    SANDBOX_READ_ONLY_1,     /* by the flags of open(), the second argument: see sandbox_checks.c */
    SANDBOX_READ_ONLY_2,     /* the same, the third argument */
    SANDBOX_HANDLER,         /* asks only, or is for signals that the C library keeps to itself */
    SANDBOX_OWN_PROCESS,     /* the first argument is this process */
    SANDBOX_DESCRIPTOR,      /* the first argument is no descriptor of the runner */
    SANDBOX_DESCRIPTORS,     /* the first two are not */
    SANDBOX_QUESTION,        /* the third argument, a pointer, is null */
    SANDBOX_PROCESS_SETTING, /* the settings of prctl() that the C library uses */
    SANDBOX_PERSONALITY,     /* asks only */
    SANDBOX_CHECKS,          /* how many there are */
};

/* A rule: a system call, and when it is refused. */
struct sandbox_rule {
    int number;
    const char *name;
    const char *attempt; /* after "the kernel tried to" */
    enum sandbox_check check;
    uint32_t groups; /* any of these allows it; 0: none does */
};

extern const struct sandbox_rule SANDBOX_RULES[];
extern const size_t SANDBOX_RULE_COUNT;

struct sandbox_owned {
    int channel, tasks, schedule; /* descriptors, or -1 */
    const unsigned char *window;
    uint64_t window_bytes;
};

/* The groups in a comma-separated list; false for an unknown one. */
bool sandbox_groups(const char *list, uint32_t *groups);

/* What the runner keeps from kernels, and what it allows them. */
void sandbox_prepare(struct sandbox_owned owned, uint32_t groups);

/* Whether libraries of a workload may still be loaded, which make system calls by themselves. */
bool sandbox_waits(void);

/* Enters the sandbox before the first kernel runs, if it is prepared; later calls do nothing.
 * `inside` says whether an address is part of a kernel, which makes no system calls by itself.
 * Returns whether the process is in the sandbox. */
bool sandbox_enter(bool (*inside)(const void *start, const void *end));

/* Writes what a kernel tried, from the data that its filter attached to SIGSYS. Safe in a signal
 * handler. */
void sandbox_describe(int data, int number, void (*append)(const char *text),
                      void (*append_number)(int64_t number));

#pragma GCC visibility pop

#endif
