#define _GNU_SOURCE 1

#include "thread_state.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The control bits of the floating-point units; flags of exceptions are nobody's. */
struct float_control {
    uint64_t word;
    uint16_t x87;
};

static struct float_control saved_control;
static sigset_t saved_signals;
static _Atomic(const char *) changed_by_worker;

#if defined(__aarch64__)

static const uint64_t ROUNDING = 3u << 22, DENORMALS = 1u << 24 | 1u << 19;

static struct float_control read_control(void) {
    struct float_control found = {0};
    __asm__ volatile("mrs %0, fpcr" : "=r"(found.word));
    return found;
}

static void write_control(struct float_control control) {
    __asm__ volatile("msr fpcr, %0" ::"r"(control.word));
}

#elif defined(__x86_64__)

static const uint64_t ROUNDING = 0x6000, DENORMALS = 0x8040;
static const uint32_t MXCSR_FLAGS = 0x3f;

static struct float_control read_control(void) {
    struct float_control found;
    uint32_t word;
    __asm__ volatile("stmxcsr %0" : "=m"(word));
    __asm__ volatile("fnstcw %0" : "=m"(found.x87));
    found.word = word & ~MXCSR_FLAGS;
    return found;
}

static void write_control(struct float_control control) {
    uint32_t word = (uint32_t)control.word;
    __asm__ volatile("ldmxcsr %0" ::"m"(word));
    __asm__ volatile("fldcw %0" ::"m"(control.x87));
}

#elif defined(__riscv) && defined(__riscv_flen)

static const uint64_t ROUNDING = 7, DENORMALS = 0;

static struct float_control read_control(void) {
    struct float_control found = {0};
    __asm__ volatile("frrm %0" : "=r"(found.word));
    return found;
}

static void write_control(struct float_control control) {
    __asm__ volatile("fsrm %0" ::"r"(control.word));
}

#else

static const uint64_t ROUNDING = 0, DENORMALS = 0;

static struct float_control read_control(void) {
    return (struct float_control){0};
}

static void write_control(struct float_control control) {
    (void)control;
}

#endif

void thread_state_save(void) {
    saved_control = read_control();
    pthread_sigmask(SIG_SETMASK, NULL, &saved_signals);
}

void thread_state_restore(void) {
    write_control(saved_control);
    pthread_sigmask(SIG_SETMASK, &saved_signals, NULL);
}

static const char *changed_control(struct float_control now) {
    uint64_t bits = now.word ^ saved_control.word;
    if (bits & ROUNDING)
        return "the rounding of floating-point numbers";
    if (bits & DENORMALS)
        return "the treatment of denormal numbers";
    if (bits || now.x87 != saved_control.x87)
        return "the control word of the floating-point unit";
    return NULL;
}

static const char *changed_signals(void) {
    sigset_t signals;
    pthread_sigmask(SIG_SETMASK, NULL, &signals);
    for (int number = 1; number < SIGRTMIN; number++)
        if (sigismember(&signals, number) != sigismember(&saved_signals, number))
            return "the blocked signals";
    return NULL;
}

void thread_state_prepare_worker(void) {
    write_control(saved_control);
}

void thread_state_look_at_worker(void) {
    const char *what = changed_control(read_control());
    if (!what)
        return;
    write_control(saved_control);
    atomic_store(&changed_by_worker, what);
}

bool thread_state_intact(struct reply *reply) {
    const char *what = changed_control(read_control());
    if (!what)
        what = changed_signals();
    if (what)
        thread_state_restore();
    const char *of_worker = atomic_exchange(&changed_by_worker, NULL);
    if (!what && !of_worker)
        return true;
    reply_fail(reply, KL_STATUS_CHANGED_STATE, "a kernel changed %s%s and did not restore it",
               what ? what : of_worker, what ? "" : " in a thread of kl_parallel");
    return false;
}
