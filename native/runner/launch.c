#define _GNU_SOURCE 1

#include "launch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "kernels.h"
#include "kernloom/marker.h"
#include "memory.h"
#include "parallel.h"
#include "process.h"
#include "vary.h"
#include "watch.h"

enum { MAX_SAMPLES = 1000000, CHANGE_NS = 2000, MORE_PAUSES = 4 };
static const uint64_t MAX_INNER = 1ull << 40;

struct call {
    kl_entry_function entry;
    void **args;
};

/* A prepared launch: every address resolved, every scalar in its own slot. */
struct program {
    struct call *calls;
    uint32_t call_count;
    void **args;
    uint64_t *scalars;
};

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void run_still(const struct program *program, uint64_t iterations) {
    const struct call *end = program->calls + program->call_count;
    for (uint64_t i = 0; i < iterations; i++)
        for (const struct call *call = program->calls; call < end; call++)
            call->entry(call->args);
}

/* Runs between two changes of the tensors; 0: they do not change. */
static uint64_t stride;

/* Not inlined, so that the count of its instructions depends on nothing else in this file. */
__attribute__((noinline)) static void run(const struct program *program, uint64_t iterations) {
    if (!stride)
        return run_still(program, iterations);
    while (iterations) {
        uint64_t runs = iterations < stride ? iterations : stride;
        vary_change();
        run_still(program, runs);
        iterations -= runs;
    }
}

/* A change for each run, but no more than one in CHANGE_NS: then its cost cannot be seen. */
static uint64_t stride_for(uint64_t inner, uint64_t min_sample_ns) {
    return min_sample_ns ? (CHANGE_NS * inner + min_sample_ns - 1) / min_sample_ns : 1;
}

/* Location of the instruction count, if there is a counter. */
static const volatile uint64_t *counter;

bool launch_counted(int descriptor) {
    void *page = mmap(NULL, sizeof *counter, PROT_READ, MAP_SHARED, descriptor, 0);
    if (page == MAP_FAILED)
        return false;
    counter = page;
    return true;
}

/* Only the kernels run between the markers. */
__attribute__((noinline)) static uint64_t run_counted(const struct program *program,
                                                      uint64_t iterations) {
    if (!counter) {
        run(program, iterations);
        return 0;
    }
    syscall(KL_MARKER_CALL, KL_MARKER_BEGIN);
    run(program, iterations);
    syscall(KL_MARKER_CALL, KL_MARKER_END);
    return *counter;
}

static uint64_t nanoseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

/* CPU time of everything but the calling thread and the runner's workers: of other threads, and of
 * child processes that have ended. */
static int64_t others_cpu(void) {
    struct rusage children = {0};
    getrusage(RUSAGE_CHILDREN, &children);
    return (int64_t)(now(CLOCK_PROCESS_CPUTIME_ID) - now(CLOCK_THREAD_CPUTIME_ID) - parallel_cpu() +
                     nanoseconds(children.ru_utime) + nanoseconds(children.ru_stime));
}

/* CPU time of the calling thread and of the workers, which work for it. */
static uint64_t own_cpu(void) {
    return now(CLOCK_THREAD_CPUTIME_ID) + parallel_cpu();
}

static struct kl_sample take_sample(const struct program *program, uint64_t inner, uint32_t clock) {
    struct rusage before = {0}, after = {0};
    uint64_t wall = 0, cpu = 0;
    int64_t others = 0;
    if (clock & KL_CLOCK_CONTEXT_SWITCHES)
        getrusage(RUSAGE_THREAD, &before);
    if (clock & KL_CLOCK_OTHERS)
        others = others_cpu();
    if (clock & KL_CLOCK_THREAD_CPU)
        cpu = own_cpu();
    if (clock & KL_CLOCK_WALL)
        wall = now(CLOCK_MONOTONIC);
    uint64_t instructions = run_counted(program, inner);
    if (clock & KL_CLOCK_WALL)
        wall = now(CLOCK_MONOTONIC) - wall;
    if (clock & KL_CLOCK_THREAD_CPU)
        cpu = own_cpu() - cpu;
    if (clock & KL_CLOCK_OTHERS) {
        int64_t end = others_cpu();
        others = end > others ? end - others : 0;
    }
    if (clock & KL_CLOCK_CONTEXT_SWITCHES)
        getrusage(RUSAGE_THREAD, &after);
    return (struct kl_sample){.wall_ns = wall,
                              .cpu_ns = cpu,
                              .involuntary = (uint32_t)(after.ru_nivcsw - before.ru_nivcsw),
                              .voluntary = (uint32_t)(after.ru_nvcsw - before.ru_nvcsw),
                              .instructions = instructions,
                              .others_ns = (uint64_t)others};
}

static void add(struct kl_sample *sum, struct kl_sample part) {
    sum->wall_ns += part.wall_ns;
    sum->cpu_ns += part.cpu_ns;
    sum->involuntary += part.involuntary;
    sum->voluntary += part.voluntary;
    sum->instructions += part.instructions;
    sum->others_ns += part.others_ns;
}

/* How a launch takes one of its samples. */
struct taking {
    const struct program *program;
    uint64_t inner;
    uint32_t clock;
    bool cold;
};

static uint64_t flush_ns;

static void take_part(struct kl_sample *sum, const struct taking *how, uint64_t runs) {
    if (!runs)
        return;
    if (how->cold) {
        uint64_t start = now(CLOCK_MONOTONIC);
        memory_flush();
        flush_ns += now(CLOCK_MONOTONIC) - start;
    }
    add(sum, take_sample(how->program, runs, how->clock));
}

/* A run that can only be proven from copies of before it, or one that looks like it. */
static void take_around(struct kl_sample *sum, const struct taking *how, bool drawn) {
    uint64_t usual = stride;
    if (drawn) {
        stride = 0;
        vary_unmix();
    }
    flush_ns += vary_copy(KL_MOMENT_BEFORE, drawn);
    take_part(sum, how, 1);
    flush_ns += vary_copy(KL_MOMENT_AFTER, drawn);
    stride = usual;
}

/* A sample with a pause after one of its runs, which is copied if `drawn`. That run follows others
 * without a pause, and a change of the tensors. */
static void take_with_pause(struct kl_sample *sum, const struct taking *how, bool drawn,
                            uint64_t usual) {
    bool around = vary_around();
    uint64_t most = around ? how->inner - 1 : how->inner;
    uint64_t runs = most ? vary_draw((most + usual - 1) / usual) * usual + 1 : 0;
    take_part(sum, how, runs);
    if (around) {
        if (runs && stride && !drawn)
            vary_keep_one();
        take_around(sum, how, drawn);
        runs++;
    } else {
        if (drawn)
            vary_keep();
        flush_ns += vary_copy(KL_MOMENT_AFTER, drawn);
    }
    take_part(sum, how, how->inner - runs);
}

/* Two kinds of samples in a random order, with and without changes between their runs: a kernel
 * that reuses results takes longer in one of them. */
static void take_varied(const struct taking *how, struct kl_sample *samples, uint32_t count,
                        uint64_t usual) {
    /* Samples with a pause like that of the drawn run, so that after a pause a kernel does not know
     * whether that run is over. */
    uint32_t pauses = count - 1 < MORE_PAUSES ? count - 1 : MORE_PAUSES;
    uint32_t proven = (uint32_t)vary_draw(count);
    uint32_t open = count < 2 ? 0 : count - (proven == count - 1 ? 1 : 2);
    uint32_t still = (open + 1) / 2;
    for (uint32_t i = 0; i < count; i++) {
        bool last = i == count - 1, changes = last || i == proven;
        if (!changes) {
            changes = vary_draw(open--) >= still;
            still -= !changes;
        }
        stride = changes ? usual : 0;
        if (last)
            vary_poison();
        uint32_t others = count - i - (i < proven ? 1 : 0);
        bool pause = i != proven && vary_draw(others) < pauses;
        pauses -= pause;
        if (pause || i == proven)
            take_with_pause(&samples[i], how, i == proven, usual);
        else
            take_part(&samples[i], how, how->inner);
        samples[i].changes = last || i == proven ? KL_CHANGES_PROOF
                             : changes           ? KL_CHANGES_ALL
                                                 : KL_CHANGES_NONE;
    }
    stride = 0;
}

/* The shortest of several runs with the same number of iterations. Interruptions and first touches
 * lengthen a run: one run is sufficient proof after an earlier launch and without an interruption;
 * otherwise it takes two. */
struct shortest {
    uint64_t ns;
    int proof;
};

enum { PROVEN = 2 };
static const struct shortest NO_RUN = {.ns = UINT64_MAX};
static bool launched_before;

/* Interruptions of all threads, since a kernel's workers may be interrupted, too. */
static long interruptions(void) {
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
}

static void look(struct shortest *shortest, const struct program *program, uint64_t iterations) {
    long before = interruptions();
    uint64_t ns = take_sample(program, iterations, KL_CLOCK_WALL).wall_ns;
    shortest->proof += launched_before && interruptions() == before ? PROVEN : 1;
    if (ns < shortest->ns)
        shortest->ns = ns;
}

/* The count for a sample slightly longer than requested. */
static uint64_t larger(uint64_t inner, uint64_t ns, uint64_t min_sample_ns) {
    /* 0 ns: the run is shorter than the clock's resolution. */
    double factor = ns ? 1.1 * (double)min_sample_ns / (double)ns : 16;
    double wanted = (double)inner * (factor < 1.2 ? 1.2 : factor);
    if (wanted >= (double)MAX_INNER)
        return MAX_INNER;
    return (uint64_t)wanted > inner ? (uint64_t)wanted : inner + 1;
}

/* The inner count, starting from the warm-up's time of single iterations. */
static uint64_t calibrate(const struct program *program, uint64_t min_sample_ns,
                          struct shortest warm) {
    struct shortest found = warm;
    uint64_t inner = 1;
    for (;;) {
        while (found.ns >= min_sample_ns && found.proof < PROVEN)
            look(&found, program, inner);
        if (found.ns >= min_sample_ns || inner >= MAX_INNER)
            return inner;
        inner = larger(inner, found.ns, min_sample_ns);
        if (stride)
            stride = stride_for(inner, min_sample_ns);
        found = NO_RUN;
    }
}

static void dispose(struct program *program) {
    free(program->calls);
    free(program->args);
    free(program->scalars);
}

/* Reads the next `count` arguments of a call; false with the reason in `reply`. */
static bool bind(struct program *program, const struct kl_launch_argument *arguments, size_t from,
                 size_t count, struct reply *reply) {
    for (size_t i = from; i < from + count; i++) {
        struct kl_launch_argument argument = arguments[i];
        if (argument.kind == KL_ARGUMENT_KIND_BUFFER) {
            program->args[i] = memory_resolve(argument.bits, 0, reply);
            if (!program->args[i])
                return false;
        } else if (argument.kind == KL_ARGUMENT_KIND_SCALAR) {
            program->scalars[i] = argument.bits;
            program->args[i] = &program->scalars[i];
        } else {
            reply_fail(reply, KL_STATUS_INVALID, "argument %zu is of unknown kind %u", i - from,
                       argument.kind);
            return false;
        }
    }
    return true;
}

static bool prepare(struct program *program, const struct kl_kernel_launch *message,
                    const unsigned char *tail, struct reply *reply) {
    const struct kl_launch_call *calls = (const void *)tail;
    const struct kl_launch_argument *arguments =
        (const void *)(tail + message->calls_count * sizeof *calls);
    /* One more than needed, since allocating an empty list may return NULL. */
    program->calls = calloc((size_t)message->calls_count + 1, sizeof *program->calls);
    program->args = calloc((size_t)message->arguments_count + 1, sizeof *program->args);
    program->scalars = calloc((size_t)message->arguments_count + 1, sizeof *program->scalars);
    program->call_count = message->calls_count;
    if (!program->calls || !program->args || !program->scalars) {
        reply_fail(reply, KL_STATUS_OUT_OF_MEMORY, "no memory for the launch");
        return false;
    }
    size_t used = 0;
    for (uint32_t i = 0; i < message->calls_count; i++) {
        struct kl_launch_call call = calls[i];
        const struct kernel *kernel = kernels_find(call.kernel, reply);
        if (!kernel)
            return false;
        if (call.arguments != kernel->arguments ||
            call.arguments > message->arguments_count - used) {
            reply_fail(reply, KL_STATUS_WRONG_ARGUMENT_COUNT,
                       "kernel %llu takes %u arguments, not %u", (unsigned long long)call.kernel,
                       kernel->arguments, call.arguments);
            return false;
        }
        program->calls[i] = (struct call){kernel->entry, program->args + used};
        if (!bind(program, arguments, used, call.arguments, reply))
            return false;
        used += call.arguments;
    }
    if (used != message->arguments_count) {
        reply_fail(reply, KL_STATUS_WRONG_ARGUMENT_COUNT, "the calls take %zu arguments, not %u",
                   used, message->arguments_count);
        return false;
    }
    return true;
}

static void measure(const struct program *program, const struct kl_kernel_launch *message,
                    struct reply *reply) {
    bool cold = message->conditions & KL_CONDITION_COLD;
    static struct kl_sample *samples;
    struct kl_sample *room = realloc(samples, (message->samples + 1) * sizeof *samples);
    if (!room)
        return reply_fail(reply, KL_STATUS_OUT_OF_MEMORY, "no memory for %u samples",
                          message->samples);
    samples = room;
    /* Touch the pages before the clock starts. */
    memset(samples, 0, (message->samples + 1) * sizeof *samples);
    /* After a crash, errno is the kernel's own. */
    errno = 0;
    /* Only the first iteration after a flush is cold. */
    uint64_t inner = cold ? 1 : message->inner;
    bool varied = vary_begin();
    stride = varied ? stride_for(inner ? inner : 1, message->min_sample_ns) : 0;
    if (inner) {
        run(program, message->warmup);
    } else {
        struct shortest warm = NO_RUN;
        for (uint32_t i = 0; i < message->warmup; i++)
            look(&warm, program, 1);
        inner = calibrate(program, message->min_sample_ns, warm);
    }
    const struct taking how = {program, inner, message->clock, cold};
    struct watched watched = {.queued_before = watch_queued()};
    flush_ns = 0;
    if (varied) {
        watched.stride = stride_for(inner, cold ? 0 : message->min_sample_ns);
        take_varied(&how, samples, message->samples, watched.stride);
    } else {
        for (uint32_t i = 0; i < message->samples; i++)
            take_part(&samples[i], &how, inner);
    }
    watched.queued_after = watch_queued();
    watched.flush_ns = flush_ns;
    launched_before = true;
    if (!memory_intact(reply))
        return;
    reply->value = inner;
    reply->samples = samples;
    reply->sample_count = message->samples;
    if (message->clock & KL_CLOCK_OTHERS)
        watch_report(reply, &watched);
    if (varied)
        vary_report(reply);
}

/* Takes samples under the requested conditions, as far as the system permits them. */
static void measure_under(const struct program *program, const struct kl_kernel_launch *message,
                          struct reply *reply) {
    bool realtime = (message->conditions & KL_CONDITION_REALTIME) && process_start_realtime();
    measure(program, message, reply);
    /* Before the answer, so that its reader does not compete with a real-time thread. */
    if (realtime)
        process_end_realtime();
    reply->conditions = (message->conditions & KL_CONDITION_COLD) |
                        (realtime ? KL_CONDITION_REALTIME : 0u) |
                        (process_randomized() ? 0u : KL_CONDITION_FIXED_ADDRESSES);
}

void launch(const struct request *request, struct reply *reply) {
    struct kl_kernel_launch message;
    if (request->body_bytes < sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "KernelLaunch is cut short");
    memcpy(&message, request->body, sizeof message);
    if (request->body_bytes - sizeof message !=
        message.calls_count * (uint64_t)sizeof(struct kl_launch_call) +
            message.arguments_count * (uint64_t)sizeof(struct kl_launch_argument))
        return reply_fail(reply, KL_STATUS_INVALID, "KernelLaunch has lists of other lengths");
    if (message.samples > MAX_SAMPLES)
        return reply_fail(reply, KL_STATUS_INVALID, "%u samples are more than %d", message.samples,
                          MAX_SAMPLES);
    if (message.orchestration)
        return reply_fail(reply, KL_STATUS_UNSUPPORTED, "this device runs no orchestrations");
    if (message.calls_count == 0)
        return reply_fail(reply, KL_STATUS_INVALID, "a launch needs at least one call");
    if ((message.conditions & KL_CONDITION_COLD) && !cache_can_flush())
        return reply_fail(reply, KL_STATUS_UNSUPPORTED, "this CPU has no way to flush its caches");
    struct program program = {0};
    if (prepare(&program, &message, request->body + sizeof message, reply))
        measure_under(&program, &message, reply);
    /* Also after a launch that was refused: the next one may have other buffers. */
    vary_end();
    dispose(&program);
}
