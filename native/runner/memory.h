/* Buffers: anonymous memory between guard pages, with canaries between data and guards. */
#ifndef RUNNER_MEMORY_H
#define RUNNER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"

#pragma GCC visibility push(hidden)

enum { LABEL_BYTES = 64 };

struct buffer {
    unsigned char *region; /* guard, slack, data, slack, guard */
    size_t region_bytes;
    unsigned char *open; /* readable and writable part between the guards */
    size_t open_bytes;
    unsigned char *data;
    size_t bytes;
    bool freed;
    char label[LABEL_BYTES];
};

/* limit 0: limited by the machine's memory. */
bool memory_open(int window, uint64_t window_bytes, uint64_t limit);

void memory_allocate(const struct request *request, struct reply *reply);
void memory_free(const struct request *request, struct reply *reply);
void memory_write(const struct request *request, struct reply *reply);
void memory_read(const struct request *request, struct reply *reply);
void memory_fill(const struct request *request, struct reply *reply);

/* The live bytes at [address, address + bytes), or NULL and the reason in `reply`. */
unsigned char *memory_resolve(uint64_t address, uint64_t bytes, struct reply *reply);

/* The memory shared with the engine. */
unsigned char *memory_window(uint64_t *bytes);

/* Flushes every live buffer from the caches. */
void memory_flush(void);

/* False, with the first overrun buffer in `reply`, if a canary has changed. */
bool memory_intact(struct reply *reply);

/* The buffer whose region contains the address, also freed ones. Safe in a signal handler. */
const struct buffer *memory_owner(const void *address);

#pragma GCC visibility pop

#endif
