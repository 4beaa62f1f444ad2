#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache.h"
#include "sanitizer.h"

enum {
    LINE = 64,
    HUGE_PAGE = 2 << 20,
    /* Wide, so that an index error of whole rows is caught, too; costs address space only. */
    GUARD = 1 << 20,
    /* An odd number of lines: 64 consecutive large buffers start at different page offsets. */
    STAGGER = 11 * LINE,
    STAGGER_SPAN = 4096,
};

static struct buffer *buffers;
static size_t buffer_count;
static size_t buffer_capacity;
static size_t large_buffers;
static uint64_t bytes_open;
static uint64_t bytes_limit;
static unsigned char *window;
static uint64_t window_bytes;
static size_t page;

bool memory_open(int descriptor, uint64_t bytes, uint64_t limit) {
    page = (size_t)sysconf(_SC_PAGESIZE);
    bytes_limit = limit ? limit : (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
    window = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    window_bytes = bytes;
    close(descriptor);
    if (window == MAP_FAILED)
        return false;
    /* Not inherited: no process that a kernel starts can write what the engine reads. */
    madvise(window, bytes, MADV_DONTFORK);
    return true;
}

unsigned char *memory_window(uint64_t *bytes) {
    *bytes = window_bytes;
    return window;
}

static size_t round_up(size_t value, size_t to) {
    return (value + to - 1) / to * to;
}

/* Odd bytes from 0xD1 to 0xDF: rare as data, and different by position, so that no repeated value
 * matches them. */
static unsigned char canary(const unsigned char *at) {
    return (unsigned char)(0xD1u | ((uintptr_t)at * 0x9Du >> 3 & 0x0Eu));
}

NOT_SANITIZED static void write_canaries(unsigned char *from, const unsigned char *to) {
    for (; from < to; from++)
        *from = canary(from);
}

static void guard_slack(struct buffer *buffer) {
    const unsigned char *data_end = buffer->data + buffer->bytes;
    write_canaries(buffer->open, buffer->data);
    write_canaries(buffer->data + buffer->bytes, buffer->open + buffer->open_bytes);
    sanitizer_poison(buffer->region, (size_t)(buffer->data - buffer->region));
    sanitizer_poison(data_end, (size_t)(buffer->region + buffer->region_bytes - data_end));
}

/* Small buffers end at the trailing guard. Large ones start at a huge page, plus a stagger. */
static bool place(struct buffer *buffer, size_t bytes) {
    bool large = bytes >= HUGE_PAGE;
    size_t stagger = large ? large_buffers * STAGGER % STAGGER_SPAN : 0;
    buffer->bytes = bytes;
    buffer->open_bytes = round_up(bytes + stagger, page);
    buffer->region_bytes = buffer->open_bytes + 2 * (size_t)GUARD + (large ? HUGE_PAGE : 0);
    buffer->region = mmap(NULL, buffer->region_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (buffer->region == MAP_FAILED)
        return false;
    buffer->open = buffer->region + GUARD;
    if (large)
        buffer->open += -(uintptr_t)buffer->open % HUGE_PAGE;
    if (mprotect(buffer->open, buffer->open_bytes, PROT_READ | PROT_WRITE) != 0) {
        munmap(buffer->region, buffer->region_bytes);
        return false;
    }
    if (large) {
        madvise(buffer->open, buffer->open_bytes, MADV_HUGEPAGE);
        buffer->data = buffer->open + stagger;
        large_buffers++;
    } else {
        buffer->data = buffer->open + buffer->open_bytes - round_up(bytes, LINE);
    }
    return true;
}

static struct buffer *new_record(void) {
    if (buffer_count == buffer_capacity) {
        size_t capacity = buffer_capacity ? 2 * buffer_capacity : 64;
        struct buffer *larger = realloc(buffers, capacity * sizeof *larger);
        if (!larger)
            return NULL;
        buffers = larger;
        buffer_capacity = capacity;
    }
    struct buffer *buffer = &buffers[buffer_count];
    memset(buffer, 0, sizeof *buffer);
    return buffer;
}

void memory_allocate(const struct request *request, struct reply *reply) {
    struct kl_allocate message;
    if (request->body_bytes < sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "Allocate is cut short");
    memcpy(&message, request->body, sizeof message);
    if (request->body_bytes - sizeof message != message.label_bytes)
        return reply_fail(reply, KL_STATUS_INVALID, "Allocate has a label of another length");
    char label[LABEL_BYTES] = "";
    memcpy(label, request->body + sizeof message,
           message.label_bytes < LABEL_BYTES ? message.label_bytes : LABEL_BYTES - 1);
    if (message.bytes == 0)
        return reply_fail(reply, KL_STATUS_INVALID, "buffer '%s' would have no bytes", label);
    if (message.bytes > bytes_limit || bytes_open > bytes_limit - message.bytes)
        return reply_fail(reply, KL_STATUS_OUT_OF_MEMORY,
                          "no memory for buffer '%s': %llu bytes on top of %llu are more than the "
                          "limit of %llu",
                          label, (unsigned long long)message.bytes, (unsigned long long)bytes_open,
                          (unsigned long long)bytes_limit);
    struct buffer *buffer = new_record();
    if (!buffer || !place(buffer, message.bytes))
        return reply_fail(reply, KL_STATUS_OUT_OF_MEMORY,
                          "no memory for buffer '%s': the system has no %llu bytes", label,
                          (unsigned long long)message.bytes);
    memcpy(buffer->label, label, sizeof label);
    guard_slack(buffer);
    buffer_count++;
    bytes_open += message.bytes;
    reply->value = (uintptr_t)buffer->data;
}

const struct buffer *memory_owner(const void *address) {
    uintptr_t at = (uintptr_t)address;
    for (size_t i = 0; i < buffer_count; i++)
        if (at - (uintptr_t)buffers[i].region < buffers[i].region_bytes)
            return &buffers[i];
    return NULL;
}

static struct buffer *find(uint64_t address, struct reply *reply) {
    struct buffer *buffer = (struct buffer *)memory_owner((const void *)(uintptr_t)address);
    uint64_t offset = buffer ? address - (uintptr_t)buffer->data : 0;
    if (buffer && offset < buffer->bytes)
        return buffer;
    reply_fail(reply, KL_STATUS_UNKNOWN_ADDRESS, "no buffer is at address 0x%llx",
               (unsigned long long)address);
    return NULL;
}

void memory_free(const struct request *request, struct reply *reply) {
    struct kl_free message;
    if (request->body_bytes != sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "Free has the wrong size");
    memcpy(&message, request->body, sizeof message);
    struct buffer *buffer = find(message.address, reply);
    if (!buffer)
        return;
    if (message.address != (uintptr_t)buffer->data)
        return reply_fail(reply, KL_STATUS_UNKNOWN_ADDRESS,
                          "address 0x%llx is inside buffer '%s', not its start",
                          (unsigned long long)message.address, buffer->label);
    if (buffer->freed)
        return reply_fail(reply, KL_STATUS_DOUBLE_FREE, "buffer '%s' is freed already",
                          buffer->label);
    /* The addresses stay reserved, so that use after free is recognised. */
    if (mmap(buffer->region, buffer->region_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return reply_fail(reply, KL_STATUS_OUT_OF_MEMORY, "buffer '%s' cannot be unmapped",
                          buffer->label);
    sanitizer_poison(buffer->region, buffer->region_bytes);
    buffer->freed = true;
    bytes_open -= buffer->bytes;
}

unsigned char *memory_resolve(uint64_t address, uint64_t bytes, struct reply *reply) {
    struct buffer *buffer = find(address, reply);
    if (!buffer)
        return NULL;
    if (buffer->freed) {
        reply_fail(reply, KL_STATUS_USE_AFTER_FREE, "buffer '%s' is freed already", buffer->label);
        return NULL;
    }
    uint64_t offset = address - (uintptr_t)buffer->data;
    if (bytes > buffer->bytes - offset) {
        reply_fail(reply, KL_STATUS_INVALID,
                   "%llu bytes at offset %llu are more than the %zu bytes of buffer '%s'",
                   (unsigned long long)bytes, (unsigned long long)offset, buffer->bytes,
                   buffer->label);
        return NULL;
    }
    return buffer->data + offset;
}

/* Resolves both ends of a transfer; false with the reason in `reply`. */
static bool resolve_transfer(uint64_t address, uint64_t offset, uint64_t bytes,
                             unsigned char **data, unsigned char **shared, struct reply *reply) {
    if (offset > window_bytes || bytes > window_bytes - offset) {
        reply_fail(reply, KL_STATUS_INVALID, "%llu bytes at offset %llu leave the window of %llu",
                   (unsigned long long)bytes, (unsigned long long)offset,
                   (unsigned long long)window_bytes);
        return false;
    }
    *shared = window + offset;
    *data = memory_resolve(address, bytes, reply);
    return *data != NULL;
}

void memory_write(const struct request *request, struct reply *reply) {
    struct kl_memory_write message;
    unsigned char *data, *shared;
    if (request->body_bytes != sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "MemoryWrite has the wrong size");
    memcpy(&message, request->body, sizeof message);
    if (resolve_transfer(message.address, message.offset, message.bytes, &data, &shared, reply))
        memcpy(data, shared, message.bytes);
}

void memory_read(const struct request *request, struct reply *reply) {
    struct kl_memory_read message;
    unsigned char *data, *shared;
    if (request->body_bytes != sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "MemoryRead has the wrong size");
    memcpy(&message, request->body, sizeof message);
    if (resolve_transfer(message.address, message.offset, message.bytes, &data, &shared, reply))
        memcpy(shared, data, message.bytes);
}

void memory_fill(const struct request *request, struct reply *reply) {
    struct kl_memory_fill message;
    if (request->body_bytes != sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "MemoryFill has the wrong size");
    memcpy(&message, request->body, sizeof message);
    if (message.value > 0xFF)
        return reply_fail(reply, KL_STATUS_INVALID, "%u is not a byte", message.value);
    unsigned char *data = memory_resolve(message.address, message.bytes, reply);
    if (data)
        memset(data, (int)message.value, message.bytes);
}

void memory_flush(void) {
    for (size_t i = 0; i < buffer_count; i++)
        if (!buffers[i].freed)
            cache_flush(buffers[i].data, buffers[i].bytes);
}

/* Start of the changed bytes that are nearest to the data, or NULL. */
NOT_SANITIZED static const unsigned char *changed_byte(const struct buffer *buffer) {
    for (const unsigned char *at = buffer->data; at > buffer->open; at--)
        if (at[-1] != canary(at - 1)) {
            /* Back to the start of that write: y[-1] is at -4, not at its last byte. */
            for (at--; at > buffer->open && at[-1] != canary(at - 1);)
                at--;
            return at;
        }
    const unsigned char *end = buffer->open + buffer->open_bytes;
    for (const unsigned char *at = buffer->data + buffer->bytes; at < end; at++)
        if (*at != canary(at))
            return at;
    return NULL;
}

bool memory_intact(struct reply *reply) {
    bool intact = true;
    for (size_t i = 0; i < buffer_count; i++) {
        struct buffer *buffer = &buffers[i];
        const unsigned char *changed = buffer->freed ? NULL : changed_byte(buffer);
        if (!changed)
            continue;
        if (intact)
            reply_fail(reply, KL_STATUS_OUT_OF_BOUNDS,
                       "the kernel wrote outside buffer '%s' of %zu bytes, at byte offset %lld",
                       buffer->label, buffer->bytes, (long long)(changed - buffer->data));
        intact = false;
        guard_slack(buffer);
    }
    return intact;
}
