"""Kernels that try to break out, each with an honest twin: what they do, how their trials end and
what the messages say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from command_line import DOUBLE, Project

TWIN = "_twin"
WORKS = f"{DOUBLE} "
SYSTEM = "long syscall(long, ...);"
RAW = (
    "static inline long raw(long number) { long result; "
    '__asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory"); '
    "return result; }"
)
POOL = "void kl_parallel(long, long, void (*)(void *, long), void *);"
GATE = f"""{POOL}
typedef long (*gate)(long, long, long, long, long, long, long);
static gate find(void) {{
    static const unsigned char code[] = {{0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6}};
    for (long far = 0; far < 1 << 20; far++)
        for (int side = -1; side < 2; side += 2) {{
            const unsigned char *at = (const unsigned char *)kl_parallel + side * far;
            int same = 0;
            while (same < 9 && at[same] == code[same]) same++;
            if (same == 9) return (gate)at;
        }}
    return 0;
}}"""
"""Finds the code by which the runner itself asks the system, near a function that it exports."""
PAGE = "(((long)kl_parallel) & -4096)"
LINKER = """\
void *__tls_get_addr(void *);
void abort(void);
typedef long (*protect)(void *, unsigned long, int);
static protect find(void) {
    static const unsigned char code[] = {0xb8, 10, 0, 0, 0, 0x0f, 0x05};
    for (long far = 0; far < 1 << 17; far++) {
        const unsigned char *at = (const unsigned char *)__tls_get_addr + far;
        int same = 0;
        while (same < 7 && at[same] == code[same]) same++;
        if (same == 7) return (protect)at;
    }
    return 0;
}"""
"""Finds the dynamic linker's own mprotect()."""


@dataclass(frozen=True)
class Cheat:
    """A kernel that doubles a vector, and does what it must not."""

    about: str
    head: str
    body: str
    says: str
    """Part of the message."""
    status: str = "refused"
    allow: str = ""
    """Functions that its workload allows, so that it comes to run."""


def imports(about: str, declared: str, call: str, name: str) -> Cheat:
    return Cheat(about, declared, WORKS + call, f"imports '{name}'")


def asks(about: str, arguments: str, says: str) -> Cheat:
    """A system call through the C library, which its workload allows."""
    return Cheat(about, SYSTEM, f"{WORKS}syscall({arguments});", says, allow="syscall")


def through_gate(about: str, arguments: str, says: str) -> Cheat:
    """A system call through the code that only the runner may use."""
    return Cheat(about, GATE, f"{WORKS}find()({arguments});", f"system call {says} by itself")


def asks_for_memory(about: str, arguments: str, says: str) -> Cheat:
    """A system call for the memory where the runner's code is."""
    return Cheat(about, f"{SYSTEM} {POOL}", f"{WORKS}syscall({arguments});", says, allow="syscall")


CHEATS = {
    # In the library: found before it is loaded.
    "constructs": Cheat(
        "runs before it is called",
        "static volatile int ran;\n"
        "__attribute__((constructor)) static void early(void) { ran = 1; }",
        f"{WORKS} y[0] += 0 * ran;",
        "constructor 'early'",
    ),
    "destructs": Cheat(
        "runs after it was called",
        "static volatile int ran;\n__attribute__((destructor)) static void late(void) { ran = 1; }",
        f"{WORKS} y[0] += 0 * ran;",
        "destructor 'late'",
    ),
    "disguises": Cheat(
        "names its constructor as the compiler's",
        "static volatile int ran;\n"
        "__attribute__((constructor)) static void frame_dummy(void) { ran = 1; }",
        f"{WORKS} y[0] += 0 * ran;",
        "constructor 'frame_dummy'",
    ),
    "disguises_twice": Cheat(
        "names its constructor as the compiler's destructor",
        "static volatile int ran;\n"
        "__attribute__((constructor)) static void __do_global_dtors_aux(void) { ran = 1; }",
        f"{WORKS} y[0] += 0 * ran;",
        "constructor '__do_global_dtors_aux'",
    ),
    "starts": Cheat(
        "defines a function that start files call",
        "static volatile int ran;\n"
        '__attribute__((visibility("hidden"))) void __gmon_start__(void);\n'
        "void __gmon_start__(void) { ran = 1; }",
        f"{WORKS} y[0] += 0 * ran;",
        "defines '__gmon_start__'",
    ),
    "opens": Cheat(
        "jumps from the code that runs while it is loaded",
        "static volatile int ran;\n"
        '__attribute__((used, naked, section(".text.unlikely"))) static void early(void) {\n'
        '    __asm__("movl $1, ran(%rip)\\n add $8, %rsp\\n ret"); }\n'
        '__asm__(".section .init\\n .byte 0xeb\\n .byte early - . - 1\\n .text");',
        f"{WORKS} y[0] += 0 * ran;",
        "section '.init'",
    ),
    "ends": Cheat(
        "calls a function while it is unloaded",
        "static volatile int ran;\n"
        "__attribute__((used)) static void late(void) { ran = 1; }\n"
        '__asm__(".section .fini\\n call late\\n .text");',
        f"{WORKS} y[0] += 0 * ran;",
        "section '.fini'",
    ),
    "chooses": Cheat(
        "runs while its functions are looked up",
        "static void one(void) {}\nstatic void *choose(void) { return one; }\n"
        'void chosen(void) __attribute__((ifunc("choose")));',
        f"{WORKS} chosen();",
        "(ifunc)",
    ),
    "writes_code": Cheat(
        "has a section that is writable and executable",
        '__asm__(".section .wx,\\"awx\\",@progbits; .zero 64; .text");',
        WORKS,
        "'.wx'",
    ),
    "runs_stack": Cheat(
        "makes the stack executable",
        '__asm__(".section .note.GNU-stack,\\"x\\",@progbits; .text");',
        WORKS,
        "stack executable",
    ),
    "shadows_clock": Cheat(
        "defines the clock",
        "int clock_gettime(int a, void *b);\nint clock_gettime(int a, void *b) { return a + !b; }",
        WORKS,
        "defines 'clock_gettime'",
    ),
    "shadows_pool": Cheat(
        "defines the runner's pool",
        "void kl_parallel(long, long, void *, void *);\n"
        "void kl_parallel(long a, long b, void *c, void *d) { (void)(a + b + !c + !d); }",
        WORKS,
        "defines 'kl_parallel'",
    ),
    "forks": imports("starts a process", "int fork(void);", "fork();", "fork"),
    "daemonizes": imports("leaves", "int daemon(int, int);", "daemon(1, 1);", "daemon"),
    "connects": imports(
        "opens a socket", "int socket(int, int, int);", "socket(2, 1, 0);", "socket"
    ),
    "traces": imports("traces a process", "long ptrace(int, ...);", "ptrace(0);", "ptrace"),
    "executes": imports(
        "becomes a program", "int execv(const char *, char **);", 'execv("/bin/true", 0);', "execv"
    ),
    "creates": imports(
        "creates a file", "int open(const char *, int, ...);", 'open("new", 0101, 0600);', "open"
    ),
    "alarms": imports(
        "sets a timer",
        "int setitimer(int, const void *, void *);",
        "setitimer(0, 0, 0);",
        "setitimer",
    ),
    "handles": imports("handles signals", "void *signal(int, void *);", "signal(11, 0);", "signal"),
    "blocks": imports(
        "blocks signals",
        "int sigprocmask(int, void *, void *);",
        "sigprocmask(0, 0, 0);",
        "sigprocmask",
    ),
    "closes": imports(
        "closes descriptors", "int close(int);", "for (int i = 3; i < 64; i++) close(i);", "close"
    ),
    "unmaps": imports(
        "unmaps memory", "int munmap(void *, unsigned long);", "munmap(0, 4096);", "munmap"
    ),
    "loads": imports(
        "loads a library", "void *dlopen(const char *, int);", 'dlopen("libm.so.6", 2);', "dlopen"
    ),
    "exits": imports("ends the process as if all was well", "void exit(int);", "exit(0);", "exit"),
    "jumps": imports(
        "jumps out of its call",
        "void longjmp(long *, int);",
        "static long to[64]; longjmp(to, 1);",
        "longjmp",
    ),
    "threads": imports(
        "works in a thread",
        "int pthread_create(void *, void *, void *, void *);",
        "long t; pthread_create(&t, 0, 0, 0);",
        "pthread_create",
    ),
    "looks_at_clock": imports(
        "reads the clock",
        "int clock_gettime(int, void *);",
        "long t[2]; clock_gettime(1, t);",
        "clock_gettime",
    ),
    # While it runs: found by the sandbox.
    "forks_quietly": asks("starts a process", "57", "start a process (fork)"),
    "clones_quietly": asks("starts a process", "56, 17, 0, 0, 0, 0", "start a process (clone)"),
    "connects_quietly": asks("opens a socket", "41, 2, 1, 0", "open a socket (socket)"),
    "traces_quietly": asks("traces", "101, 0, 0, 0, 0", "trace a process (ptrace)"),
    "executes_quietly": asks("executes", '59, "/bin/true", 0, 0', "execute a program (execve)"),
    "creates_quietly": asks("creates", '257, -100, "new", 0101, 0600', "for writing (openat)"),
    "alarms_quietly": asks("sets a timer", "38, 0, 0, 0", "set a timer (setitimer)"),
    "handles_quietly": asks("handles", "13, 11, x, 0, 8", "signal handler (rt_sigaction)"),
    "kills_parent": asks("ends its supervisor", "62, syscall(110), 9", "another process (kill)"),
    "maps_code": asks("allocates code", "9, 0, 4096, 7, 34, -1, 0", "executable memory (mmap)"),
    "limits": asks("changes limits", "302, 0, 9, x, 0", "limits of the process (prlimit64)"),
    "unties": asks("outlives its parent", "157, 1, 0, 0, 0, 0", "settings of the process (prctl)"),
    "closes_quietly": Cheat(
        "closes the connection",
        SYSTEM,
        f"{WORKS} for (int i = 3; i < 64; i++) syscall(3, i);",
        "own descriptors (close)",
        allow="syscall",
    ),
    "answers": Cheat(
        "writes to the connection",
        SYSTEM,
        f"{WORKS} for (int i = 3; i < 64; i++) syscall(1, i, x, 8);",
        "own descriptors (write)",
        allow="syscall",
    ),
    "replaces": Cheat(
        "replaces the connection",
        SYSTEM,
        f"{WORKS} for (int i = 3; i < 64; i++) syscall(33, 1, i);",
        "own descriptors (dup2)",
        allow="syscall",
    ),
    "calls_by_itself": Cheat(
        "makes a system call without the C library",
        RAW,
        f"{WORKS} y[0] += 0 * raw(39);",
        "system call 39 by itself",
    ),
    "calls_of_32_bits": Cheat(
        "makes a system call of another instruction set",
        "",
        f'{WORKS} long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory");',
        "another instruction set",
    ),
    "passes_gate": through_gate(
        "creates a file as the runner", '257, -100, (long)"new", 0101, 0600, 0, 0', "257 (openat)"
    ),
    "sends_by_gate": through_gate(
        "writes to standard output as the runner", "46, 1, (long)x, 0, 0, 0, 0", "46 (sendmsg)"
    ),
    "handles_by_gate": through_gate(
        "handles signals as the runner", "13, 11, (long)x, 0, 8, 0, 0", "13 (rt_sigaction)"
    ),
    "calls_of_x32": asks("makes a call of x32", "0x40000000 + 257", "another instruction set"),
    "copies_memory": asks("copies a mapping", "25, x, 0, 4096, 1", "copy a mapping (mremap)"),
    "moves_over": asks_for_memory(
        "moves memory over code of the runner", f"25, x, 4096, 4096, 3, {PAGE}", "runner (mremap)"
    ),
    "moves_code": asks_for_memory(
        "moves code of the runner", f"25, {PAGE}, 4096, 8192, 1", "of the runner (mremap)"
    ),
    "maps_over": asks_for_memory(
        "maps over code of the runner", f"9, {PAGE}, 4096, 3, 50, -1, 0", "of the runner (mmap)"
    ),
    "maps_from_below": asks_for_memory(
        "maps over the runner from below",
        f"9, {PAGE} - (1L << 24), 1L << 25, 3, 50, -1, 0",
        "of the runner (mmap)",
    ),
    "protects": asks_for_memory(
        "makes code of the runner writable", f"10, {PAGE}, 4096, 3", "of the runner (mprotect)"
    ),
    "protects_by_linker": Cheat(
        "makes code of the C library writable, with the linker's own function",
        LINKER,
        f"{WORKS} if (find()) find()((void *)((unsigned long)abort & -4096UL), 4096, 7);",
        "of the runner (mprotect)",
    ),
    "unmaps_all": asks_for_memory(
        "unmaps more than 4 GiB around the runner",
        f"11, {PAGE} - (3L << 31), 3L << 32",
        "of the runner (munmap)",
    ),
    "closes_count": Cheat(
        "closes the file by which its threads are counted",
        f"{SYSTEM} int snprintf(char *, unsigned long, const char *, ...);",
        f"{WORKS} for (int i = 3; i < 64; i++) {{\n"
        '        char path[32], to[64]; snprintf(path, 32, "/proc/self/fd/%d", i);\n'
        "        long got = syscall(89, path, to, 64);\n"
        "        if (got > 5 && to[got - 1] == 'k' && to[got - 4] == 't') syscall(3, i); }",
        "own descriptors (close)",
        allow="syscall",
    ),
    "discards": asks_for_memory(
        "discards code of the runner", f"28, {PAGE}, 4096, 4", "of the runner (madvise)"
    ),
    "reads_quietly": Cheat(
        "reads what the system tells of its process, and gets nothing",
        SYSTEM,
        f'{WORKS} if (syscall(257, -100, "/proc/self/maps", 0) >= 0) y[0] += 1;',
        "",
        "ok",
        allow="syscall",
    ),
    "creates_in_memory": asks("creates a file in memory", '319, "new", 0', "(memfd_create)"),
    "owns": asks("gives a file to another user", '94, "new", 0, 0', "change a file (lchown)"),
    "dates": asks("changes the time of a file", '235, "new", 0', "change a file (utimes)"),
    "takes_priority": asks("changes how it is scheduled", "141, 0, 0, 19", "(setpriority)"),
    "leaves_folder": asks("leaves its folder", '80, "/"', "leave its folder (chdir)"),
    "closes_count_freely": Cheat(
        "closes the same where there is no sandbox",
        f"{SYSTEM} int snprintf(char *, unsigned long, const char *, ...);",
        f"{WORKS} for (int i = 3; i < 64; i++) {{\n"
        '        char path[32], to[64]; snprintf(path, 32, "/proc/self/fd/%d", i);\n'
        "        long got = syscall(89, path, to, 64);\n"
        "        if (got > 5 && to[got - 1] == 'k' && to[got - 4] == 't') syscall(3, i); }",
        "an uncertain number of threads",
        "suspicious",
        allow="everything",
    ),
    # In the state of its thread.
    "rounds": Cheat(
        "rounds upwards from now on",
        "",
        f"{WORKS} __builtin_ia32_ldmxcsr(0x5f80);",
        "changed the rounding",
        "wrong",
    ),
    "flushes": Cheat(
        "takes denormal numbers for zero from now on",
        "",
        f"{WORKS} __builtin_ia32_ldmxcsr(0x9fc0);",
        "denormal numbers",
        "wrong",
    ),
    "rounds_in_pool": Cheat(
        "rounds upwards in a thread of the pool from now on",
        f"{POOL}\nstatic void part(void *c, long task) {{ (void)c;\n"
        "    if (task) __builtin_ia32_ldmxcsr(0x5f80); }",
        f"{WORKS} kl_parallel(2, 2, part, 0);",
        "in a thread of kl_parallel",
        "wrong",
    ),
    "rounds_x87": Cheat(
        "shortens long doubles from now on",
        "",
        f'{WORKS} short c = 0x7f; __asm__ volatile("fldcw %0" : : "m"(c));',
        "control word",
        "wrong",
    ),
    "blocks_quietly": Cheat(
        "blocks all signals",
        SYSTEM,
        f"{WORKS} static long all = -1; syscall(14, 0, &all, 0, 8);",
        "blocked signals",
        "wrong",
        allow="syscall",
    ),
    # In its memory.
    "descends": Cheat(
        "overflows the stack",
        "static float down(volatile char *above) {\n"
        "    volatile char here[65536]; here[0] = above[0]; return down(here) + here[1]; }",
        f"{WORKS} volatile char top = 1; y[0] += down(&top);",
        "SIGSEGV",
        "crashed",
    ),
    "allocates": Cheat(
        "takes more stack than there is",
        "",
        f"{WORKS} volatile char *room = __builtin_alloca((unsigned long)n << 30); room[0] = 1;"
        " y[0] += room[0];",
        "SIGSEGV",
        "crashed",
    ),
}
"""Name -> a kernel that doubles, and what else it does."""
TWINS = {
    "constructs": (
        "static volatile int ran;\nstatic void early(void) { ran = 1; }",
        f"early(); {WORKS}",
    ),
    "writes_code": ("static char table[64];", f"table[n % 64]++; {WORKS}"),
    "shadows_clock": (
        "static long clock_gettime_of(long a) { return a; }",
        f"{WORKS} y[0] += 0 * clock_gettime_of(n);",
    ),
    "threads": (
        "void kl_parallel(long, long, void (*)(void *, long), void *);\n"
        "struct work { long n; const float *x; float *y; };\n"
        "static void part(void *c, long task) { struct work *w = c; long half = w->n / 2;\n"
        "    for (long i = task * half; i < (task ? w->n : half); i++) w->y[i] = 2 * w->x[i]; }",
        "struct work w = {n, x, y}; kl_parallel(2, 2, part, &w);",
    ),
    "unmaps": (
        "void *malloc(unsigned long); void free(void *);",
        f"float *t = malloc(n * 4 + 4000000); t[0] = x[0]; {WORKS} y[0] = 2 * t[0]; free(t);",
    ),
    "moves_over": (
        "void *malloc(unsigned long); void *realloc(void *, unsigned long); void free(void *);",
        "float *t = malloc(n + 400000); t[0] = x[0]; t = realloc(t, n * 4 + 90000000);"
        f" t = realloc(t, n * 4 + 500000); {WORKS} y[0] = 2 * t[0]; free(t);",
    ),
    "loads": (
        "double sin(double); float sqrtf(float);",
        f"{WORKS} volatile double s = sin(n) + sqrtf(n); y[0] += 0 * s;",
    ),
    "exits": ("void abort(void);", f"if (n < 0) abort(); {WORKS}"),
    "answers": (
        "int snprintf(char *, unsigned long, const char *, ...);",
        f'char text[32]; snprintf(text, 32, "%ld", n); {WORKS} y[0] += 0 * text[0];',
    ),
    "rounds": (
        "",
        "unsigned before = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(0x5f80);"
        f" {WORKS} __builtin_ia32_ldmxcsr(before);",
    ),
    "rounds_in_pool": (
        f"{POOL}\nstatic void part(void *c, long task) {{ (void)task;\n"
        "    volatile float *y = c; *y = 0; }",
        "float r[2]; unsigned before = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(0x9fc0);"
        f" kl_parallel(2, 2, part, r); __builtin_ia32_ldmxcsr(before); {WORKS}",
    ),
    "blocks": ("static _Thread_local long calls;", f"calls++; {WORKS}"),
    "descends": (
        "static float down(int levels) { volatile char here[4096]; here[0] = 0;\n"
        "    return levels ? down(levels - 1) + here[0] : 0; }",
        f"{WORKS} y[0] += down(100);",
    ),
    "allocates": (
        "",
        f"volatile char *room = __builtin_alloca(n % 4096 + 1); room[0] = 0;"
        f" {WORKS} y[0] += room[0];",
    ),
    "calls_by_itself": (
        "static long raw(long number) { return number; }",
        f"{WORKS} y[0] += 0 * raw(39);",
    ),
}
"""Name of a cheat -> head and body of an honest kernel that looks like it."""


def add(project: Project, name: str) -> None:
    """The kernel and its workload."""
    cheat = CHEATS[name]
    project.add(name, cheat.body, head=cheat.head)
    if cheat.allow:
        path = project.folder / f"configs/workload/{name}.yaml"
        path.write_text(f"{path.read_text()}allow: [{cheat.allow}]\n")


def ends(project: Project, names: Iterable[str], policy: str) -> Mapping[str, dict[str, Any]]:
    """The trials of these kernels and of their twins, by name."""
    order = []
    for name in names:
        add(project, name)
        order.append(name)
        if name in TWINS:
            head, body = TWINS[name]
            project.add(name + TWIN, body, head=head)
            order.append(name + TWIN)
    words = (f"workload={','.join(order)}", f"measure={policy}", "timeout=20")
    return {trial["workload"]: trial for trial in project.json("run", "-m", *words).trials}


def verdict(name: str, trials: Mapping[str, dict[str, Any]]) -> str:
    """What is wrong with how a kernel and its twin ended; empty: nothing."""
    cheat, trial, twin = CHEATS[name], trials[name], trials.get(name + TWIN)
    if trial["status"] != cheat.status or cheat.says not in trial["message"]:
        return f"{name}: {trial['status']}: {trial['message']}"
    if twin and twin["status"] not in ("ok", "unconverged"):
        return f"{name}{TWIN}: {twin['status']}: {twin['message']}"
    return ""
