/* ABI between an accelerator's platform and its programs.
 *
 * The platform is the hardware as the programs see it: clock, fabric, memories, MMUs, DMA engines
 * and compute units. Host, control and core programs are libraries of their own; each runs on nodes
 * of one kind and reaches the others through the platform only. No program has globals: every node
 * has its own state, and several devices can be open in one process. */
#ifndef KERNLOOM_PLATFORM_H
#define KERNLOOM_PLATFORM_H

#include <stddef.h>
#include <stdint.h>

#include "kernloom/core.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KL_PLATFORM_ABI 3u

/* Virtual addresses start here; lower ones are physical and belong to one PE. */
#define KL_VIRTUAL_BASE (1ull << 40)
/* Offset of a PE's own SRAM, where an address may name either memory. */
#define KL_SRAM_BASE (1ull << 62)

enum kl_node_kind {
    KL_NODE_HOST = 0,    /* one */
    KL_NODE_CONTROL = 1, /* the management CPU of each sip */
    KL_NODE_PE = 2,
};

/* Address of a program's instance. */
struct kl_node {
    uint16_t kind;
    uint16_t sip;
    uint16_t cube;
    uint16_t pe;
};

enum kl_core_type { KL_CORE_MATRIX = 0, KL_CORE_VECTOR = 1, KL_CORE_TYPES = 2 };

enum { KL_MAX_PES_PER_CUBE = 64 };

/* What programs need to know of configs/arch. Times are in picoseconds. */
struct kl_arch {
    uint32_t sips;
    uint32_t cubes; /* of each sip */
    uint32_t pes;   /* of each cube */
    uint8_t core_types[KL_MAX_PES_PER_CUBE];
    uint64_t hbm_bytes;  /* of each PE */
    uint64_t sram_bytes; /* of each PE */
    uint64_t page_bytes;
    uint64_t core_period_ps; /* of one cycle */
    /* Operations per cycle; 0: the core type has no such unit for that element type. */
    double rates[KL_CORE_TYPES][KL_UNITS][KL_DTYPES];
    uint64_t unit_startup_cycles[KL_UNITS];
    /* Costs of the task runtimes. */
    uint64_t submit_ps;   /* host: build and submit one task */
    uint64_t dispatch_ps; /* control -> core */
    uint64_t complete_ps; /* core -> control */
    uint64_t switch_ps;   /* core: switch to its next task */
    uint64_t register_store_ps;
    uint64_t register_load_ps;
};

/* One recorded action of a task. */
enum kl_action_kind {
    KL_ACTION_LOAD = 1,
    KL_ACTION_STORE = 2,
    KL_ACTION_WAIT = 3,
    KL_ACTION_COMPUTE = 4,
};

struct kl_action {
    uint32_t kind;
    uint32_t tag;  /* LOAD, STORE: the copy's own; WAIT: the one waited for */
    uint32_t unit; /* COMPUTE */
    uint32_t reserved;
    uint64_t cycles;  /* COMPUTE */
    uint64_t address; /* LOAD, STORE: virtual address in device memory */
    uint64_t sram;    /* LOAD, STORE: offset in the PE's SRAM */
    struct kl_rows rows;
};

/* Why a PE has nothing to do. */
enum kl_idle {
    KL_IDLE_NO_WORK = 0,
    KL_IDLE_DEPENDENCY = 1, /* all are submitted, and wait for others to end */
    KL_IDLE_SCHEDULER = 2,  /* a task is ready, and the control program has not got to it */
    KL_IDLE_QUEUE_FULL = 3, /* tasks cannot be submitted before others have ended */
    KL_IDLE_SUBMIT = 4,     /* tasks are still being submitted */
    KL_IDLES = 5,
};

/* A stretch of the critical path: what the end of a launch waited for. */
enum kl_stretch_kind {
    KL_STRETCH_SCHEDULER = 0, /* completions, dispatches, switching; `name` says which */
    KL_STRETCH_SUBMIT = 1,    /* tasks being built and submitted */
    KL_STRETCH_TASK = 2,      /* a task on a PE; `name` is its own */
};

struct kl_stretch {
    uint64_t begin_ps;
    uint64_t end_ps;
    struct kl_node pe; /* of a task */
    uint32_t kind;
    uint32_t reserved;
    const char *name;
};

/* A failed access. */
struct kl_fault {
    uint64_t address; /* the first byte that could not be accessed */
    uint64_t bytes;   /* of the row that was being accessed */
    uint32_t reason;  /* enum kl_fault_reason */
};

enum kl_fault_reason {
    KL_FAULT_NONE = 0,
    KL_FAULT_UNMAPPED = 1, /* no mapping covers the address */
    KL_FAULT_PHYSICAL = 2, /* a mapping leads outside a PE's memory */
};

/* A range of virtual addresses, and the physical memory behind it. */
struct kl_map_entry {
    uint64_t virtual_address;
    uint64_t physical_address;
    uint64_t bytes;
    uint16_t sip, cube, pe; /* the PE that owns the memory */
    uint16_t reserved;
};

/* The hardware. `self` is the first argument of every function. */
struct kl_platform {
    uint32_t abi;
    uint32_t bytes; /* of this struct */
    void *self;
    const struct kl_arch *arch;

    uint64_t (*now)(void *self);

    /* Sends a message through the fabric; the receiver's program gets it at its virtual time.
     * `bulk` bytes of data travel with it and take their time on each hop. The message is copied.
     */
    void (*send)(void *self, struct kl_node from, struct kl_node to, const void *message,
                 size_t bytes, uint64_t bulk);
    /* Calls the program's `timer` on this node after a while. */
    void (*after)(void *self, struct kl_node node, uint64_t delay_ps, uint64_t token);
    /* Goes on until a program on the host's node calls `stop`; false if nothing is left to do. */
    int (*run)(void *self);
    void (*stop)(void *self);

    /* Physical memory of a PE, without any cost; false if it is not inside that memory. */
    int (*memory_write)(void *self, struct kl_node pe, uint64_t address, const void *from,
                        uint64_t bytes);
    int (*memory_read)(void *self, struct kl_node pe, uint64_t address, void *to, uint64_t bytes);
    int (*memory_fill)(void *self, struct kl_node pe, uint64_t address, int value, uint64_t bytes);

    /* The MMU of a PE. Mapping is refused whole if an entry overlaps a mapping or another entry. */
    int (*mmu_map)(void *self, struct kl_node pe, const struct kl_map_entry *entries, size_t count);
    int (*mmu_unmap)(void *self, struct kl_node pe, uint64_t virtual_address, uint64_t bytes);

    /* Virtual memory as a PE sees it, without any cost, for recording. Safe on several threads as
     * long as nothing is mapped meanwhile. False and the fault if a byte cannot be accessed; what
     * comes before it has been copied. */
    int (*load)(void *self, struct kl_node pe, void *to, uint64_t from, const struct kl_rows *rows,
                struct kl_fault *fault);
    int (*store)(void *self, struct kl_node pe, uint64_t to, const void *from,
                 const struct kl_rows *rows, struct kl_fault *fault);

    /* Repeats recorded actions in virtual time; the core program's `replayed` is called at the end.
     * `label` names the task in the trace. The actions are copied. */
    void (*replay)(void *self, struct kl_node pe, uint64_t task, const char *label,
                   const struct kl_action *actions, size_t count);

    /* A barrier of the hardware among PEs: calls the program's `timer` on each of the `count` PEs
     * of a group at the instant when the last of them has arrived. `count` 0: the PE does not wait
     * for the others of this group any more. */
    void (*meet)(void *self, struct kl_node pe, uint64_t group, uint32_t count, uint64_t token);

    /* Why PEs of a core type that have nothing to do wait, from now on: enum kl_idle. */
    void (*waiting)(void *self, uint32_t core_type, uint32_t why);
    /* A task that is ready goes to this PE: until it begins there, it waits. */
    void (*dispatched)(void *self, struct kl_node pe);

    /* The clock of a launch starts: reports are about the time from here on. */
    void (*begin_launch)(void *self);
    /* Stretches of the critical path, one after the other in time. The names are copied. */
    void (*path)(void *self, const struct kl_stretch *stretches, size_t count);
    /* Lines `key=value` for the next report, instead of earlier ones: launches of one report are
     * equal. */
    void (*note)(void *self, const char *lines);

    /* A slice on the track of a node, for the trace. */
    void (*trace)(void *self, struct kl_node node, const char *name, uint64_t begin_ps,
                  uint64_t end_ps);
    /* An arrow in the trace between slices of two nodes: what happened before lets the other
     * begin. */
    void (*flow)(void *self, struct kl_node from, uint64_t from_ps, struct kl_node to,
                 uint64_t to_ps);
    /* A value of a node that holds from now on, for the trace. */
    void (*counter)(void *self, struct kl_node node, const char *name, uint64_t value);

    /* Runs a function for a PE, one at a time, on a thread of the device while the simulation goes
     * on; at once if the device has no threads of its own. `finish_work` returns when the PE's
     * function has ended, and at once if there is none. */
    void (*start_work)(void *self, struct kl_node pe, void (*work)(void *context), void *context);
    void (*finish_work)(void *self, struct kl_node pe);
};

/* A message as it arrives. */
struct kl_delivery {
    struct kl_node from;
    struct kl_node to;
    const void *message;
    size_t bytes;
    uint64_t bulk;
    uint32_t damaged; /* the fabric has found a wrong checksum */
};

/* A program: its library exports `const struct kl_program *kl_program(void)`. */
struct kl_program {
    uint32_t abi;
    uint32_t bytes; /* of this struct */
    const char *name;
    uint32_t node_kind; /* where it runs */
    void *(*open)(const struct kl_platform *platform, struct kl_node node, const char *settings);
    void (*receive)(void *state, const struct kl_delivery *delivery);
    void (*timer)(void *state, uint64_t token);
    void (*replayed)(void *state, uint64_t task);
    void (*close)(void *state);
};

typedef const struct kl_program *(*kl_program_function)(void);

/* A platform's library exports `const struct kl_platform_library *kl_platform(void)`. */
struct kl_platform_library {
    uint32_t abi;
    uint32_t bytes;
    const char *name;
    /* Settings are lines `key=value`: configs/arch, flattened. NULL and the problem if they make no
     * device: `key: what is wrong`, with the key that a user types. */
    struct kl_platform *(*open)(const char *settings, char *problem, size_t problem_bytes);
    /* Has a program run on all nodes of its kind; false and the problem if it cannot. */
    int (*attach)(struct kl_platform *platform, const struct kl_program *program, char *problem,
                  size_t problem_bytes);
    /* The state of the program on a node. */
    void *(*program_state)(struct kl_platform *platform, struct kl_node node);
    /* The trace as Perfetto JSON; the text lives until the next call or the platform's end. */
    const char *(*trace)(struct kl_platform *platform, size_t *bytes);
    /* Lines `key=value` about the virtual time since the last call of `begin_report`. */
    void (*begin_report)(struct kl_platform *platform);
    const char *(*report)(struct kl_platform *platform, size_t *bytes);
    void (*close)(struct kl_platform *platform);
};

typedef const struct kl_platform_library *(*kl_platform_function)(void);

/* What the host program offers to the process that loads it, beside `kl_program`: its library
 * exports `const struct kl_host_interface *kl_host(void)`. */
struct kl_host_interface {
    uint32_t abi;
    uint32_t bytes;
    /* Carries out one request of the engine (a whole message of kernloom/messages.h) and returns
     * all its responses, one after the other. `window` is the shared memory that carries bulk data.
     * The text lives until the next call. */
    const void *(*request)(void *state, const void *message, size_t bytes, unsigned char *window,
                           uint64_t window_bytes, size_t *response_bytes);
};

typedef const struct kl_host_interface *(*kl_host_function)(void);

#ifdef __cplusplus
}
#endif

#endif
