#define _GNU_SOURCE 1

#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const rlim_t MAX_FILE_BYTES = 16 << 20;

static cpu_set_t allowed;
static int pinned = -1;
static int usual_class;
static struct sched_param usual_priority;
static DIR *threads;

static void limit(int resource, rlim_t value) {
    struct rlimit limits;
    if (getrlimit(resource, &limits) != 0)
        return;
    if (limits.rlim_max < value)
        value = limits.rlim_max;
    limits.rlim_cur = limits.rlim_max = value;
    setrlimit(resource, &limits);
}

static void prefer_as_victim(void) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    ssize_t written = write(file, "1000", 4);
    (void)written;
    close(file);
}

void process_limit(bool emulated) {
    /* 1 and not 0: with 0 Linux still feeds a core pattern that is a pipe. QEMU respects only 0. */
    limit(RLIMIT_CORE, emulated ? 0 : 1);
    limit(RLIMIT_FSIZE, MAX_FILE_BYTES);
    signal(SIGXFSZ, SIG_IGN);
}

static void close_between(int first, int last) {
#ifdef SYS_close_range
    if (first <= last && syscall(SYS_close_range, (unsigned)first, (unsigned)last, 0u) == 0)
        return;
#endif
    int most = (int)sysconf(_SC_OPEN_MAX);
    for (int one = first; one <= last && one < most; one++)
        close(one);
}

void process_close_inherited(const int *kept, size_t count) {
    int first = STDERR_FILENO + 1;
    for (;;) {
        int next = INT_MAX; /* the first descriptor from `first` on that is kept */
        for (size_t i = 0; i < count; i++)
            if (kept[i] >= first && kept[i] < next)
                next = kept[i];
        if (next == INT_MAX)
            break;
        close_between(first, next - 1);
        first = next + 1;
    }
    close_between(first, INT_MAX);
}

void process_confine(bool emulated, uint64_t data_limit) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* RLIMIT_DATA counts private writable memory only, not reserved addresses. */
    if (data_limit)
        limit(RLIMIT_DATA, data_limit);
    prefer_as_victim();
    /* Last, since it makes /proc/self inaccessible. */
    if (emulated)
        prctl(PR_SET_DUMPABLE, 0);
}

int process_open_threads(void) {
    threads = opendir("/proc/self/task");
    return threads ? dirfd(threads) : -1;
}

bool process_enter(int folder) {
    bool entered = fchdir(folder) == 0;
    close(folder);
    return entered;
}

int process_cores(void) {
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

static bool pin_thread(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

bool process_pin(int cpu) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || !pin_thread(cpu))
        return false;
    pinned = cpu;
    return true;
}

void process_pin_worker(int worker) {
    int cores = CPU_COUNT(&allowed);
    if (pinned < 0 || cores == 0)
        return;
    int cpu = pinned;
    for (int steps = worker % cores; steps > 0; steps--)
        do
            cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, &allowed));
    pin_thread(cpu);
}

static int current_personality(void) {
    return personality(0xffffffff);
}

bool process_randomized(void) {
    int current = current_personality();
    return current == -1 || !(current & ADDR_NO_RANDOMIZE);
}

void process_fix_addresses(char **arguments) {
    int current = current_personality();
    if (!process_randomized())
        return;
    errno = EPERM;
    /* Check that it took effect: otherwise the process would restart for ever. */
    if (current != -1 && personality((unsigned)current | ADDR_NO_RANDOMIZE) != -1 &&
        !process_randomized())
        execv("/proc/self/exe", arguments);
    fprintf(stderr, "runner: addresses stay random: %s\n", strerror(errno));
    if (current != -1)
        personality((unsigned)current);
}

/* All threads, since a kernel's library may have started some: left in the normal class they
 * would starve beside a main thread that waits for them. */
static void schedule_threads(int class, const struct sched_param *priority) {
    if (!threads)
        return;
    rewinddir(threads);
    for (const struct dirent *thread; (thread = readdir(threads));) {
        int id = atoi(thread->d_name);
        if (id > 0)
            sched_setscheduler(id, class, priority);
    }
}

bool process_start_realtime(void) {
    struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
    usual_class = sched_getscheduler(0);
    if (usual_class < 0 || sched_getparam(0, &usual_priority) != 0 ||
        sched_setscheduler(0, SCHED_FIFO, &lowest) != 0)
        return false;
    schedule_threads(SCHED_FIFO, &lowest);
    return true;
}

void process_end_realtime(void) {
    schedule_threads(usual_class, &usual_priority);
    sched_setscheduler(0, usual_class, &usual_priority);
}
