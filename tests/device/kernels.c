/* Kernels that do what they should, and kernels that do not, for every device that takes C. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <fcntl.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

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

void kl_entry(void *const *args);
void kl_entry(void *const *args) {
    count(args);
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

/* rounds: exactly three instructions for each */
void spin(void *const *args) {
    uintptr_t rounds = (uintptr_t)SIZE(0);
#if defined(__riscv)
    __asm__ volatile("1: nop\naddi %0, %0, -1\nbnez %0, 1b" : "+r"(rounds));
#elif defined(__x86_64__)
    __asm__ volatile("1: nop\ndec %0\njnz 1b" : "+r"(rounds)::"cc");
#else
    __asm__ volatile("1: nop\nsubs %0, %0, #1\nbne 1b" : "+r"(rounds)::"cc");
#endif
}

/* n, x, out: the C library, with a heap, errno and printing */
void library(void *const *args) {
    const double *x = args[1];
    double *out = args[2];
    double *squares = malloc((size_t)SIZE(0) * sizeof *squares);
    if (!squares)
        exit(7);
    errno = 0;
    for (int64_t i = 0; i < SIZE(0); i++)
        squares[i] = x[i] * x[i];
    for (int64_t i = 0; i < SIZE(0); i++)
        out[i] = sqrt(squares[i]) + exp(0.0) + errno;
    free(squares);
    printf("%d squares\n", (int)SIZE(0));
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

#ifdef __linux__
static void class_of_task(void *context, int64_t task) {
    int64_t *out = context;
    out[task] = sched_getscheduler(0);
}

/* threads, out[threads]: the scheduling class of each */
void scheduling_classes(void *const *args) {
    kl_parallel(SIZE(0), SIZE(0), class_of_task, args[1]);
}

/* out */
void ask_personality(void *const *args) {
    *(int64_t *)args[0] = personality(0xffffffff);
}
#endif

/* address */
void write_to(void *const *args) {
    *(volatile int *)(uintptr_t)SIZE(0) = 1;
}

/* address */
void read_from(void *const *args) {
    (void)*(volatile int *)(uintptr_t)SIZE(0);
}

/* address */
void jump_to(void *const *args) {
    ((void (*)(void))(uintptr_t)SIZE(0))();
}

void write_program(void *const *args) {
    (void)args;
    *(volatile int *)((uintptr_t)write_program & ~(uintptr_t)3) = 1;
}

/* divisor */
void divide(void *const *args) {
    volatile int divisor = (int)SIZE(0), quotient = 1000 / divisor;
    (void)quotient;
}

/* signal */
void raise_signal(void *const *args) {
    fprintf(stderr, "about to raise\n");
    raise((int)SIZE(0));
}

void illegal(void *const *args) {
    (void)args;
#if defined(__riscv)
    /* A trap would be a breakpoint there. */
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

void overflow_stack(void *const *args) {
    volatile int64_t start = 0;
    (void)args;
    deeper(&start);
}

/* code */
void leave(void *const *args) {
    fprintf(stderr, "about to leave\n");
    exit((int)SIZE(0));
}

void hang(void *const *args) {
    (void)args;
    for (volatile int going = 1; going;)
        ;
}

/* lines */
void chatter(void *const *args) {
    for (int64_t i = 0; i < SIZE(0); i++)
        puts("a line of very much that nobody wants to read, and then some");
}

void overflow_heap(void *const *args) {
    (void)args;
    volatile char *volatile block = malloc(10);
    block[10] = 1;
    free((void *)block);
}

/* index, buffer */
void write_float_at(void *const *args) {
    ((volatile float *)args[1])[SIZE(0)] = 1;
}

#ifdef __linux__
/* out: a process that neither the kernel's group nor its session knows any more */
void double_fork(void *const *args) {
    int ends[2];
    if (pipe(ends) != 0)
        exit(8);
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            int64_t mine = getpid();
            if (write(ends[1], &mine, sizeof mine) != sizeof mine)
                exit(9);
            for (;;)
                pause();
        }
        _exit(0);
    }
    if (read(ends[0], args[0], sizeof(int64_t)) != sizeof(int64_t))
        exit(10);
}

/* lower, out: a process of a session and an environment of its own; `lower` has it give up what it
 * may of the limit that marks it */
void escape(void *const *args) {
    int ends[2];
    char *const command[] = {"sleep", "100", NULL}, *const nothing[] = {NULL};
    const struct rlimit none = {0};
    int64_t ended;
    if (pipe(ends) != 0 || fcntl(ends[1], F_SETFD, FD_CLOEXEC) != 0)
        exit(8);
    if (fork() == 0) {
        int64_t mine = getpid();
        if (setsid() < 0 || (SIZE(0) && setrlimit(RLIMIT_LOCKS, &none) != 0) ||
            write(ends[1], &mine, sizeof mine) != sizeof mine)
            _exit(9);
        execve("/bin/sleep", command, nothing);
        _exit(9);
    }
    close(ends[1]);
    if (read(ends[0], args[1], sizeof(int64_t)) != sizeof(int64_t))
        exit(10);
    /* The end of the file: the other program has been started. */
    if (read(ends[0], &ended, sizeof ended) != 0)
        exit(11);
}

void kill_supervisor(void *const *args) {
    (void)args;
    kill(getppid(), SIGKILL);
    for (;;)
        pause();
}

/* bytes, out: the current folder, in which a file is left */
void current_folder(void *const *args) {
    FILE *file = fopen("left", "w");
    if (!getcwd(args[1], (size_t)SIZE(0)) || !file || fclose(file) != 0)
        exit(8);
}

/* whether to hang afterwards */
void close_descriptors(void *const *args) {
    for (int i = 0; i < 1024; i++)
        close(i);
    while (SIZE(0))
        pause();
}

void fork_and_hang(void *const *args) {
    int child = fork();
    if (child == 0)
        for (;;)
            pause();
    fprintf(stderr, "child %d\n", child);
    hang(args);
}
#endif
