/* Threads for kernels that share out their work: kl_parallel as Kernloom's runner has it. */
#include <pthread.h>
#include <stdint.h>

#define MOST 64

typedef void (*task_function)(void *context, int64_t task);

struct share {
    int64_t next, last;
    task_function body;
    void *context;
};

static _Thread_local int inside;

static void *run(void *argument)
{
    const struct share *share = argument;
    inside = 1;
    for (int64_t task = share->next; task < share->last; task++)
        share->body(share->context, task);
    inside = 0;
    return 0;
}

void kl_parallel(int64_t tasks, int64_t threads, task_function body, void *context);
void kl_parallel(int64_t tasks, int64_t threads, task_function body, void *context)
{
    if (threads > MOST)
        threads = MOST;
    if (threads > tasks)
        threads = tasks;
    if (threads < 2 || inside) {
        for (int64_t task = 0; task < tasks; task++)
            body(context, task);
        return;
    }
    struct share shares[MOST];
    pthread_t others[MOST];
    int started[MOST] = {0};
    for (int64_t n = 0; n < threads; n++) {
        shares[n] = (struct share){tasks * n / threads, tasks * (n + 1) / threads, body, context};
        started[n] = n && !pthread_create(&others[n], 0, run, &shares[n]);
    }
    for (int64_t n = 0; n < threads; n++)
        if (!started[n])
            run(&shares[n]);
    for (int64_t n = 0; n < threads; n++)
        if (started[n])
            pthread_join(others[n], 0);
}
