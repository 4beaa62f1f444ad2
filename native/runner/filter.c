#include "filter.h"

enum { END_LOW, END_HIGH }; /* words of its scratch memory */

static struct sock_filter code[BPF_MAXINSNS];
static size_t length;
static bool too_long;

size_t filter_emit(uint16_t what, uint32_t value, uint8_t if_true, uint8_t if_false) {
    if (length >= BPF_MAXINSNS) {
        too_long = true;
        return 0;
    }
    code[length] = (struct sock_filter){what, if_true, if_false, value};
    return length++;
}

void filter_load(size_t offset) {
    filter_emit(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

void filter_answer(uint32_t value) {
    filter_emit(BPF_RET | BPF_K, value, 0, 0);
}

size_t filter_argument(int argument) {
    return offsetof(struct seccomp_data, args) + 8 * (size_t)argument;
}

size_t filter_jump(void) {
    return filter_emit(BPF_JMP | BPF_JA, 0, 0, 0);
}

void filter_land(size_t jump) {
    code[jump].k = (uint32_t)(length - jump - 1);
}

void filter_end_of_memory(struct filter_memory memory) {
    filter_load(filter_argument(memory.address));
    filter_emit(BPF_MISC | BPF_TAX, 0, 0, 0);
    filter_load(filter_argument(memory.size));
    filter_emit(BPF_ALU | BPF_ADD | BPF_X, 0, 0, 0);
    filter_emit(BPF_ST, END_LOW, 0, 0);
    /* The carry: the sum is less than what it was added to. */
    filter_emit(BPF_JMP | BPF_JGE | BPF_X, 0, 2, 0);
    filter_emit(BPF_LD | BPF_IMM, 1, 0, 0);
    filter_emit(BPF_JMP | BPF_JA, 1, 0, 0);
    filter_emit(BPF_LD | BPF_IMM, 0, 0, 0);
    const int arguments[] = {memory.address, memory.size};
    for (size_t i = 0; i < 2; i++) {
        filter_emit(BPF_MISC | BPF_TAX, 0, 0, 0);
        filter_load(filter_argument(arguments[i]) + 4);
        filter_emit(BPF_ALU | BPF_ADD | BPF_X, 0, 0, 0);
    }
    filter_emit(BPF_ST, END_HIGH, 0, 0);
}

void filter_refuse_memory(struct filter_memory memory, uint64_t start, uint64_t end,
                          uint32_t answer) {
    /* It begins before the end, */
    filter_load(filter_argument(memory.address) + 4);
    filter_emit(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)(end >> 32), 9, 0);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(end >> 32), 0, 2);
    filter_load(filter_argument(memory.address));
    filter_emit(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)end, 6, 0);
    /* and ends after the start. */
    filter_emit(BPF_LD | BPF_MEM, END_HIGH, 0, 0);
    filter_emit(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)(start >> 32), 3, 0);
    filter_emit(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(start >> 32), 0, 3);
    filter_emit(BPF_LD | BPF_MEM, END_LOW, 0, 0);
    filter_emit(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)start, 0, 1);
    filter_answer(answer);
}

bool filter_program(struct sock_fprog *program) {
    *program = (struct sock_fprog){.len = (unsigned short)length, .filter = code};
    return !too_long;
}
