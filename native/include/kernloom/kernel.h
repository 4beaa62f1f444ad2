/* ABI between a kernel library and the process that loads it. */
#ifndef KERNLOOM_KERNEL_H
#define KERNLOOM_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A kernel library exports one function of this type, named `kl_entry` unless Load says otherwise.
 * args[i] points at a tensor's data, or at the 8 bytes of a scalar: an int64_t, or a narrower value
 * in the low bytes. */
typedef void (*kl_entry_function)(void *const *args);

typedef void (*kl_task_function)(void *context, int64_t task);

/* Calls body(context, task) for every task in [0, tasks) on at most `threads` threads and returns
 * when all are done. The runner exports it to the kernels it loads. With one thread, or from inside
 * a task, it is a plain loop. */
__attribute__((visibility("default"))) void kl_parallel(int64_t tasks, int64_t threads,
                                                        kl_task_function body, void *context);

#ifdef __cplusplus
}
#endif

#endif
