/* What a part's own start-up code (armv7m/, rv64/) and the rest of the firmware need of each other.
 */
#ifndef KERNLOOM_PART_H
#define KERNLOOM_PART_H

#include <stdbool.h>
#include <stdint.h>

/* Set by the linker: where the memories lie and what is in them. */
extern char kl_flash_base[], kl_flash_size[], kl_ram_base[], kl_ram_size[], kl_data_from[],
    kl_data_start[], kl_data_end[], kl_bss_start[], kl_bss_end[], kl_heap_end[];

/* Of the part: before anything else; and the instructions between which is counted. */
void part_set_up(void);
static inline void part_begin(void);
static inline void part_end(void);
/* One request to the machine that the part is attached to. */
intptr_t part_semihost(intptr_t operation, void *block);

/* Of the firmware: where start-up code goes when there is a stack, and when something went wrong.
 */
void firmware_start(void) __attribute__((noreturn));
void firmware_fault(const char *name, bool has_address, uintptr_t address, bool has_pc,
                    uintptr_t pc) __attribute__((noreturn));
/* A kernel that calls exit, or raises a signal, has not done its work. */
void firmware_left(bool by_signal, int code) __attribute__((noreturn));

#include "markers.h"

#endif
