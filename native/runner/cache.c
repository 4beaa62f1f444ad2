#include "cache.h"

#include <stdint.h>

#if defined(__aarch64__)

enum { CAN_FLUSH = 1 };

static size_t line_bytes(void) {
    uint64_t type;
    __asm__("mrs %0, ctr_el0" : "=r"(type));
    return (size_t)4 << (type >> 16 & 15);
}

static void flush_line(uintptr_t address) {
    __asm__ volatile("dc civac, %0" ::"r"(address) : "memory");
}

static void wait_for_flushes(void) {
    __asm__ volatile("dsb sy" ::: "memory");
}

#elif defined(__x86_64__)

enum { CAN_FLUSH = 1 };

static size_t line_bytes(void) {
    return 64;
}

static void flush_line(uintptr_t address) {
    __builtin_ia32_clflush((const void *)address);
}

static void wait_for_flushes(void) {
    __builtin_ia32_mfence();
}

#else

enum { CAN_FLUSH = 0 };

static size_t line_bytes(void) {
    return 64;
}

static void flush_line(uintptr_t address) {
    (void)address;
}

static void wait_for_flushes(void) {
}

#endif

bool cache_can_flush(void) {
    return CAN_FLUSH;
}

void cache_flush(const void *from, size_t bytes) {
    size_t line = line_bytes();
    uintptr_t end = (uintptr_t)from + bytes;
    wait_for_flushes();
    for (uintptr_t at = (uintptr_t)from / line * line; at < end; at += line)
        flush_line(at);
    wait_for_flushes();
}
