#define _GNU_SOURCE 1

#include "watch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "parallel.h"

enum { PAUSES = 20, PAUSE_NS = 1000000 };

static int tasks = -1, schedule = -1;
static int threads_at_start;
static struct stat folder_at_start;

/* Threads of this process; 0 if they cannot be counted. Linux counts them in the links of the
 * folder, which needs no other open file. */
static int threads(void) {
    struct stat folder;
    if (tasks < 0 || fstat(tasks, &folder) != 0 || folder.st_nlink < 3)
        return 0;
    if (folder.st_ino != folder_at_start.st_ino || folder.st_dev != folder_at_start.st_dev)
        return 0; /* another file in its place */
    return (int)folder.st_nlink - 2;
}

static bool read_schedule(uint64_t *ran, uint64_t *queued) {
    char text[128];
    ssize_t length = schedule < 0 ? -1 : pread(schedule, text, sizeof text - 1, 0);
    if (length <= 0)
        return false;
    text[length] = '\0';
    return sscanf(text, "%" SCNu64 " %" SCNu64, ran, queued) == 2;
}

/* Whether the system keeps the times that `schedule` shows. */
static bool keeps_times;

void watch_open(int folder_of_threads) {
    tasks = folder_of_threads;
    schedule = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (tasks >= 0)
        fstat(tasks, &folder_at_start);
    threads_at_start = threads();
    uint64_t ran, queued;
    keeps_times = read_schedule(&ran, &queued) && ran;
}

void watch_descriptors(int *of_tasks, int *of_schedule) {
    *of_tasks = tasks;
    *of_schedule = schedule;
}

/* If the file cannot be read, the waiting time is 0: a kernel that closes it excuses nothing. */
uint64_t watch_queued(void) {
    uint64_t ran, queued;
    if (!keeps_times)
        return WATCH_UNKNOWN;
    return read_schedule(&ran, &queued) ? queued : 0;
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

static int threads_left(void) {
    int count = threads();
    return count ? count - threads_at_start - parallel_workers() : 0;
}

/* Threads beside the runner's own. One that was joined may end a little later; `paused_ns`: spent
 * on waiting for it. */
static int threads_that_stay(uint64_t *paused_ns) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    static int known;
    for (int i = 0; i < PAUSES && threads_left() > known; i++) {
        nanosleep(&pause, NULL);
        *paused_ns += PAUSE_NS;
    }
    return known = threads_left();
}

static size_t add(struct reply *reply, size_t at, const char *key, uint64_t value) {
    return at + (size_t)snprintf(reply->detail + at, sizeof reply->detail - at, "%s=%llu\n", key,
                                 (unsigned long long)value);
}

/* watch_queued at the last report. */
static uint64_t reported;

void watch_report(struct reply *reply, const struct watched *watched) {
    uint64_t paused_ns = 0;
    int more = threads_that_stay(&paused_ns);
    size_t at = add(reply, 0, "stride", watched->stride);
    uint64_t before = watched->queued_before, after = watched->queued_after;
    if (keeps_times) {
        at = add(reply, at, "queued_ns", after > before ? after - before : 0);
        uint64_t now = watch_queued();
        uint64_t since = now > reported ? now - reported : 0;
        reported = now;
        at = add(reply, at, "delays_ns", since + watched->flush_ns + paused_ns);
    }
    if (more > 0)
        snprintf(reply->detail + at, sizeof reply->detail - at, "left=%d %s\n", more,
                 more == 1 ? "thread" : "threads");
    else if (threads_at_start && !threads())
        snprintf(reply->detail + at, sizeof reply->detail - at,
                 "left=an uncertain number of threads\n");
    else if (timer_runs())
        snprintf(reply->detail + at, sizeof reply->detail - at, "left=a timer\n");
}
