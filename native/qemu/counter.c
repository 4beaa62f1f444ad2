/* QEMU plugin that counts the instructions a program executes between two markers.
 *
 * A program under qemu-user marks with a system call (kernloom/marker.h). With counter=FD, the
 * count of the last region is at the start of that file, which the program can map, too.
 *
 * A program under qemu-system marks with a no-op instruction that no compiler emits. With out=FILE,
 * the total of all regions is written there at the end, as a decimal number.
 *
 * Counts are exact for one thread. Distributions do not ship the header of QEMU's plugin interface,
 * hence these declarations: version 1 (QEMU 7.2), version 2 (9.0), where a plugin adds to a slot
 * per CPU and no longer to a variable, and version 3 (9.1), which copies an instruction's bytes.
 * Functions that only some versions have are declared weak, and are NULL in the others. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernloom/marker.h"

#define EXPORT __attribute__((visibility("default")))
#define WEAK __attribute__((weak))

enum { SLOTS_SINCE = 2, COPIES_SINCE = 3, INLINE_ADD_U64 = 0, NO_REGISTERS = 0 };

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;

/* A counter per CPU, held by QEMU. */
struct slots {
    struct qemu_plugin_scoreboard *board;
    size_t offset;
};

struct qemu_info {
    const char *target_name;
    struct {
        int min, cur;
    } version;
    bool system_emulation;
    struct {
        int smp_vcpus, max_vcpus;
    } system;
};

typedef void (*translated)(plugin_id, struct qemu_plugin_tb *);
typedef void (*executed)(unsigned cpu, void *data);
typedef void (*called)(plugin_id, unsigned cpu, int64_t number, uint64_t, uint64_t, uint64_t,
                       uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef void (*ended)(plugin_id, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, translated);
WEAK void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
WEAK void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int, void *,
                                                     uint64_t);
WEAK void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *, int,
                                                            struct slots, uint64_t);
WEAK void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *, int,
                                                              struct slots, uint64_t);
WEAK struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t bytes);
WEAK uint64_t qemu_plugin_u64_get(struct slots, unsigned cpu);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, executed, int, void *);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, called);
void qemu_plugin_register_atexit_cb(plugin_id, ended, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
void qemu_plugin_insn_data(void);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);

typedef const void *(*data_of)(const struct qemu_plugin_insn *);
typedef size_t (*copy_of)(const struct qemu_plugin_insn *, void *, size_t);

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(plugin_id, const struct qemu_info *, int, char **);

/* Marker instructions of the machines that run under qemu-system. */
struct markers {
    const char *machine;
    size_t bytes;
    uint32_t begin, end;
};

static const struct markers known[] = {
    {"arm", 2, 0x46d2, 0x46db},             /* mov r10, r10 and mov r11, r11 */
    {"riscv32", 4, 0x05102013, 0x05202013}, /* slti x0, x0, 0x51 and 0x52 */
    {"riscv64", 4, 0x05102013, 0x05202013},
};

static uint64_t executed_total;
static struct slots executed_by_cpu;
static bool copies;
static uint64_t region_start;
static uint64_t regions_total;
static bool inside;
static const struct markers *markers;
static volatile uint64_t *last_region;
static char *out;

/* QEMU checks the version when it loads the plugin, and refuses one that it does not support. */
__attribute__((constructor)) static void choose_version(void) {
    if (qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu)
        qemu_plugin_version = SLOTS_SINCE;
}

static bool has_slots(void) {
    return qemu_plugin_version >= SLOTS_SINCE;
}

static uint64_t executed_so_far(unsigned cpu) {
    return has_slots() ? qemu_plugin_u64_get(executed_by_cpu, cpu) : executed_total;
}

static void begin(unsigned cpu) {
    inside = true;
    region_start = executed_so_far(cpu);
}

static void end(unsigned cpu) {
    if (!inside)
        return;
    inside = false;
    uint64_t count = executed_so_far(cpu) - region_start;
    regions_total += count;
    if (last_region)
        *last_region = count;
}

static void on_call(plugin_id id, unsigned cpu, int64_t number, uint64_t which, uint64_t a2,
                    uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    (void)id, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    if (number != KL_MARKER_CALL)
        return;
    if (which == KL_MARKER_BEGIN)
        begin(cpu);
    else if (which == KL_MARKER_END)
        end(cpu);
}

/* A system call ends a block, so counting whole blocks is exact between two of them. */
static void count_block(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(block);
    if (has_slots())
        qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, INLINE_ADD_U64, executed_by_cpu,
                                                          count);
    else
        qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD_U64, &executed_total, count);
}

static void on_begin(unsigned cpu, void *data) {
    (void)data;
    begin(cpu);
}

static void on_end(unsigned cpu, void *data) {
    (void)data;
    end(cpu);
}

static uint32_t code_of(const struct qemu_plugin_insn *instruction) {
    uint32_t code = 0;
    if (copies) {
        copy_of copy = (copy_of)qemu_plugin_insn_data;
        copy(instruction, &code, markers->bytes);
    } else {
        data_of data = (data_of)qemu_plugin_insn_data;
        memcpy(&code, data(instruction), markers->bytes);
    }
    return code;
}

/* A marker may be inside a block, and a fault may leave it early: count each instruction. */
static void count_instructions(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        if (has_slots())
            qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, INLINE_ADD_U64,
                                                                executed_by_cpu, 1);
        else
            qemu_plugin_register_vcpu_insn_exec_inline(instruction, INLINE_ADD_U64, &executed_total,
                                                       1);
        if (qemu_plugin_insn_size(instruction) != markers->bytes)
            continue;
        uint32_t code = code_of(instruction);
        if (code == markers->begin)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_begin, NO_REGISTERS, NULL);
        else if (code == markers->end)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_end, NO_REGISTERS, NULL);
    }
}

static void write_total(plugin_id id, void *data) {
    (void)id, (void)data;
    FILE *file = fopen(out, "w");
    if (!file || fprintf(file, "%" PRIu64 "\n", regions_total) < 0 || fclose(file) != 0)
        fprintf(stderr, "counter: %s: %s\n", out, strerror(errno));
}

static int refuse(const char *why, const char *what) {
    fprintf(stderr, "counter: %s%s\n", why, what);
    return -1;
}

static bool number(const char *text, long *value) {
    char *rest;
    *value = strtol(text, &rest, 10);
    return rest != text && !*rest;
}

/* The text after NAME= in one of the options, or NULL. */
static const char *value_of(const char *name, int count, char **options) {
    size_t length = strlen(name);
    for (int i = 0; i < count; i++)
        if (strncmp(options[i], name, length) == 0 && options[i][length] == '=')
            return options[i] + length + 1;
    return NULL;
}

static bool map_counter(const char *text) {
    long descriptor;
    if (!number(text, &descriptor))
        return false;
    void *page =
        mmap(NULL, sizeof *last_region, PROT_READ | PROT_WRITE, MAP_SHARED, (int)descriptor, 0);
    if (page == MAP_FAILED)
        return false;
    last_region = page;
    return true;
}

static int install_for_programs(plugin_id id, int count, char **options) {
    const char *counter = value_of("counter", count, options);
    if (!counter || count != 1)
        return refuse("qemu-user needs counter=FD and nothing else", "");
    if (!map_counter(counter))
        return refuse("this file cannot be mapped: ", counter);
    qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
    qemu_plugin_register_vcpu_syscall_cb(id, on_call);
    return 0;
}

static int install_for_machines(plugin_id id, const char *machine, int count, char **options) {
    const char *file = value_of("out", count, options);
    if (!file || count != 1)
        return refuse("qemu-system needs out=FILE and nothing else", "");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].machine, machine) == 0)
            markers = &known[i];
    if (!markers)
        return refuse("no marker instructions are known for ", machine);
    out = strdup(file);
    qemu_plugin_register_vcpu_tb_trans_cb(id, count_instructions);
    qemu_plugin_register_atexit_cb(id, write_total, NULL);
    return 0;
}

int qemu_plugin_install(plugin_id id, const struct qemu_info *info, int count, char **options) {
    copies = info->version.cur >= COPIES_SINCE;
    if (has_slots())
        executed_by_cpu.board = qemu_plugin_scoreboard_new(sizeof(uint64_t));
    return info->system_emulation ? install_for_machines(id, info->target_name, count, options)
                                  : install_for_programs(id, count, options);
}
