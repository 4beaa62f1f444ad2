/* Interface between a part's start-up code (armv7m/, rv64/) and the rest of the firmware. */
#ifndef KERNLOOM_PART_H
#define KERNLOOM_PART_H

#include <stdbool.h>
#include <stdint.h>

/* Set by the linker: memories and sections. */
extern char kl_flash_base[], kl_flash_size[], kl_ram_base[], kl_ram_size[], kl_data_from[],
    kl_data_start[], kl_data_end[], kl_bss_start[], kl_bss_end[], kl_heap_end[];

/* Provided by the part: set-up, called first, and the markers of the counted region. */
void part_set_up(void);
static inline void part_begin(void);
static inline void part_end(void);
/* One request to the host machine. */
intptr_t part_semihost(intptr_t operation, void *block);

/* Provided by the firmware: called by start-up code once there is a stack, and on a fault. */
void firmware_start(void) __attribute__((noreturn));
void firmware_fault(const char *name, bool has_address, uintptr_t address, bool has_pc,
                    uintptr_t pc) __attribute__((noreturn));
/* A kernel that calls exit, or raises a signal, has failed. */
void firmware_left(bool by_signal, int code) __attribute__((noreturn));

#include "markers.h"

#endif
