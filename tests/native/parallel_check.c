/* Many small jobs on kl_parallel, to be built with each sanitizer; fails by its exit code. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernloom/kernel.h"
#include "parallel.h"

enum { MAX_TASKS = 64 };

struct job {
    int64_t counts[MAX_TASKS];
    int64_t step;
};

static void add(void *context, int64_t task) {
    struct job *job = context;
    job->counts[task] += job->step;
}

static void nest(void *context, int64_t task) {
    struct job *jobs = context;
    kl_parallel(3, 3, add, &jobs[task]);
}

static int check(int64_t tasks, int64_t threads) {
    struct job job = {.step = 1};
    for (int i = 0; i < 40; i++) {
        job.step = i;
        kl_parallel(tasks, threads, add, &job);
    }
    for (int64_t task = 0; task < MAX_TASKS; task++)
        if (job.counts[task] != (task < tasks ? 40 * 39 / 2 : 0)) {
            fprintf(stderr, "%ld tasks on %ld threads: task %ld ran %ld\n", (long)tasks,
                    (long)threads, (long)task, (long)job.counts[task]);
            return 1;
        }
    return 0;
}

static int check_nested(void) {
    struct job jobs[8];
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < 8; i++)
        jobs[i].step = i;
    kl_parallel(8, 4, nest, jobs);
    for (int i = 0; i < 8; i++)
        for (int task = 0; task < 3; task++)
            if (jobs[i].counts[task] != i)
                return 1;
    return 0;
}

int main(int count, char **arguments) {
    (void)arguments;
    /* With an argument: as if there were cores enough for every worker to spin. */
    parallel_open(count > 1 ? 64 : 1, NULL, NULL);
    int wrong = 0;
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 16, 64};
    static const int64_t threads[] = {-1, 0, 1, 2, 5, 3, 9, 2, 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof threads / sizeof *threads; j++)
            wrong |= check(sizes[i], threads[j]);
    return wrong | check_nested();
}
