#define _GNU_SOURCE 1

#include "sandbox.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "filter.h"
#include "gate.h"
#include "sandbox_checks.h"
#include "sanitizer.h"

#if defined(__aarch64__)
#define MACHINE AUDIT_ARCH_AARCH64
#elif defined(__x86_64__)
#define MACHINE AUDIT_ARCH_X86_64
#define FIRST_OF_OTHERS 0x40000000 /* and more: calls of x32, whose rules these are not */
#else
#define MACHINE AUDIT_ARCH_RISCV64
#endif

enum {
    MAX_RULES = 256,
    MAX_GROUP = 6, /* rules that are looked at one by one */
};

static uint32_t allowed;
static bool prepared, entered;

struct sandbox_runner sandbox_runner;

static size_t rule_jumps[MAX_RULES];

bool sandbox_groups(const char *list, uint32_t *groups) {
    static const struct {
        const char *name;
        uint32_t group;
    } known[] = {{"files", SANDBOX_FILES},         {"network", SANDBOX_NETWORK},
                 {"processes", SANDBOX_PROCESSES}, {"signals", SANDBOX_SIGNALS},
                 {"timers", SANDBOX_TIMERS},       {"libraries", SANDBOX_LIBRARIES}};
    while (*list) {
        size_t bytes = strcspn(list, ","), i = 0, count = sizeof known / sizeof *known;
        while (i < count && (strncmp(known[i].name, list, bytes) != 0 || known[i].name[bytes]))
            i++;
        if (i == count)
            return false;
        *groups |= known[i].group;
        list += bytes + (list[bytes] == ',');
    }
    return true;
}

void sandbox_prepare(struct sandbox_owned what, uint32_t groups) {
    sandbox_runner.owned = what;
    allowed = groups;
    prepared = true;
#if defined(ADDRESS_SANITIZED) || defined(THREAD_SANITIZED)
    /* A report may start a program that knows the names of functions. */
    allowed |= SANDBOX_PROCESSES | SANDBOX_SIGNALS | SANDBOX_READING;
#endif
    sandbox_runner.reading = allowed & SANDBOX_READING;
}

bool sandbox_waits(void) {
    return prepared && (allowed & SANDBOX_LIBRARIES);
}

#ifdef HAS_GATE

static int by_number(const void *a, const void *b) {
    int one = SANDBOX_RULES[*(const uint16_t *)a].number;
    int other = SANDBOX_RULES[*(const uint16_t *)b].number;
    return (one > other) - (one < other);
}

/* Emits a linear search. A rule without a check is refused here; the others jump to the check that
 * they share. */
static void emit_group(const uint16_t *rules, size_t count) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        left += SANDBOX_RULES[rules[i]].check == SANDBOX_NEVER ? 1 : 2;
    for (size_t i = 0; i < count; i++) {
        const struct sandbox_rule *rule = &SANDBOX_RULES[rules[i]];
        if (rule->check == SANDBOX_NEVER) {
            filter_emit(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rule->number, (uint8_t)left, 0);
            left -= 1;
            continue;
        }
        filter_emit(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rule->number, 0, 1);
        rule_jumps[rules[i]] = filter_jump();
        left -= 2;
    }
    filter_answer(SECCOMP_RET_ALLOW);
    filter_answer(SANDBOX_REFUSED);
}

/* A binary search for the call's number, which is loaded. */
static void emit_search(const uint16_t *rules, size_t count) {
    if (count <= MAX_GROUP)
        return emit_group(rules, count);
    size_t half = count / 2;
    filter_emit(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)SANDBOX_RULES[rules[half]].number, 0, 1);
    size_t far = filter_jump();
    emit_search(rules, half);
    filter_land(far);
    emit_search(rules + half, count - half);
}

/* The checks of all rules, each check once. */
static void emit_checks(const uint16_t *rules, size_t count) {
    for (int check = SANDBOX_NEVER + 1; check < SANDBOX_CHECKS; check++) {
        bool used = false;
        for (size_t i = 0; i < count; i++) {
            if ((int)SANDBOX_RULES[rules[i]].check != check)
                continue;
            filter_land(rule_jumps[rules[i]]);
            used = true;
        }
        if (used)
            sandbox_emit_check((enum sandbox_check)check);
    }
}

/* System calls that are allowed at the gate. The list is short, because a kernel could call the
 * gate, too. */
static void emit_gate(void) {
    uint64_t default_action = (uint64_t)(uintptr_t)gate_default_action;
    filter_load(offsetof(struct seccomp_data, nr));
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 0, 1);
    filter_answer(SECCOMP_RET_ALLOW);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_recvfrom, 1, 0);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 4);
    sandbox_allow_if_equal(0, (uint32_t)sandbox_runner.owned.channel);
    filter_answer(SECCOMP_RET_TRAP | BY_ITSELF);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigaction, 0, 5);
    filter_load(filter_argument(1));
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)default_action, 0, 3);
    filter_load(filter_argument(1) + 4);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(default_action >> 32), 0, 1);
    filter_answer(SECCOMP_RET_ALLOW);
    filter_answer(SECCOMP_RET_TRAP | BY_ITSELF);
}

static void emit_filter(void) {
    uint64_t gate = (uint64_t)(uintptr_t)gate_return;
    filter_load(offsetof(struct seccomp_data, arch));
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0);
    filter_answer(SECCOMP_RET_TRAP | OTHER_MACHINE);
#ifdef FIRST_OF_OTHERS
    filter_load(offsetof(struct seccomp_data, nr));
    filter_emit(BPF_JMP | BPF_JGE | BPF_K, FIRST_OF_OTHERS, 0, 1);
    filter_answer(SECCOMP_RET_TRAP | OTHER_MACHINE);
#endif
    filter_load(FILTER_AT);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)gate, 0, 2);
    filter_load(FILTER_AT + 4);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(gate >> 32), 1, 0);
    size_t others = filter_jump();
    emit_gate();
    filter_land(others);
    /* Code in no range is a kernel's. */
    size_t jumps[MAX_RANGES];
    for (size_t i = 0; i < sandbox_runner.range_count; i++)
        jumps[i] = sandbox_jump_from(sandbox_runner.ranges[i]);
    filter_answer(SECCOMP_RET_TRAP | BY_ITSELF);
    for (size_t i = 0; i < sandbox_runner.range_count; i++)
        filter_land(jumps[i]);
    uint16_t rules[MAX_RULES];
    size_t count = 0;
    for (size_t i = 0; i < SANDBOX_RULE_COUNT && i < MAX_RULES; i++)
        if (!(SANDBOX_RULES[i].groups & allowed))
            rules[count++] = (uint16_t)i;
    qsort(rules, count, sizeof *rules, by_number);
    filter_load(offsetof(struct seccomp_data, nr));
    emit_search(rules, count);
    emit_checks(rules, count);
    sandbox_emit_memory_check();
}

static void add_range(uint64_t start, uint64_t end, bool of_linker) {
    while (start < end && sandbox_runner.range_count < MAX_RANGES) {
        uint64_t border = (start >> 32 << 32) + (1ull << 32);
        uint64_t part = end < border ? end : border - 1;
        sandbox_runner.ranges[sandbox_runner.range_count++] = (struct sandbox_range){
            (uint32_t)(start >> 32), (uint32_t)start, (uint32_t)part, of_linker};
        start = part + 1;
    }
}

static int add_library(struct dl_phdr_info *info, size_t bytes, void *inside) {
    bool (*of_kernel)(const void *, const void *) = *(bool (**)(const void *, const void *))inside;
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        if (!of_kernel((const void *)start, (const void *)(start + part->p_memsz)))
            add_range(start, start + part->p_memsz,
                      info->dlpi_addr == getauxval(AT_BASE) && info->dlpi_addr);
    }
    return 0;
}

static bool install(void) {
    struct sock_fprog program;
    if (!filter_program(&program))
        return false;
    /* The mitigation of speculative stores, which older systems turn on with a filter, would make
     * kernels slower than they are. */
    unsigned long flags = SECCOMP_FILTER_FLAG_TSYNC;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                &program) == 0)
        return true;
    /* Linux before 4.17 does not know that flag. */
    return errno == EINVAL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0;
}

bool sandbox_enter(bool (*inside)(const void *start, const void *end)) {
    if (!prepared)
        return entered;
    prepared = false;
    dl_iterate_phdr(add_library, &inside);
    emit_filter();
    entered = sandbox_runner.range_count < MAX_RANGES && install();
    return entered;
}

#else

bool sandbox_enter(bool (*inside)(const void *start, const void *end)) {
    (void)inside;
    return false;
}

#endif

static void append_name(int number, void (*append)(const char *text)) {
    for (size_t i = 0; i < SANDBOX_RULE_COUNT; i++)
        if (SANDBOX_RULES[i].number == number) {
            append(" (");
            append(SANDBOX_RULES[i].name);
            append(")");
        }
}

void sandbox_describe(int data, int number, void (*append)(const char *text),
                      void (*append_number)(int64_t number)) {
    for (size_t i = 0; data == BY_RULE && i < SANDBOX_RULE_COUNT; i++)
        if (SANDBOX_RULES[i].number == number) {
            append("the kernel tried to ");
            append(SANDBOX_RULES[i].attempt);
            append_name(number, append);
            append(", which is not allowed");
            return;
        }
    if (data == OF_RUNNER) {
        append("the kernel tried to replace or protect memory of the runner");
        append_name(number, append);
        append(", which is not allowed");
        return;
    }
    append("the kernel made system call ");
    append_number(number);
    if (data == OTHER_MACHINE)
        append(" of another instruction set");
    else
        append_name(number, append);
    append(" by itself, which is not allowed");
}
