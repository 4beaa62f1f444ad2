#include "kernels.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "thread_state.h"

static struct kernel *kernels;
static size_t kernel_count;
static char library_problem[DETAIL_BYTES];

static char *copy_text(const unsigned char *text, size_t bytes) {
    char *copy = malloc(bytes + 1);
    if (copy) {
        memcpy(copy, text, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

void kernels_add_library(const char *path) {
    if (library_problem[0] || dlopen(path, RTLD_NOW | RTLD_GLOBAL))
        return;
    snprintf(library_problem, sizeof library_problem, "the library cannot be used: %s", dlerror());
}

bool kernels_usable(struct reply *reply) {
    if (library_problem[0])
        reply_fail(reply, KL_STATUS_UNAVAILABLE, "%s", library_problem);
    return !library_problem[0];
}

static void load(const char *path, const char *entry, uint32_t arguments, struct reply *reply) {
    /* Without a slash, dlopen would search the system's folders. */
    if (!strchr(path, '/'))
        return reply_fail(reply, KL_STATUS_LOAD_FAILED, "'%s' is not a path", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    /* Code that -ffast-math links has changed the rounding of the whole process. */
    thread_state_restore();
    if (!library)
        return reply_fail(reply, KL_STATUS_LOAD_FAILED, "%s", dlerror());
    void *symbol = dlsym(library, entry);
    if (!symbol)
        return reply_fail(reply, KL_STATUS_LOAD_FAILED, "%s has no function '%s'", path, entry);
    struct kernel *larger = realloc(kernels, (kernel_count + 1) * sizeof *kernels);
    if (!larger)
        return reply_fail(reply, KL_STATUS_OUT_OF_MEMORY, "no memory for another kernel");
    kernels = larger;
    struct kernel *kernel = &kernels[kernel_count++];
    kernel->arguments = arguments;
    memcpy(&kernel->entry, &symbol, sizeof symbol);
    reply->value = kernel_count;
}

void kernels_load(const struct request *request, struct reply *reply) {
    struct kl_load message;
    if (request->body_bytes < sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "Load is cut short");
    memcpy(&message, request->body, sizeof message);
    if (request->body_bytes - sizeof message !=
        (uint64_t)message.path_bytes + message.entry_bytes + message.name_bytes)
        return reply_fail(reply, KL_STATUS_INVALID, "Load has texts of other lengths");
    const unsigned char *texts = request->body + sizeof message;
    char *path = copy_text(texts, message.path_bytes);
    char *entry = copy_text(texts + message.path_bytes, message.entry_bytes);
    if (path && entry)
        load(path, entry, message.arguments, reply);
    else
        reply_fail(reply, KL_STATUS_OUT_OF_MEMORY, "no memory for a path");
    free(path);
    free(entry);
}

bool kernels_inside(const void *start, const void *end) {
    for (size_t i = 0; i < kernel_count; i++) {
        uintptr_t entry = (uintptr_t)kernels[i].entry;
        if (entry >= (uintptr_t)start && entry < (uintptr_t)end)
            return true;
    }
    return false;
}

const struct kernel *kernels_find(uint64_t handle, struct reply *reply) {
    if (handle >= 1 && handle <= kernel_count)
        return &kernels[handle - 1];
    reply_fail(reply, KL_STATUS_UNKNOWN_KERNEL, "no kernel has handle %llu",
               (unsigned long long)handle);
    return NULL;
}
