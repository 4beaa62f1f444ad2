/* The kernels of kernels.c for accelerators: what they reach is copied through SRAM. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernloom/core.h"

#ifndef CORE_TYPE
#define CORE_TYPE 1 /* KL_CORE_VECTOR */
#endif

const uint32_t kl_core_type = CORE_TYPE;

static void *loaded(struct kl_core *core, uint64_t from, uint64_t bytes) {
    void *to = kl_allocate(core, bytes);
    kl_wait(core, kl_load(core, to, from, bytes));
    return to;
}

/* n, alpha, x, y */
void axpy(struct kl_core *core, const uint64_t *args) {
    uint64_t bytes = args[0] * sizeof(float);
    float alpha, *x = loaded(core, args[2], bytes), *y = loaded(core, args[3], bytes);
    memcpy(&alpha, &args[1], sizeof alpha);
    for (uint64_t i = 0; i < args[0]; i++)
        y[i] += alpha * x[i];
    kl_charge(core, KL_UNIT_VECTOR, KL_DTYPE_FLOAT32, 2 * args[0]);
    kl_wait(core, kl_store(core, args[3], y, bytes));
}

/* counter */
void count(struct kl_core *core, const uint64_t *args) {
    int64_t *number = loaded(core, args[0], sizeof *number);
    ++*number;
    kl_charge(core, KL_UNIT_SCALAR, KL_DTYPE_INT64, 1);
    kl_wait(core, kl_store(core, args[0], number, sizeof *number));
}

void kl_core_entry(struct kl_core *core, const uint64_t *args) {
    count(core, args);
}

/* counter */
void twice(struct kl_core *core, const uint64_t *args) {
    int64_t *number = loaded(core, args[0], sizeof *number);
    *number *= 2;
    kl_wait(core, kl_store(core, args[0], number, sizeof *number));
}

/* i64, f32, f64, out: the scalars as doubles */
void scalars(struct kl_core *core, const uint64_t *args) {
    double *out = kl_allocate(core, 3 * sizeof *out);
    float narrow;
    memcpy(&narrow, &args[1], sizeof narrow);
    out[0] = (double)(int64_t)args[0];
    out[1] = (double)narrow;
    memcpy(&out[2], &args[2], sizeof out[2]);
    kl_wait(core, kl_store(core, args[3], out, 3 * sizeof *out));
}

/* cycles */
void spin(struct kl_core *core, const uint64_t *args) {
    kl_charge_cycles(core, KL_UNIT_SCALAR, args[0]);
}

/* offset, buffer */
void write_at(struct kl_core *core, const uint64_t *args) {
    unsigned char *byte = kl_allocate(core, 1);
    *byte = 0x11;
    kl_wait(core, kl_store(core, args[1] + args[0], byte, 1));
}

/* offset, buffer */
void read_at(struct kl_core *core, const uint64_t *args) {
    loaded(core, args[1] + args[0], 1);
}

/* address of this process */
void write_to(struct kl_core *core, const uint64_t *args) {
    (void)core;
    *(volatile int *)(uintptr_t)args[0] = 1;
}

/* divisor */
void divide(struct kl_core *core, const uint64_t *args) {
    (void)core;
    volatile int divisor = (int)args[0], quotient = 1000 / divisor;
    (void)quotient;
}

/* signal */
void raise_signal(struct kl_core *core, const uint64_t *args) {
    (void)core;
    fprintf(stderr, "about to raise\n");
    raise((int)args[0]);
}

void illegal(struct kl_core *core, const uint64_t *args) {
    (void)core;
    (void)args;
#if defined(__riscv)
    __asm__ volatile("unimp");
#else
    __builtin_trap();
#endif
}

static int64_t deeper(volatile int64_t *above) {
    volatile int64_t here[64];
    here[0] = *above + 1;
    return deeper(here) + here[0];
}

void overflow_stack(struct kl_core *core, const uint64_t *args) {
    volatile int64_t start = 0;
    (void)core;
    (void)args;
    deeper(&start);
}

/* code */
void leave(struct kl_core *core, const uint64_t *args) {
    (void)core;
    fprintf(stderr, "about to leave\n");
    exit((int)args[0]);
}

void hang(struct kl_core *core, const uint64_t *args) {
    (void)core;
    (void)args;
    for (volatile int going = 1; going;)
        ;
}

/* lines */
void chatter(struct kl_core *core, const uint64_t *args) {
    (void)core;
    for (uint64_t i = 0; i < args[0]; i++)
        puts("a line of very much that nobody wants to read, and then some");
}

/* bytes: of SRAM, all of which is written */
void take_sram(struct kl_core *core, const uint64_t *args) {
    memset(kl_allocate(core, args[0]), 1, args[0]);
}

/* offset: from the end of an allocation */
void overrun_sram(struct kl_core *core, const uint64_t *args) {
    volatile unsigned char *bytes = kl_allocate(core, 100);
    bytes[100 + args[0]] = 1;
}

static int64_t raced;

static void *add(void *nothing) {
    for (int i = 0; i < 1000; i++)
        raced++;
    return nothing;
}

void race(struct kl_core *core, const uint64_t *args) {
    pthread_t other;
    (void)core;
    (void)args;
    pthread_create(&other, NULL, add, NULL);
    add(NULL);
    pthread_join(other, NULL);
}

/* unit, dtype, operations */
void compute(struct kl_core *core, const uint64_t *args) {
    kl_charge(core, (uint32_t)args[0], (uint32_t)args[1], args[2]);
}

/* unit, cycles */
void compute_cycles(struct kl_core *core, const uint64_t *args) {
    kl_charge_cycles(core, (uint32_t)args[0], args[1]);
}

/* tag */
void wait_for(struct kl_core *core, const uint64_t *args) {
    kl_wait(core, (kl_tag)args[0]);
}

/* buffer: loaded to memory that is not SRAM */
void load_elsewhere(struct kl_core *core, const uint64_t *args) {
    int64_t number;
    kl_wait(core, kl_load(core, &number, args[0], sizeof number));
}

/* rows, row bytes, stride in device memory, from, to: a rectangle, packed in SRAM */
void gather(struct kl_core *core, const uint64_t *args) {
    const struct kl_rows rows = {args[0], args[1], args[2], args[1]};
    void *tile = kl_allocate(core, args[0] * args[1]);
    kl_wait(core, kl_load_rows(core, tile, args[3], rows));
    kl_wait(core, kl_store(core, args[4], tile, args[0] * args[1]));
}

/* rows, buffer: rows of no bytes, loaded and stored */
void move_nothing(struct kl_core *core, const uint64_t *args) {
    const struct kl_rows rows = {args[0], 0, 64, 64};
    void *tile = kl_allocate(core, 64);
    kl_wait(core, kl_load_rows(core, tile, args[1], rows));
    kl_wait(core, kl_store_rows(core, args[1], tile, rows));
}

/* place, out: the thread that runs this kernel */
void thread_at(struct kl_core *core, const uint64_t *args) {
    int64_t *id = kl_allocate(core, sizeof *id);
    *id = (int64_t)syscall(SYS_gettid);
    kl_wait(core, kl_store(core, args[1] + args[0] * sizeof *id, id, sizeof *id));
}

/* fails: whether an allocation fails; otherwise it crashes */
void allocate_or_crash(struct kl_core *core, const uint64_t *args) {
    (void)core;
    if (args[0])
        errno = ENOMEM;
    else
        *(volatile int *)0 = 1;
}

void give_up(struct kl_core *core, const uint64_t *args) {
    (void)args;
    core->functions->fail(core, "the tiles do not divide the rows");
}

/* out: sip, cube and PE */
void where(struct kl_core *core, const uint64_t *args) {
    uint16_t *place = kl_allocate(core, 3 * sizeof *place);
    place[0] = core->sip;
    place[1] = core->cube;
    place[2] = core->pe;
    kl_wait(core, kl_store(core, args[0], place, 3 * sizeof *place));
}

/* from, to: what fresh SRAM, a load before its wait, and a source that changes are worth */
void impatient(struct kl_core *core, const uint64_t *args) {
    int64_t *early = kl_allocate(core, sizeof *early), *late = kl_allocate(core, sizeof *late);
    int64_t *fresh = kl_allocate(core, sizeof *fresh), *number = loaded(core, args[0], 8);
    kl_wait(core, kl_store(core, args[1], fresh, 8));
    kl_tag tag = kl_load(core, early, args[0], 8);
    *late = *early;
    kl_wait(core, tag);
    kl_wait(core, kl_store(core, args[1] + 8, late, 8));
    tag = kl_store(core, args[1] + 16, number, 8);
    *number = 5;
    kl_wait(core, tag);
    /* The end of the kernel waits as well. */
    kl_store(core, args[1] + 24, number, 8);
    kl_load(core, early, args[0], 8);
    kl_store(core, args[1] + 32, early, 8);
}
