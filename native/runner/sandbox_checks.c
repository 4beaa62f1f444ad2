#define _GNU_SOURCE 1

#include "sandbox_checks.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "filter.h"

static const struct filter_memory MEMORY = {.address = 0, .size = 1};
static const struct filter_memory DESTINATION = {.address = 4, .size = 2};

/* Jumps to the check of MEMORY, which the calls share. */
static size_t memory_checks[SANDBOX_CHECKS + 2 * MAX_RANGES], memory_check_count;

size_t sandbox_jump_from(struct sandbox_range range) {
    filter_load(FILTER_AT + 4);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, range.high, 0, 4);
    filter_load(FILTER_AT);
    filter_emit(BPF_JMP | BPF_JGE | BPF_K, range.low, 0, 2);
    filter_emit(BPF_JMP | BPF_JGT | BPF_K, range.last, 1, 0);
    return filter_jump();
}

void sandbox_allow_if_equal(int argument, uint32_t value) {
    filter_load(filter_argument(argument));
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    filter_answer(SECCOMP_RET_ALLOW);
}

/* Allows if none of these bits is set. */
static void allow_without(int argument, uint32_t bits) {
    filter_load(filter_argument(argument));
    filter_emit(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0);
    filter_answer(SECCOMP_RET_ALLOW);
}

/* Allows reading where it is allowed, and otherwise to the dynamic linker alone. Other calls fail
 * with EACCES, because C libraries look at files that they can do without. */
static void allow_to_read(int argument) {
    enum { WRITING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY) };
    filter_load(filter_argument(argument));
    filter_emit(BPF_JMP | BPF_JSET | BPF_K, WRITING, 0, 1);
    filter_answer(SANDBOX_REFUSED);
    if (sandbox_runner.reading)
        return filter_answer(SECCOMP_RET_ALLOW);
    for (size_t i = 0; i < sandbox_runner.range_count; i++)
        if (sandbox_runner.ranges[i].of_linker) {
            size_t linker = sandbox_jump_from(sandbox_runner.ranges[i]);
            size_t others = filter_jump();
            filter_land(linker);
            filter_answer(SECCOMP_RET_ALLOW);
            filter_land(others);
        }
    filter_answer(SECCOMP_RET_ERRNO | EACCES);
}

/* Allows unless one of the first `count` arguments is a descriptor of the runner. */
static void allow_other_descriptors(int count) {
    const int kept[] = {sandbox_runner.owned.channel, sandbox_runner.owned.tasks,
                        sandbox_runner.owned.schedule};
    for (int argument = 0; argument < count; argument++) {
        filter_load(filter_argument(argument));
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
            if (kept[i] < 0)
                continue;
            filter_emit(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)kept[i], 0, 1);
            filter_answer(SANDBOX_REFUSED);
        }
    }
    filter_answer(SECCOMP_RET_ALLOW);
}

/* Allows unless MEMORY is the runner's. */
static void allow_outside(void) {
    memory_checks[memory_check_count++] = filter_jump();
}

/* Refuses if the range overlaps memory of the runner, from the window to the code of libraries. */
static void refuse_runner(struct filter_memory memory) {
    uint64_t page = getauxval(AT_PAGESZ), window = (uint64_t)(uintptr_t)sandbox_runner.owned.window;
    filter_end_of_memory(memory);
    if (sandbox_runner.owned.window_bytes)
        filter_refuse_memory(memory, window, window + sandbox_runner.owned.window_bytes,
                             SECCOMP_RET_TRAP | OF_RUNNER);
    for (size_t i = 0; i < sandbox_runner.range_count; i++) {
        uint64_t high = (uint64_t)sandbox_runner.ranges[i].high << 32;
        uint64_t start = (high | sandbox_runner.ranges[i].low) / page * page;
        uint64_t end = ((high | sandbox_runner.ranges[i].last) / page + 1) * page;
        filter_refuse_memory(memory, start, end, SECCOMP_RET_TRAP | OF_RUNNER);
    }
}

/* Allows memory without code; memory with code only to the dynamic linker, and nobody the memory
 * of the runner. */
static void allow_without_code(bool fixed_only) {
    filter_load(filter_argument(2));
    filter_emit(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, fixed_only ? 4 : 1, 0);
    if (fixed_only)
        allow_without(3, MAP_FIXED);
    allow_outside();
    for (size_t i = 0; i < sandbox_runner.range_count; i++)
        if (sandbox_runner.ranges[i].of_linker)
            memory_checks[memory_check_count++] = sandbox_jump_from(sandbox_runner.ranges[i]);
    filter_answer(SANDBOX_REFUSED);
}

/* Allows moving memory that is not the runner's to a place that is not; an old size of 0 would copy
 * a mapping. */
static void allow_to_move(void) {
    filter_load(filter_argument(3));
    filter_emit(BPF_JMP | BPF_JSET | BPF_K, MREMAP_FIXED, 1, 0);
    size_t anywhere = filter_jump();
    refuse_runner(DESTINATION);
    filter_land(anywhere);
    filter_load(filter_argument(1));
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3);
    filter_load(filter_argument(1) + 4);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
    filter_answer(SANDBOX_REFUSED);
    allow_outside();
}

/* Allows if the argument is a null pointer. */
static void allow_if_null(int argument) {
    filter_load(filter_argument(argument));
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3);
    filter_load(filter_argument(argument) + 4);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
    filter_answer(SECCOMP_RET_ALLOW);
}

void sandbox_emit_check(enum sandbox_check check) {
    static const uint32_t harmless[] = {PR_GET_NAME, PR_SET_NAME, PR_GET_DUMPABLE,
                                        0x53564d41 /* PR_SET_VMA */};
    switch (check) {
    case SANDBOX_NEVER:
    case SANDBOX_CHECKS:
        break;
    case SANDBOX_NOT_THERE:
        return filter_answer(SECCOMP_RET_ERRNO | ENOSYS);
    case SANDBOX_THREAD:
        filter_load(filter_argument(0));
        filter_emit(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
        filter_answer(SECCOMP_RET_ALLOW);
        break;
    case SANDBOX_PROTECTION:
        return allow_without_code(false);
    case SANDBOX_MAPPING:
        return allow_without_code(true);
    case SANDBOX_MOVE:
        return allow_to_move();
    case SANDBOX_READ_ONLY_1:
        return allow_to_read(1);
    case SANDBOX_READ_ONLY_2:
        return allow_to_read(2);
    case SANDBOX_OWN_PROCESS:
        sandbox_allow_if_equal(0, (uint32_t)getpid());
        break;
    case SANDBOX_DESCRIPTOR:
        return allow_other_descriptors(1);
    case SANDBOX_DESCRIPTORS:
        return allow_other_descriptors(2);
    case SANDBOX_QUESTION:
        allow_if_null(2);
        break;
    case SANDBOX_HANDLER:
        /* Of the C library: to cancel threads, and to change the user of all of them. */
        sandbox_allow_if_equal(0, 32);
        sandbox_allow_if_equal(0, 33);
        allow_if_null(1);
        break;
    case SANDBOX_PROCESS_SETTING:
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
            sandbox_allow_if_equal(0, harmless[i]);
        break;
    case SANDBOX_PERSONALITY:
        sandbox_allow_if_equal(0, 0xffffffff);
        break;
    case SANDBOX_MEMORY:
        return allow_outside();
    }
    filter_answer(SANDBOX_REFUSED);
}

void sandbox_emit_memory_check(void) {
    for (size_t i = 0; i < memory_check_count; i++)
        filter_land(memory_checks[i]);
    refuse_runner(MEMORY);
    filter_answer(SECCOMP_RET_ALLOW);
}
