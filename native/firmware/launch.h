/* Launch protocol between engine and firmware, as two files. All numbers are 64 bits wide,
 * little-endian, on every part.
 *
 * In: struct launch; `words` numbers; `bytes` bytes of memory. The numbers are, for each call, the
 * address of its function, the number of its arguments, and two for each argument: its kind and an
 * address or a value.
 * Out: struct report; if the calls completed, also the memory afterwards. */
#ifndef KERNLOOM_LAUNCH_H
#define KERNLOOM_LAUNCH_H

#include <stdint.h>

#define LAUNCH_MAGIC UINT64_C(0x316d77666c6b) /* "klfwm1" */

enum { MOST_WORDS = 1024, MOST_ARGUMENTS = 64, NAME_BYTES = 64 };
enum { ARGUMENT_BUFFER = 0, ARGUMENT_SCALAR = 1 };
enum { REPORT_DONE, REPORT_FAULT, REPORT_LEFT, REPORT_SIGNAL, REPORT_REFUSED };

struct launch {
    uint64_t magic;
    uint64_t warmup; /* uncounted iterations, first */
    uint64_t inner;  /* counted iterations */
    uint64_t calls;
    uint64_t words;
    uint64_t address;
    uint64_t bytes;
};

struct report {
    uint64_t magic;
    uint64_t status;
    uint64_t code;    /* exit code of a kernel, or the signal it raised */
    uint64_t address; /* address of a fault, if has_address */
    uint64_t has_address;
    uint64_t pc; /* program counter of a fault, if has_pc */
    uint64_t has_pc;
    char name[NAME_BYTES]; /* a fault's name, or the problem of the launch */
};

#endif
