#include "parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "kernloom/kernel.h"

enum { MAX_WORKERS = 255, MAX_SPINS = 4000 };

/* Participant 0 is the caller, participant p is worker p. Each starts with task p, so that a kernel
 * with as many tasks as threads finds its data in the same caches every time; the remaining tasks
 * go to idle participants. The next job starts only after every participant has left this one. */
struct job {
    kl_task_function body;
    void *context;
    int64_t tasks;
};

static struct job job;
static atomic_int_fast64_t next_task;
static atomic_int remaining; /* participants, except the caller, that are still working */
static atomic_uint generation;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t job_started = PTHREAD_COND_INITIALIZER;
static pthread_cond_t job_done = PTHREAD_COND_INITIALIZER;

static int workers;
static int cores = 1;
static atomic_int spins;
static void (*on_start)(int worker);
static void (*on_done)(void);

void parallel_open(int available, void (*prepare)(int worker), void (*after)(void)) {
    cores = available;
    on_start = prepare;
    on_done = after;
}

static void relax(void) {
#if defined(__aarch64__)
    __asm__ volatile("yield");
#elif defined(__x86_64__)
    __asm__ volatile("pause");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void work(int participant) {
    int64_t task = participant;
    while (task < job.tasks) {
        job.body(job.context, task);
        task = atomic_fetch_add(&next_task, 1);
    }
}

static unsigned wait_for_job(unsigned seen) {
    for (int i = atomic_load(&spins); i > 0; i--) {
        unsigned current = atomic_load(&generation);
        if (current != seen)
            return current;
        relax();
    }
    pthread_mutex_lock(&mutex);
    while (atomic_load(&generation) == seen)
        pthread_cond_wait(&job_started, &mutex);
    pthread_mutex_unlock(&mutex);
    return atomic_load(&generation);
}

struct start {
    int number;
    unsigned generation;
};

static struct start starts[MAX_WORKERS + 1];
static clockid_t clocks[MAX_WORKERS + 1];

static void *worker(void *argument) {
    struct start start = *(struct start *)argument;
    if (on_start)
        on_start(start.number);
    unsigned seen = start.generation;
    for (;;) {
        seen = wait_for_job(seen);
        /* Idle workers are not waited for, so they must not read the job: the low byte of the
         * generation is the number of participating workers. */
        if (start.number > (int)(seen & 0xFFu))
            continue;
        work(start.number);
        if (on_done)
            on_done();
        if (atomic_fetch_sub(&remaining, 1) == 1) {
            pthread_mutex_lock(&mutex);
            pthread_cond_signal(&job_done);
            pthread_mutex_unlock(&mutex);
        }
    }
    return NULL;
}

static void add_workers(int wanted) {
    while (workers < wanted && workers < MAX_WORKERS) {
        int number = workers + 1;
        pthread_t thread;
        starts[number] = (struct start){number, atomic_load(&generation)};
        if (pthread_create(&thread, NULL, worker, &starts[number]) != 0)
            return;
        if (pthread_getcpuclockid(thread, &clocks[number]) != 0)
            clocks[number] = CLOCK_THREAD_CPUTIME_ID;
        pthread_detach(thread);
        workers = number;
    }
    /* With more threads than cores, spinning would keep other threads from working. */
    atomic_store(&spins, workers < cores ? MAX_SPINS : 0);
}

static void wait_until_done(void) {
    for (int i = atomic_load(&spins); i > 0; i--) {
        if (atomic_load(&remaining) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&mutex);
    while (atomic_load(&remaining) != 0)
        pthread_cond_wait(&job_done, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void run_inline(int64_t tasks, kl_task_function body, void *context) {
    for (int64_t task = 0; task < tasks; task++)
        body(context, task);
}

void kl_parallel(int64_t tasks, int64_t threads, kl_task_function body, void *context) {
    if (threads > tasks)
        threads = tasks;
    if (threads <= 1)
        return run_inline(tasks, body, context);
    /* Held while a job runs: this call comes from inside a task. */
    if (atomic_flag_test_and_set(&busy))
        return run_inline(tasks, body, context);
    add_workers(threads > MAX_WORKERS ? MAX_WORKERS : (int)threads - 1);
    int others = threads - 1 < workers ? (int)threads - 1 : workers;
    job = (struct job){body, context, tasks};
    atomic_store(&next_task, others + 1);
    atomic_store(&remaining, others);
    pthread_mutex_lock(&mutex);
    unsigned count = (atomic_load(&generation) >> 8) + 1;
    atomic_store(&generation, count << 8 | (unsigned)others);
    pthread_cond_broadcast(&job_started);
    pthread_mutex_unlock(&mutex);
    work(0);
    wait_until_done();
    atomic_flag_clear(&busy);
}

int parallel_workers(void) {
    return workers;
}

uint64_t parallel_cpu(void) {
    uint64_t sum = 0;
    for (int number = 1; number <= workers; number++) {
        struct timespec time;
        if (clock_gettime(clocks[number], &time) == 0)
            sum += (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    }
    return sum;
}
