"""Kernels that misbehave: each ends with the right status, the next trial is right, and nothing is
left behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from attacks import Attack
from command_line import DOUBLE, Project, working_in

HEAD = """\
#define _GNU_SOURCE 1
#include <alloca.h>
#include <fcntl.h>
#include <fenv.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int once(void) { static int done; return !done++; }
static void forever(void) { for (;;) pause(); }
static void spin(void) { for (volatile int go = 1; go;) ; }
__attribute__((unused)) static void *thread(void *x) { spin(); return x; }
__attribute__((unused)) static void relay(int own_session) {
    for (;;) { if (own_session) setsid(); if (fork()) _exit(0); }
}
__attribute__((unused)) static void scribble(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from = 0, to = 0;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "kernloom-window")) sscanf(line, "%lx-%lx", &from, &to);
    for (;;) for (volatile char *at = (char *)from; at < (char *)to; at++) *at = 77;
}
__attribute__((unused)) static void descend(volatile char *above) {
    volatile char *here = alloca(1 << 16);
    here[0] = above[0];
    descend(here);
}
__attribute__((unused)) static void used(void) { (void)once; forever(); spin(); }
"""
UNUSED = "(void)n; (void)x; (void)y;"
AT_ONCE = 14
"""Kernels of one sweep."""
DISCONNECTED = "closed the runner's connection"


@dataclass(frozen=True)
class Kind:
    """What a kernel does, beside doubling if it comes to that, and how its trial ends."""

    body: str
    status: str = "ok"
    says: str = ""


def dies(body: str, says: str) -> Kind:
    return Kind(f"{UNUSED} {body}", "crashed", says)


def hangs(body: str) -> Kind:
    return Kind(f"{UNUSED} {body}", "timeout")


def leaves(body: str, says: str = "left a process") -> Kind:
    return Kind(body, "suspicious", says)


KINDS = {
    # Processes.
    "forks": leaves(f"if (once() && !fork()) forever(); {DOUBLE}"),
    "double_forks": leaves(
        f"if (once() && !fork()) {{ setsid(); if (!fork()) spin(); _exit(0); }} {DOUBLE}"
    ),
    "scribbles": leaves(
        f"if (once() && !fork()) {{ setsid(); if (!fork()) scribble(); _exit(0); }} {DOUBLE}"
    ),
    "forks_many": leaves(
        "if (once() && !fork()) { for (int i = 0; i < 6; i++) fork(); forever(); } " + DOUBLE
    ),
    "forks_sessions": leaves(
        "if (once() && !fork()) { for (int i = 0; i < 5; i++) if (fork()) setsid(); forever(); }"
        + DOUBLE
    ),
    "relays": leaves(f"if (once() && !fork()) {{ setsid(); relay(0); }} {DOUBLE}"),
    "relays_sessions": leaves(f"if (once() && !fork()) relay(1); {DOUBLE}"),
    "leaves_zombies": Kind(
        f"if (once()) for (int i = 0; i < 20; i++) if (!fork()) _exit(0); {DOUBLE}"
    ),
    "daemonizes": dies("daemon(0, 1); forever();", "exit code 0"),
    "starts_shell": leaves(f'if (once()) (void)!system("setsid sleep 98765 &"); {DOUBLE}'),
    "becomes_another": dies('execl("/bin/true", "true", (char *)0);', "exit code 0"),
    "vforks": hangs("if (!vfork()) forever();"),
    "unties_itself": hangs("prctl(PR_SET_PDEATHSIG, 0); spin();"),
    "kills_parent": dies("kill(getppid(), SIGKILL); forever();", "SIGKILL"),
    # Its child holds the connection, so that nobody hears of the end.
    "kills_parent_and_forks": hangs(
        "if (!fork()) { setsid(); if (!fork()) forever(); _exit(0); } wait(0);"
        "kill(getppid(), SIGKILL); forever();"
    ),
    "terminates_parent": Kind(f"kill(getppid(), SIGTERM); {DOUBLE}"),
    "stops_parent": Kind(f"if (once()) kill(getppid(), SIGSTOP); {DOUBLE}"),
    "kills_group": dies("kill(0, SIGKILL); forever();", "SIGKILL"),
    "traced": Kind(f"if (once()) ptrace(PTRACE_TRACEME, 0, 0, 0); {DOUBLE}"),
    "traced_crash": dies("ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGUSR2);", "SIGUSR2"),
    "starts_thread": leaves(
        f"if (once()) {{ pthread_t t; pthread_create(&t, 0, thread, 0); }} {DOUBLE}",
        "left 1 thread",
    ),
    # Signals.
    **{
        f"raises_{name.lower()}": dies(f"raise({name}); forever();", name)
        for name in ("SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGBUS", "SIGTERM", "SIGPIPE")
    },
    "stops_itself": hangs("raise(SIGSTOP);  spin();"),
    "blocks_signals": hangs("sigset_t s; sigfillset(&s); sigprocmask(SIG_SETMASK, &s, 0); spin();"),
    "ignores_signals": hangs("for (int i = 1; i < 65; i++) signal(i, SIG_IGN); spin();"),
    "ignores_fault": dies("signal(SIGSEGV, SIG_IGN); *(volatile int *)8 = 1;", "SIGSEGV"),
    "alarms": dies("alarm(1); forever();", "SIGALRM"),
    "timer": dies(
        "struct itimerval t = {{0, 1000}, {0, 1000}}; setitimer(ITIMER_PROF, &t, 0); spin();",
        "SIGPROF",
    ),
    # Descriptors.
    "closes_all": dies(f"for (int i = 0; i < 1024; i++) close(i); {DOUBLE}", DISCONNECTED),
    "closes_all_and_hangs": dies("for (int i = 3; i < 1024; i++) close(i); spin();", DISCONNECTED),
    "closes_standard": Kind(f"for (int i = 0; i < 3; i++) close(i); {DOUBLE}"),
    "shuts_down": dies(f"for (int i = 3; i < 1024; i++) shutdown(i, 2); {DOUBLE}", DISCONNECTED),
    "talks": dies(
        "for (int i = 3; i < 1024; i++)"
        ' (void)!write(i, "not a message, but more than a header has room for", 50); forever();',
        "not a message",
    ),
    "opens_sockets": Kind(
        "int s = socket(AF_INET, SOCK_STREAM, 0); struct sockaddr_in a = {.sin_family = AF_INET};"
        f"bind(s, (void *)&a, sizeof a); listen(s, 1); {DOUBLE}"
    ),
    "prints": Kind(f"if (once()) for (int i = 0; i < 100000; i++) puts(__FILE__); {DOUBLE}"),
    # Memory.
    "writes_before": Kind(f"{DOUBLE} y[-1] = 1;", "out_of_bounds", "byte offset -4 (element -1 "),
    "writes_after": Kind(f"{DOUBLE} y[n] = 1;", "out_of_bounds", "byte offset 4000 (element 1000 "),
    "writes_far": Kind(f"{DOUBLE} y[n + 100000] = 1;", "out_of_bounds", "'y'"),
    "reads_far": Kind(f"{DOUBLE} y[0] = x[n + 100000];", "out_of_bounds", "'x'"),
    "unmaps": Kind(
        f"{UNUSED} munmap((void *)((unsigned long)y & ~4095ul), 4096); y[0] = 1;",
        "out_of_bounds",
    ),
    "takes_all": Kind(
        f"{UNUSED} for (;;) {{ char *p = malloc(1 << 24); memset(p, 1, 1 << 24); }}",
        "out_of_memory",
    ),
    "locks_memory": Kind(f"mlockall(MCL_CURRENT); {DOUBLE}"),
    "deep": dies("volatile char start = 1; descend(&start);", "SIGSEGV"),
    "jumps": dies("jmp_buf b; memset(b, 0x41, sizeof b); longjmp(b, 1);", "SIG"),
    # Leaving.
    "exits": dies("exit(0);", "exit code 0"),
    "exits_3": dies("exit(3);", "exit code 3"),
    "leaves": dies("_exit(0);", "exit code 0"),
    "aborts": dies("abort();", "SIGABRT"),
    "sleeps": hangs("for (;;) sleep(1000);"),
    "ends_thread": dies("pthread_exit(0);", "exit code 0"),
    # Surroundings.
    "changes_folder": Kind(f'if (chdir("/")) abort(); {DOUBLE}'),
    "writes_files": Kind(
        f'FILE *f = fopen("junk", "w"); if (!f) abort(); fputs("junk", f); fclose(f); {DOUBLE}'
    ),
    "locks_folder": Kind(
        'if (once()) { mkdir("d", 0700); close(creat("d/f", 0600)); chmod("d/f", 0);'
        f' chmod("d", 0); }} {DOUBLE}'
    ),
    "large_file": Kind(
        'if (once()) { static char block[1 << 20]; int f = creat("large", 0600);'
        f" for (int i = 0; i < 64; i++) (void)!write(f, block, sizeof block); }} {DOUBLE}"
    ),
    "clears_environment": Kind(f"clearenv(); {DOUBLE}"),
    "limits_itself": Kind(
        f"struct rlimit none = {{0, 0}}; setrlimit(RLIMIT_NOFILE, &none); {DOUBLE}"
    ),
    "moves": Kind(f"cpu_set_t all; memset(&all, -1, 8); sched_setaffinity(0, 8, &all); {DOUBLE}"),
    "renices": Kind(f"(void)!nice(5); {DOUBLE}"),
    "rounds": Kind(f"fesetround(FE_DOWNWARD); {DOUBLE}", "wrong", "changed the rounding"),
}


@pytest.fixture
def project(tmp_path: Path, shared_project: Project) -> Project:
    project = Project(tmp_path)
    project.take_runner_from(shared_project)
    return project


def test_attack_misbehaving_kernels(attack: Attack, project: Project) -> None:
    names = list(attack.cases(KINDS, small=6))
    for start in range(0, len(names), AT_ONCE):
        _run(attack, project, names[start : start + AT_ONCE])
    attack.check()


def _run(attack: Attack, project: Project, names: list[str]) -> None:
    """Kernels in one sweep, each followed by one that is right."""
    order = []
    for name in names:
        project.add(name, KINDS[name].body, head=HEAD)
        project.add(f"after_{name}")
        order += [name, f"after_{name}"]
    before = {path.name for path in project.folder.iterdir()}
    words = (f"workload={','.join(order)}", "timeout=4", "memory_limit=256MiB")
    trials = {t["workload"]: t for t in project.json("run", "-m", *words).trials}
    for name in names:
        trial, after = trials[name], trials[f"after_{name}"]
        kind = KINDS[name]
        if trial["status"] != kind.status or kind.says not in trial["message"]:
            attack.failed(f"{name}: {trial['status']}: {trial['message']}")
        if after["status"] != "ok":
            attack.failed(f"after {name}: {after['status']}: {after['message']}")
    left = {path.name for path in project.folder.iterdir()} - before - {".kernloom"}
    left |= {path.name for path in (project.build / "tmp").iterdir()}
    if left:
        attack.failed(f"files are left: {left}")
    if still := working_in(project.folder):
        attack.failed(f"processes are left: {still}")
