#define _GNU_SOURCE 1

#include "process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static const rlim_t MAX_FILE_BYTES = 16 << 20;

static cpu_set_t allowed;
static int pinned = -1;

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

void process_confine(bool emulated) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* 1 and not 0: with 0 Linux still feeds a core pattern that is a pipe. But QEMU heeds only 0.
     */
    limit(RLIMIT_CORE, emulated ? 0 : 1);
    limit(RLIMIT_FSIZE, MAX_FILE_BYTES);
    signal(SIGXFSZ, SIG_IGN);
    prefer_as_victim();
    /* Last, for it takes away the files of /proc/self. */
    if (emulated)
        prctl(PR_SET_DUMPABLE, 0);
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
