/* Kernels that do what they should, and kernels that do not. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernloom/kernel.h"

#define SIZE(i) (*(const int64_t *)args[i])

/* n, alpha, x, y */
void axpy(void *const *args) {
    const float alpha = *(const float *)args[1];
    const float *x = args[2];
    float *y = args[3];
    for (int64_t i = 0; i < SIZE(0); i++)
        y[i] += alpha * x[i];
}

/* counter */
void count(void *const *args) {
    ++*(int64_t *)args[0];
}

/* counter */
void twice(void *const *args) {
    *(int64_t *)args[0] *= 2;
}

/* i64, f32, f64, out: the scalars as doubles */
void scalars(void *const *args) {
    double *out = args[3];
    out[0] = (double)SIZE(0);
    out[1] = (double)*(const float *)args[1];
    out[2] = *(const double *)args[2];
}

/* offset, buffer */
void write_at(void *const *args) {
    ((volatile char *)args[1])[SIZE(0)] = 0x11;
}

/* offset, buffer */
void read_at(void *const *args) {
    char byte = ((volatile char *)args[1])[SIZE(0)];
    (void)byte;
}

/* index, buffer */
void read_float_at(void *const *args) {
    float value = ((volatile float *)args[1])[SIZE(0)];
    (void)value;
}

struct out_of_task {
    char *data;
    int64_t offset;
};

static void write_in_task(void *context, int64_t task) {
    const struct out_of_task *out = context;
    if (task == 1)
        ((volatile char *)out->data)[out->offset] = 0x11;
}

/* offset, buffer */
void write_at_from_worker(void *const *args) {
    struct out_of_task out = {args[1], SIZE(0)};
    kl_parallel(2, 2, write_in_task, &out);
}

static void add_task(void *context, int64_t task) {
    int64_t *out = context;
    out[task] += task + 1;
}

/* tasks, threads, out[tasks] */
void parallel(void *const *args) {
    kl_parallel(SIZE(0), SIZE(1), add_task, args[2]);
}

static volatile int64_t *volatile kept;

/* buffer */
void keep(void *const *args) {
    kept = args[0];
}

void use_kept(void *const *args) {
    (void)args;
    *kept = 1;
}

void write_null(void *const *args) {
    (void)args;
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
}

/* signal */
void raise_signal(void *const *args) {
    fprintf(stderr, "about to raise\n");
    raise((int)SIZE(0));
}

void illegal(void *const *args) {
    (void)args;
    __builtin_trap();
}

static int64_t deeper(volatile int64_t *above) {
    volatile int64_t here[512];
    here[0] = *above + 1;
    return deeper(here) + here[0];
}

void overflow_stack(void *const *args) {
    volatile int64_t start = 0;
    (void)args;
    deeper(&start);
}

/* code */
void leave(void *const *args) {
    exit((int)SIZE(0));
}

void hang(void *const *args) {
    (void)args;
    for (volatile int going = 1; going;)
        ;
}

void fork_and_hang(void *const *args) {
    int child = fork();
    if (child == 0)
        for (;;)
            pause();
    fprintf(stderr, "child %d\n", child);
    hang(args);
}

void chatter(void *const *args) {
    (void)args;
    for (int i = 0; i < 400000; i++)
        printf("line %d of very much that nobody wants to read, and then some\n", i);
}

void overflow_heap(void *const *args) {
    (void)args;
    volatile char *volatile block = malloc(10);
    block[10] = 1;
    free((void *)block);
}
