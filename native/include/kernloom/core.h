/* API of core kernels: plain C that runs on one processing element (PE) of an accelerator.
 *
 * A core kernel reaches tensors by virtual address only. It copies tiles between device memory and
 * its SRAM, computes on SRAM, and says what that computing costs. Copies are asynchronous: the data
 * of a load may be used, and the source of a store changed, only after waiting for its tag.
 *
 * After a failure (a fault, SRAM that is exhausted) every function still returns something usable,
 * so that kernels need no checks; the task ends with the first failure. */
#ifndef KERNLOOM_CORE_H
#define KERNLOOM_CORE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kl_unit {
    KL_UNIT_MATRIX = 0,
    KL_UNIT_VECTOR = 1,
    KL_UNIT_SCALAR = 2,
    KL_UNITS = 3,
};

enum kl_dtype {
    KL_DTYPE_FLOAT32 = 0,
    KL_DTYPE_FLOAT64 = 1,
    KL_DTYPE_INT32 = 2,
    KL_DTYPE_INT64 = 3,
    KL_DTYPE_UINT8 = 4,
    KL_DTYPES = 5,
};

/* A copy in flight. */
typedef uint32_t kl_tag;

/* The rectangle that a copy moves. */
struct kl_rows {
    uint64_t rows;
    uint64_t bytes;         /* of one row */
    uint64_t device_stride; /* from row to row in device memory */
    uint64_t sram_stride;   /* from row to row in SRAM */
};

struct kl_core;

struct kl_core_functions {
    /* SRAM of this task, aligned to 64 bytes; it is freed when the task ends. */
    void *(*allocate)(struct kl_core *core, uint64_t bytes);
    kl_tag (*load)(struct kl_core *core, void *to, uint64_t from, const struct kl_rows *rows);
    kl_tag (*store)(struct kl_core *core, uint64_t to, const void *from,
                    const struct kl_rows *rows);
    void (*wait)(struct kl_core *core, kl_tag tag);
    /* Operations (additions, multiplications, ...) on one of the PE's units. */
    void (*charge)(struct kl_core *core, uint32_t unit, uint32_t dtype, uint64_t operations);
    /* The cost of a micro-kernel that states its cycles itself. */
    void (*charge_cycles)(struct kl_core *core, uint32_t unit, uint64_t cycles);
    /* Ends the task with a message. */
    void (*fail)(struct kl_core *core, const char *message);
};

/* The PE as a kernel sees it. */
struct kl_core {
    const struct kl_core_functions *functions;
    uint16_t sip, cube, pe;
    uint16_t reserved;
    uint32_t block, blocks; /* which part of a submission of several blocks this is */
    uint64_t sram_bytes;
};

/* A kernel library exports one function of this type, named `kl_core_entry`. args[i] is a tensor's
 * virtual address, or the 8 bytes of a scalar: an int64_t, or a narrower value in the low bytes. */
typedef void (*kl_core_entry_function)(struct kl_core *core, const uint64_t *args);

static inline void *kl_allocate(struct kl_core *core, uint64_t bytes) {
    return core->functions->allocate(core, bytes);
}

static inline kl_tag kl_load(struct kl_core *core, void *to, uint64_t from, uint64_t bytes) {
    const struct kl_rows rows = {1, bytes, bytes, bytes};
    return core->functions->load(core, to, from, &rows);
}

static inline kl_tag kl_load_rows(struct kl_core *core, void *to, uint64_t from,
                                  struct kl_rows rows) {
    return core->functions->load(core, to, from, &rows);
}

static inline kl_tag kl_store(struct kl_core *core, uint64_t to, const void *from, uint64_t bytes) {
    const struct kl_rows rows = {1, bytes, bytes, bytes};
    return core->functions->store(core, to, from, &rows);
}

static inline kl_tag kl_store_rows(struct kl_core *core, uint64_t to, const void *from,
                                   struct kl_rows rows) {
    return core->functions->store(core, to, from, &rows);
}

static inline void kl_wait(struct kl_core *core, kl_tag tag) {
    core->functions->wait(core, tag);
}

static inline void kl_charge(struct kl_core *core, uint32_t unit, uint32_t dtype,
                             uint64_t operations) {
    core->functions->charge(core, unit, dtype, operations);
}

static inline void kl_charge_cycles(struct kl_core *core, uint32_t unit, uint64_t cycles) {
    core->functions->charge_cycles(core, unit, cycles);
}

#ifdef __cplusplus
}
#endif

#endif
