/* A PE for tests of core kernels: memories are arrays, and copies take effect only when they are
 * waited for. Until then the destination of a load is poisoned; the source of a store must stay as
 * it was. The first thing that is wrong is reported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernloom/core.h"

#define VIRTUAL_BASE (1ull << 40)
enum { POISON = 0xff, MESSAGE = 300 };

/* A copy in flight. */
struct copy {
    int is_load;
    kl_tag tag;
    unsigned char *sram;
    uint64_t device;
    struct kl_rows rows;
    unsigned char *data; /* as it was when the copy was issued */
    struct copy *next;
};

struct pe {
    struct kl_core core;
    unsigned char *memory, *sram;
    uint64_t memory_bytes, used;
    struct copy *copies;
    kl_tag tags;
    uint64_t charged[KL_UNITS], cycles, ahead;
    char message[MESSAGE];
};

static void complain(struct pe *pe, const char *what, uint64_t a, uint64_t b) {
    if (!pe->message[0])
        snprintf(pe->message, MESSAGE, "%s (%llu, %llu)", what, (unsigned long long)a,
                 (unsigned long long)b);
}

static void *allocate(struct kl_core *core, uint64_t bytes) {
    struct pe *pe = (struct pe *)core;
    const uint64_t at = (pe->used + 63) / 64 * 64;
    if (at + bytes > core->sram_bytes) {
        complain(pe, "SRAM is exhausted", at + bytes, core->sram_bytes);
        return calloc(1, bytes + 1);
    }
    pe->used = at + bytes;
    return pe->sram + at;
}

static int overlap(const unsigned char *a, const struct kl_rows *x, const unsigned char *b,
                   const struct kl_rows *y) {
    const unsigned char *a_end = a + (x->rows - 1) * x->sram_stride + x->bytes;
    const unsigned char *b_end = b + (y->rows - 1) * y->sram_stride + y->bytes;
    return a < b_end && b < a_end;
}

static kl_tag issue(struct pe *pe, int is_load, unsigned char *sram, uint64_t device,
                    const struct kl_rows *rows) {
    struct copy *copy = calloc(1, sizeof *copy);
    const uint64_t extent = rows->rows ? (rows->rows - 1) * rows->device_stride + rows->bytes : 0;
    const uint64_t last = rows->rows ? (rows->rows - 1) * rows->sram_stride + rows->bytes : 0;
    *copy = (struct copy){is_load, pe->tags++, sram, device, *rows, NULL, pe->copies};
    if (!rows->rows || !rows->bytes)
        complain(pe, "an empty copy", rows->rows, rows->bytes);
    else if (device < VIRTUAL_BASE || device - VIRTUAL_BASE + extent > pe->memory_bytes)
        complain(pe, "a copy outside of device memory", device - VIRTUAL_BASE, extent);
    else if (sram < pe->sram || sram + last > pe->sram + pe->used)
        complain(pe, "a copy outside of SRAM", (uint64_t)(sram - pe->sram), last);
    if (pe->message[0]) {
        free(copy);
        return pe->tags - 1;
    }
    pe->copies = copy;
    for (struct copy *other = copy->next; other; other = other->next)
        if ((is_load || other->is_load) && overlap(sram, rows, other->sram, &other->rows))
            complain(pe, "two copies use the same SRAM at once", (uint64_t)(sram - pe->sram), last);
    copy->data = malloc(rows->rows * rows->bytes);
    for (uint64_t row = 0; row < rows->rows; row++) {
        unsigned char *from = is_load
                                  ? pe->memory + (device - VIRTUAL_BASE) + row * rows->device_stride
                                  : sram + row * rows->sram_stride;
        memcpy(copy->data + row * rows->bytes, from, rows->bytes);
        if (is_load)
            memset(sram + row * rows->sram_stride, POISON, rows->bytes);
    }
    return copy->tag;
}

static kl_tag load(struct kl_core *core, void *to, uint64_t from, const struct kl_rows *rows) {
    return issue((struct pe *)core, 1, to, from, rows);
}

static kl_tag store(struct kl_core *core, uint64_t to, const void *from,
                    const struct kl_rows *rows) {
    return issue((struct pe *)core, 0, (unsigned char *)from, to, rows);
}

static void finish(struct pe *pe, struct copy *copy) {
    const struct kl_rows *rows = &copy->rows;
    for (uint64_t row = 0; row < rows->rows; row++) {
        unsigned char *sram = copy->sram + row * rows->sram_stride;
        const unsigned char *data = copy->data + row * rows->bytes;
        if (copy->is_load) {
            for (uint64_t i = 0; i < rows->bytes; i++)
                if (sram[i] != POISON)
                    complain(pe, "the destination of a load was written before its wait", row, i);
            memcpy(sram, data, rows->bytes);
        } else {
            if (memcmp(sram, data, rows->bytes))
                complain(pe, "the source of a store was changed before its wait", row, 0);
            memcpy(pe->memory + (copy->device - VIRTUAL_BASE) + row * rows->device_stride, data,
                   rows->bytes);
        }
    }
    free(copy->data);
    free(copy);
}

static void wait(struct kl_core *core, kl_tag tag) {
    struct pe *pe = (struct pe *)core;
    for (struct copy **at = &pe->copies; *at; at = &(*at)->next)
        if ((*at)->tag == tag) {
            struct copy *copy = *at;
            *at = copy->next;
            finish(pe, copy);
            return;
        }
    if (tag >= pe->tags)
        complain(pe, "a wait for no copy", tag, pe->tags);
}

static void count_ahead(struct pe *pe) {
    int loading = 0;
    for (struct copy *copy = pe->copies; copy; copy = copy->next)
        loading |= copy->is_load;
    pe->ahead += (uint64_t)loading;
}

static void charge(struct kl_core *core, uint32_t unit, uint32_t dtype, uint64_t operations) {
    struct pe *pe = (struct pe *)core;
    if (unit >= KL_UNITS || dtype >= KL_DTYPES || !operations)
        complain(pe, "a charge for nothing", unit, dtype);
    else
        pe->charged[unit] += operations;
    count_ahead(pe);
}

static void charge_cycles(struct kl_core *core, uint32_t unit, uint64_t cycles) {
    struct pe *pe = (struct pe *)core;
    if (unit >= KL_UNITS || !cycles)
        complain(pe, "a charge for nothing", unit, cycles);
    pe->cycles += cycles;
    count_ahead(pe);
}

static void fail(struct kl_core *core, const char *message) {
    complain((struct pe *)core, message, 0, 0);
}

/* Runs one block of a kernel. result: SRAM that it used, operations by unit, cycles, and charges
 * that were made while a load was in flight. */
int run_core(kl_core_entry_function entry, const uint64_t *args, unsigned char *memory,
             uint64_t memory_bytes, uint64_t sram_bytes, uint32_t block, uint32_t blocks,
             uint64_t *result, char *message);
int run_core(kl_core_entry_function entry, const uint64_t *args, unsigned char *memory,
             uint64_t memory_bytes, uint64_t sram_bytes, uint32_t block, uint32_t blocks,
             uint64_t *result, char *message) {
    static const struct kl_core_functions functions = {allocate, load,          store, wait,
                                                       charge,   charge_cycles, fail};
    struct pe pe = {.core = {&functions, 0, 0, 0, 0, block, blocks, sram_bytes},
                    .memory = memory,
                    .memory_bytes = memory_bytes};
    pe.sram = aligned_alloc(64, (sram_bytes + 63) / 64 * 64);
    memset(pe.sram, POISON, sram_bytes);
    entry(&pe.core, args);
    while (pe.copies) {
        struct copy *copy = pe.copies;
        complain(&pe,
                 copy->is_load ? "a load was never waited for" : "a store was never waited for", 0,
                 0);
        pe.copies = copy->next;
        free(copy->data);
        free(copy);
    }
    free(pe.sram);
    const uint64_t found[] = {pe.used,       pe.charged[0], pe.charged[1],
                              pe.charged[2], pe.cycles,     pe.ahead};
    memcpy(result, found, sizeof found);
    memcpy(message, pe.message, MESSAGE);
    return pe.message[0] == 0;
}
