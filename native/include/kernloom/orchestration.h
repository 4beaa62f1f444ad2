/* API of orchestrations: code that submits the tasks of a workload to an accelerator.
 *
 * An orchestration is a library that exports `kl_orchestrate`. It runs once for each launch, to its
 * end, before or while the tasks execute, and never sees the data of a tensor: what depends on data
 * is a task or a predicate. The same library runs under every task runtime.
 *
 * After a failure every function still returns something usable, so that an orchestration needs no
 * checks; the launch ends with the first failure. An orchestration that submits more tasks than a
 * launch may have is left by an exception, so that it ends. */
#ifndef KERNLOOM_ORCHESTRATION_H
#define KERNLOOM_ORCHESTRATION_H

#include <stdint.h>

#include "kernloom/core.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KL_MAX_DIMENSIONS = 4, KL_MAX_TASK_ARGUMENTS = 32, KL_MAX_VECTORS = 2 };

/* How a task uses a tensor argument. */
enum kl_access {
    KL_ACCESS_IN = 0,
    KL_ACCESS_OUT = 1,   /* a new tensor, which the runtime allocates; it dies with its scope */
    KL_ACCESS_WRITE = 2, /* output to an existing tensor */
    KL_ACCESS_INOUT = 3,
    KL_ACCESS_NONE = 4, /* the address only: nothing is derived from it */
    KL_ACCESSES = 5,
};

/* A tensor of an orchestration: one of the launch, numbered from 0, or an output of a task. */
typedef uint32_t kl_tensor;
/* A submitted task; 0 is none. */
typedef uint32_t kl_task;
/* A recorded graph of tasks. */
typedef uint32_t kl_graph;

#define KL_NO_KERNEL 0xffffffffu /* a dummy: ordering without work */

/* Dimensions of a box that has more of them than its tensor. */
#define KL_WRONG_BOX 0xffffffffu

/* Part of a tensor: base, offset, shape and strides, all in elements. */
struct kl_region {
    kl_tensor tensor;
    uint32_t dtype;
    uint32_t dimensions; /* 0: one element; KL_WRONG_BOX: refused as one */
    uint32_t reserved;
    uint64_t offset;
    uint64_t shape[KL_MAX_DIMENSIONS];
    uint64_t strides[KL_MAX_DIMENSIONS];
};

enum kl_argument_type {
    KL_ARGUMENT_TENSOR = 0,
    KL_ARGUMENT_VALUE = 1,
    KL_ARGUMENT_LAUNCH_VALUE = 2, /* the launch's value number `bits`; in a recorded graph, that of
                                     each submission of the graph */
};

/* An argument of a task's kernel, in the kernel's order. A kernel gets the address of element
 * `origin` of a tensor; that element need not be in the region. Of a new tensor (KL_ACCESS_OUT) the
 * region's shape says how large it is, and `tensor` is filled in by `submit`. */
struct kl_task_argument {
    uint32_t type;   /* enum kl_argument_type */
    uint32_t access; /* of a tensor */
    uint64_t bits;   /* of a value: its 8 bytes; of a launch value: its place */
    uint64_t origin; /* of a tensor */
    struct kl_region region;
};

enum kl_comparison {
    KL_EQUAL = 0,
    KL_NOT_EQUAL = 1,
    KL_LESS = 2,
    KL_LESS_OR_EQUAL = 3,
    KL_GREATER = 4,
    KL_GREATER_OR_EQUAL = 5,
    KL_COMPARISONS = 6,
};

/* A comparison with one element when the task is about to be dispatched. If it is false, the task
 * is not executed, and its consumers are free. The task depends on the element's producer. */
struct kl_predicate {
    kl_tensor tensor;
    uint32_t dtype;
    uint64_t element;
    uint32_t comparison;
    uint32_t reserved;
    union {
        int64_t integer; /* for integer element types */
        double real;
    } value;
};

struct kl_submission {
    const char *name;       /* in traces and messages; NULL: the kernel's */
    uint32_t kernel;        /* place in the launch's list, or KL_NO_KERNEL */
    uint32_t vector_kernel; /* of a mixed task */
    uint32_t vectors;       /* 1 or 2: a mixed task, which takes a matrix PE and so many vector PEs
                               of one cube; the vector kernel gets the same arguments. The kernel
                               on vector PE number `lane` (from 0) of block b of n sees itself as
                               block b * vectors + lane of n * vectors */
    uint32_t blocks;        /* SPMD: executed so many times; 0 means 1 */
    uint32_t block;         /* not SPMD (`blocks` 0 or 1): what the kernel sees as its block, */
    uint32_t of_blocks;     /* and as their number; 0: block 0 of 1 */
    uint32_t sync_start;    /* all blocks start at the same instant */
    uint32_t arguments_count;
    struct kl_task_argument *arguments;
    const kl_task *after; /* explicit dependencies, on tasks that have been submitted: there can be
                             no cycle; 0 is none */
    uint32_t after_count;
    uint32_t reserved;
    const struct kl_predicate *predicate; /* or NULL */
};

enum kl_scope_kind {
    KL_SCOPE_DERIVED = 0,
    KL_SCOPE_MANUAL = 1, /* only explicit dependencies */
};

struct kl_orchestrator;

struct kl_orchestrator_functions {
    kl_task (*submit)(struct kl_orchestrator *self, struct kl_submission *submission);
    /* Tasks that are submitted later start after all those submitted before have ended. */
    void (*barrier)(struct kl_orchestrator *self);
    /* Outputs that are allocated in a scope die at its end, when no task needs them any more. */
    void (*begin_scope)(struct kl_orchestrator *self, uint32_t kind);
    void (*end_scope)(struct kl_orchestrator *self);
    /* Tasks between these are recorded and not submitted; new tensors inside are the graph's own.
     */
    kl_graph (*begin_graph)(struct kl_orchestrator *self, const char *name);
    void (*end_graph)(struct kl_orchestrator *self);
    /* Submits a recorded graph as one task: tensors[i] instead of the launch's i-th tensor and
     * values[i] instead of its i-th value (KL_ARGUMENT_LAUNCH_VALUE); NULL: as they are. */
    kl_task (*submit_graph)(struct kl_orchestrator *self, kl_graph graph, const kl_tensor *tensors,
                            const uint64_t *values);
    /* Place of a kernel in the launch's list. */
    uint32_t (*find_kernel)(struct kl_orchestrator *self, const char *name);
    /* Ends the launch with a message. */
    void (*fail)(struct kl_orchestrator *self, const char *message);
};

/* The launch as an orchestration sees it: tensors 0 to tensors_count - 1, and values. */
struct kl_orchestrator {
    const struct kl_orchestrator_functions *functions;
    const uint64_t *tensor_bytes;
    const uint64_t *values; /* as in kl_core_entry_function */
    uint32_t tensors_count;
    uint32_t values_count;
    uint32_t pes[2]; /* PEs of each enum kl_core_type */
    uint32_t cubes;
    uint32_t reserved;
};

/* An orchestration exports one function of this type, named `kl_orchestrate`. */
typedef void (*kl_orchestrate_function)(struct kl_orchestrator *orchestrator);

#ifdef __cplusplus
}
#endif

#endif
