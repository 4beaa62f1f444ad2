/* Stands in for QEMU with version API of its plugin interface: loads a plugin, "executes" a few
 * instructions and lets the plugin count. Which QEMU has which: 8 has 1, 9.0 has 2, 10.0 has 4.
 *
 *     plugin_host PLUGIN user|system OPTION... */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernloom/marker.h"

enum { LEAST = API == 1 ? 0 : 2, PLAIN = 0xbf00, BEGIN = 0x46d2, END = 0x46db };

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

struct slots {
    uint64_t *board;
    size_t offset;
};

struct qemu_plugin_insn {
    uint16_t code;
    uint64_t *sum, amount;
    void (*called)(unsigned, void *);
};

struct qemu_plugin_tb {
    struct qemu_plugin_insn instructions[5];
    size_t count;
    uint64_t *sum, amount;
};

typedef void (*translated)(uint64_t, struct qemu_plugin_tb *);
typedef void (*called)(uint64_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                       uint64_t, uint64_t, uint64_t, uint64_t);
typedef int (*installed)(uint64_t, const struct qemu_info *, int, char **);

static translated on_translation;
static called on_call;
static void (*on_exit_of)(uint64_t, void *);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated function) {
    (void)id;
    on_translation = function;
}

void qemu_plugin_register_vcpu_syscall_cb(uint64_t id, called function) {
    (void)id;
    on_call = function;
}

void qemu_plugin_register_atexit_cb(uint64_t id, void (*function)(uint64_t, void *), void *data) {
    (void)id, (void)data;
    on_exit_of = function;
}

void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction,
                                            void (*function)(unsigned, void *), int flags,
                                            void *data) {
    (void)flags, (void)data;
    instruction->called = function;
}

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block) {
    return block->count;
}

struct qemu_plugin_insn *qemu_plugin_tb_get_insn(struct qemu_plugin_tb *block, size_t index) {
    return &block->instructions[index];
}

size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction) {
    return sizeof instruction->code;
}

#if API < 3
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction) {
    return &instruction->code;
}
#else
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction, void *to, size_t bytes) {
    memcpy(to, &instruction->code, bytes);
    return bytes;
}
#endif

#if API < 2
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int operation,
                                              void *sum, uint64_t amount) {
    (void)operation;
    block->sum = sum;
    block->amount = amount;
}

void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *instruction, int operation,
                                                void *sum, uint64_t amount) {
    (void)operation;
    instruction->sum = sum;
    instruction->amount = amount;
}
#else
static uint64_t slot;

uint64_t *qemu_plugin_scoreboard_new(size_t bytes) {
    return bytes == sizeof slot ? &slot : NULL;
}

uint64_t qemu_plugin_u64_get(struct slots slots, unsigned cpu) {
    return slots.board[cpu];
}

void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *block, int operation,
                                                       struct slots slots, uint64_t amount) {
    (void)operation;
    block->sum = slots.board;
    block->amount = amount;
}

void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *instruction,
                                                         int operation, struct slots slots,
                                                         uint64_t amount) {
    (void)operation;
    instruction->sum = slots.board;
    instruction->amount = amount;
}
#endif

static void execute(struct qemu_plugin_tb block) {
    on_translation(1, &block);
    if (block.sum)
        *block.sum += block.amount;
    for (size_t i = 0; i < block.count; i++) {
        struct qemu_plugin_insn *instruction = &block.instructions[i];
        if (instruction->sum)
            *instruction->sum += instruction->amount;
        if (instruction->called)
            instruction->called(0, NULL);
    }
}

static void mark(uint64_t which) {
    on_call(1, 0, KL_MARKER_CALL, which, 0, 0, 0, 0, 0, 0, 0);
}

static void run_program(void) {
    struct qemu_plugin_tb block = {.count = 5};
    execute(block);
    mark(KL_MARKER_BEGIN);
    execute(block);
    execute(block);
    mark(KL_MARKER_END);
    execute(block);
}

static void execute_codes(size_t count, const uint16_t *codes) {
    struct qemu_plugin_tb block = {.count = count};
    for (size_t i = 0; i < count; i++)
        block.instructions[i].code = codes[i];
    execute(block);
}

static void run_machine(void) {
    execute_codes(4, (uint16_t[]){PLAIN, BEGIN, PLAIN, PLAIN});
    execute_codes(5, (uint16_t[]){PLAIN, PLAIN, PLAIN, END, PLAIN});
    on_exit_of(1, NULL);
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    void *plugin = dlopen(words[1], RTLD_NOW);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int version = *(int *)dlsym(plugin, "qemu_plugin_version");
    if (version < LEAST || version > API) {
        fprintf(stderr, "version %d is not from %d to %d\n", version, LEAST, API);
        return 1;
    }
    bool machine = strcmp(words[2], "system") == 0;
    struct qemu_info info = {"arm", {LEAST, API}, machine, {1, 1}};
    installed install = (installed)dlsym(plugin, "qemu_plugin_install");
    if (install(1, &info, count - 3, words + 3) != 0)
        return 1;
    machine ? run_machine() : run_program();
    return 0;
}
