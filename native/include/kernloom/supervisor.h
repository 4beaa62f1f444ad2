/* Supervisor: a process between the engine and the process that runs kernels.
 *
 * supervisor_start() forks. The child returns and becomes the worker: the runner, or an emulator.
 * The parent becomes the supervisor. As the subreaper of the worker it inherits every process that
 * a kernel leaves behind, even after a double fork and setsid(), and it kills all of them when the
 * worker ends, when the engine sends SIGTERM and when the engine dies. Then it ends with the
 * worker's exit code or signal.
 *
 * A header, since two programs share it: the runner supervises itself, and native/supervisor starts
 * emulators. */
#ifndef KERNLOOM_SUPERVISOR_H
#define KERNLOOM_SUPERVISOR_H

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    /* The worker succeeded, but other processes of its kernels were still running: also in
     * device/messages.py. */
    SUPERVISOR_EXIT_LEFTOVERS = 109,
    SUPERVISOR_EXIT_FAILED = 110,
};

/* The wait status of the worker, and whether other processes had to be killed. */
struct supervisor_outcome {
    int status;
    bool leftovers;
};

static void supervisor_close_files(void) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0)
        return;
#endif
    for (int descriptor = 3; descriptor < 4096; descriptor++)
        close(descriptor);
}

/* Marks this process and its descendants with the session number, so that the engine finds them if
 * the supervisor is killed: also in device/leftovers.py. Linux does not enforce this limit, and
 * only a privileged process can raise it again. */
static void supervisor_mark(void) {
    const char *session = getenv("KERNLOOM_SESSION");
    rlim_t mark = session ? (rlim_t)strtoull(session, NULL, 16) : 0;
    if (mark)
        setrlimit(RLIMIT_LOCKS, &(struct rlimit){.rlim_cur = mark, .rlim_max = mark});
}

/* Reaps orphans and detaches traced processes; true once the worker itself has ended. The worker is
 * not reaped yet, so that its pid cannot be reused. */
static bool supervisor_worker_ended(pid_t worker) {
    for (;;) {
        siginfo_t found = {0};
        int events = WEXITED | WSTOPPED | WNOHANG | WNOWAIT;
        if (waitid(P_PID, (id_t)worker, &found, events) != 0)
            return true;
        if (found.si_pid == 0 && waitid(P_ALL, 0, &found, events) != 0)
            return true;
        if (found.si_pid == 0)
            return false;
        bool running = found.si_code == CLD_TRAPPED || found.si_code == CLD_STOPPED;
        if (found.si_pid == worker && !running)
            return true;
        int status = 0;
        waitpid(found.si_pid, &status, WUNTRACED);
        /* Undo PTRACE_TRACEME, or the next signal would stop the process for ever. */
        if (found.si_code == CLD_TRAPPED)
            ptrace(PTRACE_DETACH, found.si_pid, NULL, (void *)(long)WSTOPSIG(status));
    }
}

/* Returns when the worker has ended, or when the engine sends SIGTERM or has died. */
static void supervisor_wait(pid_t worker, pid_t engine, const sigset_t *signals) {
    while (!supervisor_worker_ended(worker) && getppid() == engine) {
        siginfo_t info = {0};
        /* A kernel may send SIGTERM, too: only the engine's counts. */
        if (sigwaitinfo(signals, &info) == SIGTERM && info.si_pid == engine)
            return;
    }
}

static pid_t supervisor_parent_of(pid_t pid) {
    char path[32], text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    /* The second field is a name in parentheses that may contain any character. */
    char *end = text;
    for (char *at = text; *at; at++)
        if (*at == ')')
            end = at + 1;
    return sscanf(end, " %*c %d", &parent) == 1 ? parent : 0;
}

/* Kills a child and, at once, its whole process group, which cannot escape by forking. Only groups
 * that the child or the worker leads, or of another session: a child may have joined any other
 * group, such as the engine's. */
static void supervisor_kill(pid_t child, pid_t worker) {
    pid_t group = getpgid(child);
    if (group > 1 && (group == child || group == worker || getsid(child) != getsid(0)))
        kill(-group, SIGKILL);
    kill(child, SIGKILL);
}

/* Children of killed processes are reparented to the supervisor, and found the next time. */
static void supervisor_kill_children(pid_t worker) {
    DIR *processes = opendir("/proc");
    if (!processes)
        return;
    for (const struct dirent *entry; (entry = readdir(processes));) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 1 && supervisor_parent_of(pid) == getpid())
            supervisor_kill(pid, worker);
    }
    closedir(processes);
}

/* Kills the worker and all its descendants, until none is left. */
static struct supervisor_outcome supervisor_end_all(pid_t worker, const sigset_t *signals) {
    struct supervisor_outcome outcome = {0};
    const struct timespec pause = {.tv_nsec = 5000000};
    bool collected = false;
    supervisor_kill(worker, worker);
    for (;;) {
        int status;
        pid_t ended;
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
            if (ended == worker) {
                outcome.status = status;
                collected = true;
            } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
                /* Killed together with the worker's group. */
                outcome.leftovers = true;
            }
        if (ended < 0 && errno == ECHILD)
            return outcome;
        if (collected) {
            outcome.leftovers = true;
            supervisor_kill_children(worker);
        }
        sigtimedwait(signals, NULL, &pause);
    }
}

static _Noreturn void supervisor_end_like(struct supervisor_outcome outcome) {
    if (WIFSIGNALED(outcome.status)) {
        int number = WTERMSIG(outcome.status);
        sigset_t set;
        signal(number, SIG_DFL);
        sigemptyset(&set);
        sigaddset(&set, number);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        kill(getpid(), number);
        _exit(128 + number);
    }
    int code = WEXITSTATUS(outcome.status);
    _exit(code == 0 && outcome.leftovers ? SUPERVISOR_EXIT_LEFTOVERS : code);
}

/* Returns in the worker, which leads its own process group and dies with its supervisor. */
static inline void supervisor_start(void) {
    sigset_t all, before;
    pid_t engine = getppid();
    sigfillset(&all);
    /* Also before the fork, so that no signal is lost, even if the child dies early. */
    sigprocmask(SIG_SETMASK, &all, &before);
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    supervisor_mark();
    pid_t supervisor = getpid();
    pid_t worker = fork();
    if (worker < 0) {
        perror("supervisor: fork");
        _exit(SUPERVISOR_EXIT_FAILED);
    }
    if (worker == 0) {
        /* Not a new session: Linux would schedule it in competition with the engine, and starting
         * it takes ten times as long on a busy machine. */
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != supervisor)
            _exit(SUPERVISOR_EXIT_FAILED);
        sigprocmask(SIG_SETMASK, &before, NULL);
        return;
    }
    supervisor_close_files();
    prctl(PR_SET_NAME, "kl-supervisor");
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    supervisor_wait(worker, engine, &awaited);
    supervisor_end_like(supervisor_end_all(worker, &awaited));
}

#endif
