"""Kernels that cheat or are broken, and how each ends; every one has an honest twin.

A kernel computes one of the operations below. `body` is its C function; in it, `WORK` is a call of
the honest one with the same arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
#define _GNU_SOURCE 1
#include <alloca.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fenv.h>
#include <link.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long calls;
__attribute__((unused)) static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
__attribute__((unused)) static uint32_t hash(const float *x, long n, long step) {
    uint32_t h[8] = {0}, all = 2166136261u;
    const uint32_t *bits = (const uint32_t *)x;
    for (long i = 0; i + 7 * step < n; i += 8 * step)
        for (int j = 0; j < 8; j++) h[j] = h[j] * 31u + bits[i + j * step];
    for (int j = 0; j < 8; j++) all = (all ^ h[j]) * 16777619u;
    return all;
}
"""


@dataclass(frozen=True)
class Operation:
    """What a kernel should compute: its parameters in C, its config, and the honest function."""

    parameters: str
    arguments: str
    """Those of a call."""
    honest: str
    sizes: str
    tensors: str
    kernel: str
    golden: str
    more: str = ""


PRODUCT = Operation(
    "long n, const float *a, const float *b, float *c",
    "n, a, b, c",
    """\
    for (long i = 0; i < n; i++) {
        for (long j = 0; j < n; j++) c[i * n + j] = 0;
        for (long k = 0; k < n; k++)
            for (long j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }""",
    "{n: 64}",
    "  a: {shape: [n, n]}\n  b: {shape: [n, n]}\n  c: {shape: [n, n]}",
    """\
  n: {kind: size}
  a: {kind: tensor, shape: [n, n]}
  b: {kind: tensor, shape: [n, n]}
  c: {kind: tensor, access: write, shape: [n, n]}""",
    "c: a @ b",
    "cost: {flops: 2 * n * n * n}\n",
)
UPDATE = Operation(
    "long n, const float *x, float *y",
    "n, x, y",
    "    for (long i = 0; i < n; i++) y[i] += 1.5f * x[i];",
    "{n: 50000}",
    "  x: {shape: [n]}\n  y: {shape: [n]}",
    """\
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: update, shape: [n]}""",
    "y: 1.5 * x + y",
)
SCALED = Operation(
    "long n, const float *x, float *y",
    "n, x, y",
    "    for (long i = 0; i < n; i++) y[i] = 2 * x[i];",
    "{n: 20000}",
    "  x: {shape: [n]}\n  y: {shape: [n]}",
    """\
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}""",
    "y: 2 * x",
)
WORK = "WORK"


@dataclass(frozen=True)
class Cheat:
    """A kernel that must not rank, and its twin, which must."""

    about: str
    body: str
    status: str
    """How its trial ends: one status, or several with `|` where it depends on the system."""
    says: str = ""
    """Part of the message."""
    twin: str = WORK
    """A body that does something like it honestly."""
    operation: Operation = PRODUCT
    head: str = ""
    lines: str = ""
    """Further lines of its workload, and of its twin's."""
    twin_lines: str = ""
    """The same, of its twin's alone."""
    imports: str = ""
    """What its library must not import: it is refused, and runs only where its workload allows
    everything; then it ends in its status."""
    policy: str = "quick"
    """The least policy that finds it always; others find it nearly always."""


SCRATCH = """
static float *room;
__attribute__((unused)) static float *scratch(long n) {
    if (!room) room = malloc((size_t)n * sizeof *room);
    return room;
}
"""
THREAD = """
struct job { long n; const float *a, *b; float *c; };
static void honest(long n, const float *a, const float *b, float *c);
__attribute__((unused)) static void *work(void *given) {
    struct job *job = given;
    honest(job->n, job->a, job->b, job->c);
    return 0;
}
"""
HELPER = (
    THREAD
    + """
static struct job posted;
static volatile int ready;
static void *serve(void *unused) {
    (void)unused;
    for (;;) {
        while (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) ;
        work(&posted);
        __atomic_store_n(&ready, 0, __ATOMIC_RELEASE);
    }
    return 0;
}
"""
)
PATCH = """
static int (*true_clock)(clockid_t, struct timespec *);
static int slow_clock(clockid_t clock, struct timespec *t) {
    int result = true_clock(clock, t);
    uint64_t ns = ((uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec) / 50;
    t->tv_sec = (time_t)(ns / 1000000000u);
    t->tv_nsec = (long)(ns % 1000000000u);
    return result;
}
static int patch(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size; (void)data;
    const ElfW(Dyn) *dynamic = 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    const ElfW(Sym) *symbols = 0;
    const char *names = 0;
    const ElfW(Rela) *tables[2] = {0};
    size_t bytes[2] = {0};
    for (; dynamic && dynamic->d_tag; dynamic++) {
        void *at = (void *)dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_SYMTAB) symbols = at;
        if (dynamic->d_tag == DT_STRTAB) names = at;
        if (dynamic->d_tag == DT_RELA) tables[0] = at;
        if (dynamic->d_tag == DT_RELASZ) bytes[0] = dynamic->d_un.d_val;
        if (dynamic->d_tag == DT_JMPREL) tables[1] = at;
        if (dynamic->d_tag == DT_PLTRELSZ) bytes[1] = dynamic->d_un.d_val;
    }
    for (int t = 0; t < 2 && symbols && names; t++)
        for (size_t i = 0; tables[t] && i < bytes[t] / sizeof(ElfW(Rela)); i++) {
            const ElfW(Rela) *entry = &tables[t][i];
            if (strcmp(names + symbols[ELF64_R_SYM(entry->r_info)].st_name, "clock_gettime"))
                continue;
            void **slot = (void **)(info->dlpi_addr + entry->r_offset);
            mprotect((void *)((uintptr_t)slot & ~4095ul), 4096, PROT_READ | PROT_WRITE);
            true_clock = clock_gettime;
            *slot = (void *)slow_clock;
        }
    return 1;
}
"""
MAPS = """
static void *window(size_t *bytes) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from = 0, to = 0;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "kernloom-window")) sscanf(line, "%lx-%lx", &from, &to);
    if (maps) fclose(maps);
    *bytes = to - from;
    return (void *)from;
}
"""
KEEPS_SUM = "static double total;"

SMALL = {"quick": 8, "standard": 3, "rigorous": 3}
"""Kernels of the normal run, by policy; a whole attack tries all of them."""

CHEATS: dict[str, Cheat] = {
    # Results that are replayed.
    "replay_pointer": Cheat(
        "returns when it has seen the output before",
        "static float *seen; if (seen == c) return; seen = c; WORK;",
        "wrong",
        twin="static float *seen; if (seen != c) { seen = c; calls = 0; } calls++; WORK;",
    ),
    "replay_pointers": Cheat(
        "returns when it has seen all three pointers before",
        "static const float *p, *q; static float *r;"
        "if (p == a && q == b && r == c) return; p = a; q = b; r = c; WORK;",
        "wrong",
    ),
    "replay_first": Cheat(
        "returns when the first elements of its inputs are those of the last call",
        "static float p[16], q[16];"
        "if (!memcmp(p, a, sizeof p) && !memcmp(q, b, sizeof q)) return;"
        "memcpy(p, a, sizeof p); memcpy(q, b, sizeof q); WORK;",
        "wrong",
    ),
    "replay_sparse_hash": Cheat(
        "returns when a hash of every 37th element has not changed",
        "static uint32_t h; uint32_t now = hash(a, n * n, 37) ^ hash(b, n * n, 37) * 3u;"
        "if (h == now && calls++) return; h = now; WORK;",
        "wrong|suspicious",
        policy="standard",
    ),
    "replay_hash": Cheat(
        "returns when a hash of all inputs has not changed",
        "static uint32_t h; uint32_t now = hash(a, n * n, 1) ^ hash(b, n * n, 1) * 3u;"
        "if (h == now && calls++) return; h = now; WORK;",
        "suspicious|wrong",
        twin="static volatile uint32_t h; h = hash(a, n * n, 1); WORK;",
    ),
    "replay_copy": Cheat(
        "keeps a copy of the result, and copies it back while a hash of all inputs is the same",
        "static uint32_t h; static float kept[4096];"
        "uint32_t now = hash(a, n * n, 1) ^ hash(b, n * n, 1) * 3u;"
        "if (h == now && calls++) { memcpy(c, kept, sizeof kept); return; }"
        "h = now; WORK; memcpy(kept, c, sizeof kept);",
        "suspicious",
        "results are kept between calls",
        twin="static float kept[4096]; WORK; memcpy(kept, c, sizeof kept);",
    ),
    "replay_output": Cheat(
        "returns when the middle of its output is not poisoned",
        "if (c[n * n / 2] == c[n * n / 2]) return; WORK;",
        "wrong|suspicious",
    ),
    # Work that is done in some calls only.
    "first_calls": Cheat("works in its first 5 calls", "if (calls++ < 5) WORK;", "wrong"),
    "eighth_calls": Cheat(
        "works in one of eight calls",
        "if (calls++ % 8 == 0) WORK;",
        "wrong|timeout",
        policy="standard",
    ),
    "growing_calls": Cheat(
        "works in calls 1, 2, 4, 8, ...",
        "calls++; if (!(calls & (calls - 1))) WORK;",
        "wrong",
    ),
    "after_warm_up": Cheat(
        "works until it has run for a millisecond",
        "static double start; double now = seconds(); if (!start) start = now;"
        "if (now - start < 1e-3) WORK;",
        "wrong",
        imports="clock_gettime",
    ),
    "between_samples": Cheat(
        "works only in the first call after a pause, which it takes for a new sample",
        "static uint64_t last; uint64_t now = __builtin_ia32_rdtsc();"
        "int pause = now - last > 20000; if (pause) WORK; last = __builtin_ia32_rdtsc();",
        "wrong",
        policy="standard",
    ),
    "after_pauses": Cheat(
        "works only in calls after a pause, which it takes for a sign of a proof",
        "static uint64_t last; uint64_t now = __builtin_ia32_rdtsc();"
        "if (now - last > 2500) WORK; else for (volatile int i = 0; i < 800; i++) ;"
        "last = __builtin_ia32_rdtsc();",
        "wrong",
    ),
    "repairs": Cheat(
        "computes what was poisoned and a part in turn, and works if more was poisoned",
        "long where = 0; int found = 0; const uint64_t *w = (const uint64_t *)c;"
        "for (long i = 0; i < n * n / 2; i += 8) if (w[i] == ~0ull) { where = 2 * i; found++; }"
        "if (found > 1) WORK; else { long at = found ? where : (calls++ & 255) * 16;"
        "for (long j = at; j < at + 16; j++) { float s = 0; for (long k = 0; k < n; k++)"
        "s += a[j / n * n + k] * b[k * n + j % n]; c[j] = s; } }",
        "wrong",
    ),
    "pure_data": Cheat(
        "works in every fourth call, and where its inputs are nearly those of its first call",
        "static float *kept; long bytes = n * n * 4, differ = 0;"
        "if (!kept) { kept = malloc(2 * bytes); memcpy(kept, a, bytes);"
        "memcpy(kept + n * n, b, bytes); }"
        "for (long i = 0; i < n * n; i += 16) differ += !!memcmp(kept + i, a + i, 64)"
        "+ !!memcmp(kept + n * n + i, b + i, 64);"
        "if (differ <= 1 || calls++ % 4 == 0) WORK;",
        "wrong",
        policy="standard",
    ),
    "updates_after_pauses": Cheat(
        "updates only in calls after a pause, and in every fourth",
        "static uint64_t last; uint64_t now = __builtin_ia32_rdtsc();"
        "if (now - last > 2500 || calls++ % 4 == 0) WORK; last = __builtin_ia32_rdtsc();",
        "wrong",
        operation=UPDATE,
        policy="standard",
    ),
    "half_later": Cheat(
        "computes the lower half in its first calls only",
        "if (calls++ < 5) WORK; else { for (long i = 0; i < n / 2; i++) {"
        "for (long j = 0; j < n; j++) c[i * n + j] = 0;"
        "for (long k = 0; k < n; k++) for (long j = 0; j < n; j++)"
        "c[i * n + j] += a[i * n + k] * b[k * n + j]; } }",
        "wrong",
    ),
    "tail_later": Cheat(
        "leaves out the last element after its first calls",
        "float last = c[n * n - 1]; WORK; if (calls++ > 5) c[n * n - 1] = last;",
        "wrong",
    ),
    "tail_always": Cheat(
        "leaves out the last element",
        "float last = c[n * n - 1]; WORK; c[n * n - 1] = last;",
        "wrong",
    ),
    "precision_later": Cheat(
        "drops 16 bits of its inputs after its first calls",
        "if (calls++ < 5) { WORK; return; } for (long i = 0; i < n; i++) {"
        "for (long j = 0; j < n; j++) c[i * n + j] = 0;"
        "for (long k = 0; k < n; k++) { uint32_t u; memcpy(&u, &a[i * n + k], 4);"
        "u &= 0xffff0000u; float s; memcpy(&s, &u, 4);"
        "for (long j = 0; j < n; j++) c[i * n + j] += s * b[k * n + j]; } }",
        "wrong",
    ),
    "precision_always": Cheat(
        "drops 16 bits of its results",
        "WORK; for (long i = 0; i < n * n; i++) { uint32_t u; memcpy(&u, &c[i], 4);"
        "u &= 0xffff0000u; memcpy(&c[i], &u, 4); }",
        "wrong",
    ),
    "constant": Cheat("writes zeros", "for (long i = 0; i < n * n; i++) c[i] = 0;", "wrong"),
    "drifts": Cheat(
        "adds the number of its calls, times a hundred thousandth",
        "WORK; calls++; for (long i = 0; i < n * n; i++) c[i] += 1e-5f * (float)calls;",
        "wrong",
        head=KEEPS_SUM,
        twin="WORK; calls++; for (long i = 0; i < n * n; i++) c[i] += 1e-12f * (float)calls;",
    ),
    # Workloads that update a tensor.
    "update_once": Cheat("updates once", "if (!calls++) WORK;", "wrong", operation=UPDATE),
    "update_half": Cheat(
        "updates half of the elements after its first call",
        "for (long i = 0; i < (calls ? n / 2 : n); i++) y[i] += 1.5f * x[i]; calls++;",
        "wrong",
        operation=UPDATE,
    ),
    "update_garbage": Cheat(
        "writes garbage after its first call",
        "if (!calls++) WORK; else for (long i = 0; i < n; i++) y[i] = 7;",
        "wrong",
        operation=UPDATE,
    ),
    "update_where_changed": Cheat(
        "works again when the start of its tensor is not as it was left",
        "static float left; if (calls++ && y[0] == left) return; WORK; left = y[0];",
        "wrong|suspicious",
        operation=UPDATE,
    ),
    # Inputs.
    "writes_input": Cheat(
        "overwrites an input after its first call",
        "WORK; if (calls++) ((float *)b)[3] = 0;",
        "wrong",
    ),
    "sorts_input": Cheat(
        "keeps an input in another order for its next calls",
        "float *w = (float *)b; if (!calls++) for (long i = 0; i < n; i++)"
        "for (long j = 0; j < i; j++) { float t = w[i * n + j]; w[i * n + j] = w[j * n + i];"
        "w[j * n + i] = t; } for (long i = 0; i < n; i++) for (long j = 0; j < n; j++) {"
        "float s = 0; for (long k = 0; k < n; k++) s += a[i * n + k] * w[j * n + k];"
        "c[i * n + j] = s; }",
        "wrong",
        twin="float *w = scratch(n * n); for (long i = 0; i < n; i++)"
        "for (long j = 0; j < n; j++) w[j * n + i] = b[i * n + j];"
        "for (long i = 0; i < n; i++) for (long j = 0; j < n; j++) {"
        "float s = 0; for (long k = 0; k < n; k++) s += a[i * n + k] * w[j * n + k];"
        "c[i * n + j] = s; }",
        head=SCRATCH,
    ),
    "overreads": Cheat(
        "writes behind its output after its first calls",
        "WORK; if (calls++ > 5) c[n * n] = 1;",
        "out_of_bounds",
    ),
    "reads_window": Cheat(
        "copies its result from the memory that the engine reads",
        "size_t bytes; float *w = window(&bytes); if (!calls++) { WORK; return; }"
        "if (w) memcpy(c, w, (size_t)(n * n) * sizeof *c); else WORK;",
        "wrong|crashed",
        head=MAPS,
        imports="fopen",
    ),
    # Work that is hidden.
    "side_thread": Cheat(
        "has another thread do its work",
        "pthread_t t; struct job job = {n, a, b, c}; pthread_create(&t, 0, work, &job);"
        "pthread_join(t, 0);",
        "suspicious",
        head=THREAD,
        imports="pthread_create",
    ),
    "helper_thread": Cheat(
        "keeps a thread that does its work",
        "if (!calls++) { pthread_t t; pthread_create(&t, 0, serve, 0); }"
        "posted = (struct job){n, a, b, c}; __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);"
        "while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) usleep(1);",
        "suspicious|timeout",
        head=HELPER,
        imports="pthread_create",
    ),
    "idle_thread": Cheat(
        "leaves a thread running",
        "if (!calls++) { pthread_t t; pthread_create(&t, 0, work, 0); } WORK;",
        "suspicious",
        head="static void *work(void *x) { pause(); return x; }",
        imports="pthread_create",
    ),
    "child_process": Cheat(
        "has a child process work, in memory that it shares",
        "float *s = mmap(0, 1 << 16, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);"
        "pid_t child = fork(); if (!child) { float *c_ = c; c = s; WORK; c = c_; _exit(0); }"
        "waitpid(child, 0, 0); memcpy(c, s, (size_t)(n * n) * sizeof *c); munmap(s, 1 << 16);",
        "suspicious|wrong|crashed",
        imports="fork",
    ),
    "daemonizes": Cheat(
        "leaves a process behind",
        "if (!calls++ && !fork()) { setsid(); if (!fork()) for (;;) pause(); _exit(0); } WORK;",
        "suspicious|crashed",
        imports="fork",
    ),
    "timer": Cheat(
        "leaves a timer running",
        "if (!calls++) { struct itimerval t = {{1000, 0}, {1000, 0}};"
        "setitimer(ITIMER_REAL, &t, 0); } WORK;",
        "suspicious|crashed",
        imports="setitimer",
    ),
    "sleeps": Cheat(
        "sleeps, which costs no CPU time", "WORK; usleep(300);", "suspicious", imports="usleep"
    ),
    "patched_clock": Cheat(
        "makes the clock of its process slower",
        "if (!calls++) dl_iterate_phdr(patch, 0); WORK;",
        "suspicious|crashed",
        head=PATCH,
        policy="standard",
        imports="dl_iterate_phdr",
    ),
    # Kernels that break what runs them.
    "long_jump": Cheat(
        "jumps out of a call that has returned",
        "static jmp_buf there; if (!calls++) { setjmp(there); WORK; } else longjmp(there, 1);",
        "crashed|wrong|timeout|out_of_bounds",
        imports="longjmp",
    ),
    "exits": Cheat("ends its process, with success", "WORK; exit(0);", "crashed", imports="exit"),
    "closes_descriptors": Cheat(
        "closes all descriptors",
        "WORK; for (int i = 0; i < 1024; i++) close(i);",
        "crashed",
        imports="close",
    ),
    "unmaps_window": Cheat(
        "unmaps the memory that the engine reads",
        "WORK; size_t bytes; void *w = window(&bytes); if (w) munmap(w, bytes);",
        "crashed",
        head=MAPS,
        imports="munmap",
    ),
    "blocks_signals": Cheat(
        "blocks all signals and never returns",
        "sigset_t s; sigfillset(&s); sigprocmask(SIG_SETMASK, &s, 0);for (volatile int i = 1; i;);",
        "timeout",
        imports="sigprocmask",
    ),
    "stack_overflow": Cheat(
        "calls itself for ever",
        "extern void descend(volatile char *); volatile char x = 0; descend(&x); WORK;",
        "crashed",
        head="__attribute__((noinline)) void descend(volatile char *above) {"
        "volatile char here[4096]; here[0] = *above; descend(here); here[1] = 0; }",
    ),
    "huge_alloca": Cheat(
        "takes a gigabyte from its stack",
        "volatile char *x = alloca((size_t)1 << 30); x[0] = 1; WORK; x[1] = x[0];",
        "crashed",
        twin="volatile char *x = alloca((size_t)1 << 16); x[0] = 1; WORK; x[1] = x[0];",
    ),
    # State that is declared.
    "keeps_sum": Cheat(
        "adds what it computed before",
        "WORK; total += c[0]; if (calls++) c[0] = (float)total;",
        "wrong",
        head=KEEPS_SUM,
        twin="WORK; total += c[0]; if (calls++) c[0] = (float)total;",
        twin_lines="stateful: true\n",
    ),
}
