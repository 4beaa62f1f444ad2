#define _GNU_SOURCE 1

#include "watch.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "parallel.h"

static int tasks = -1, schedule = -1;
static int threads_at_start;

/* Threads of this process; 0 if they cannot be counted. Linux counts them in the links of the
 * folder, which needs no other open file. */
static int threads(void) {
    struct stat folder;
    if (tasks < 0 || fstat(tasks, &folder) != 0 || folder.st_nlink < 3)
        return 0;
    return (int)folder.st_nlink - 2;
}

void watch_open(void) {
    tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    schedule = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    threads_at_start = threads();
}

uint64_t watch_queued(void) {
    char text[128];
    unsigned long long ran, queued;
    ssize_t length = schedule < 0 ? -1 : pread(schedule, text, sizeof text - 1, 0);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    return sscanf(text, "%llu %llu", &ran, &queued) == 2 ? queued : 0;
}

static bool timer_runs(void) {
    static const int clocks[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        struct itimerval timer;
        if (getitimer(clocks[i], &timer) == 0 && (timer.it_value.tv_sec || timer.it_value.tv_usec))
            return true;
    }
    return false;
}

void watch_report(struct reply *reply, uint64_t queued_ns) {
    int more = threads() ? threads() - threads_at_start - parallel_workers() : 0;
    size_t at =
        (size_t)snprintf(reply->detail, sizeof reply->detail, "queued_ns=%llu\ndelays_ns=%llu\n",
                         (unsigned long long)queued_ns, (unsigned long long)watch_queued());
    if (more > 0)
        at += (size_t)snprintf(reply->detail + at, sizeof reply->detail - at, "left=%d %s\n", more,
                               more == 1 ? "thread" : "threads");
    else if (timer_runs())
        snprintf(reply->detail + at, sizeof reply->detail - at, "left=a timer\n");
}
