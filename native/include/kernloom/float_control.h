/* The control state of a CPU's floating-point unit: rounding and the treatment of denormal numbers,
 * without the flags of exceptions. A calling convention asks functions to leave it as it is. */
#ifndef KERNLOOM_FLOAT_CONTROL_H
#define KERNLOOM_FLOAT_CONTROL_H

#include <stddef.h>
#include <stdint.h>

struct kl_float_control {
    uint64_t word;
    uint16_t x87;
};

#if defined(__aarch64__)

enum { KL_FLOAT_ROUNDING = 3 << 22, KL_FLOAT_DENORMALS = 1 << 24 | 1 << 19 };

static inline struct kl_float_control kl_float_read(void) {
    struct kl_float_control found = {0, 0};
    __asm__ volatile("mrs %0, fpcr" : "=r"(found.word));
    return found;
}

static inline void kl_float_write(struct kl_float_control control) {
    __asm__ volatile("msr fpcr, %0" ::"r"(control.word));
}

#elif defined(__x86_64__)

enum { KL_FLOAT_ROUNDING = 0x6000, KL_FLOAT_DENORMALS = 0x8040, KL_FLOAT_FLAGS = 0x3f };

static inline struct kl_float_control kl_float_read(void) {
    struct kl_float_control found = {0, 0};
    uint32_t word;
    __asm__ volatile("stmxcsr %0" : "=m"(word));
    __asm__ volatile("fnstcw %0" : "=m"(found.x87));
    found.word = word & ~(uint32_t)KL_FLOAT_FLAGS;
    return found;
}

static inline void kl_float_write(struct kl_float_control control) {
    uint32_t word = (uint32_t)control.word;
    __asm__ volatile("ldmxcsr %0" ::"m"(word));
    __asm__ volatile("fldcw %0" ::"m"(control.x87));
}

#elif defined(__riscv) && defined(__riscv_flen)

enum { KL_FLOAT_ROUNDING = 7, KL_FLOAT_DENORMALS = 0 };

static inline struct kl_float_control kl_float_read(void) {
    struct kl_float_control found = {0, 0};
    __asm__ volatile("frrm %0" : "=r"(found.word));
    return found;
}

static inline void kl_float_write(struct kl_float_control control) {
    __asm__ volatile("fsrm %0" ::"r"(control.word));
}

#else

enum { KL_FLOAT_ROUNDING = 0, KL_FLOAT_DENORMALS = 0 };

static inline struct kl_float_control kl_float_read(void) {
    struct kl_float_control none = {0, 0};
    return none;
}

static inline void kl_float_write(struct kl_float_control control) {
    (void)control;
}

#endif

/* Restores the state of before; returns what was changed since, or NULL. */
static inline const char *kl_float_restore(struct kl_float_control before) {
    struct kl_float_control now = kl_float_read();
    uint64_t bits = now.word ^ before.word;
    if (!bits && now.x87 == before.x87)
        return NULL;
    kl_float_write(before);
    if (bits & KL_FLOAT_ROUNDING)
        return "the rounding of floating-point numbers";
    if (bits & KL_FLOAT_DENORMALS)
        return "the treatment of denormal numbers";
    return "the control word of the floating-point unit";
}

#endif
