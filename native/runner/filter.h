/* Builder of a seccomp filter: instructions of classic BPF. */
#ifndef RUNNER_FILTER_H
#define RUNNER_FILTER_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Where the low half of the address after the call's instruction is; the high one follows. */
#define FILTER_AT offsetof(struct seccomp_data, instruction_pointer)

/* Returns its place. */
size_t filter_emit(uint16_t what, uint32_t value, uint8_t if_true, uint8_t if_false);
void filter_load(size_t offset);
void filter_answer(uint32_t value);

/* Where the low half of an argument is; the high one follows. */
size_t filter_argument(int argument);

/* Emits an unconditional jump of any length; filter_land() makes it end at the next instruction. */
size_t filter_jump(void);
void filter_land(size_t jump);

/* A range of memory that a call names: the numbers of two arguments, an address and a size. */
struct filter_memory {
    int address, size;
};

/* Computes the end of the range. */
void filter_end_of_memory(struct filter_memory memory);

/* After filter_end_of_memory: returns the answer if the range overlaps [start, end), else falls
 * through. */
void filter_refuse_memory(struct filter_memory memory, uint64_t start, uint64_t end,
                          uint32_t answer);

/* False if it is too long. */
bool filter_program(struct sock_fprog *program);

#pragma GCC visibility pop

#endif
