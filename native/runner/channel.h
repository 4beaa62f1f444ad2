/* The socket to the engine: one request in, one response out. */
#ifndef RUNNER_CHANNEL_H
#define RUNNER_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernloom/messages.h"

/* Hidden, so that no symbol of a kernel library binds to one of the runner's. */
#pragma GCC visibility push(hidden)

enum { DETAIL_BYTES = 1024 };

struct request {
    struct kl_header header;
    const unsigned char *whole; /* header.size bytes */
    const unsigned char *body;
    size_t body_bytes;
};

struct reply {
    uint32_t status;
    uint64_t value;
    char detail[DETAIL_BYTES];
    const struct kl_sample *samples;
    uint32_t sample_count;
    uint32_t conditions;
};

void channel_open(int descriptor);

/* Waits for the next request; false if the engine has closed its end. */
bool channel_receive(struct request *request);

/* Answers the last request. Safe in a signal handler. */
void channel_respond(const struct reply *reply);

/* Sends whole responses that another program has made. */
void channel_send(const void *responses, size_t bytes);

/* True if there is no reader for a response. */
bool channel_abandoned(void);

/* True if no request is waiting. */
bool channel_idle(void);

void reply_fail(struct reply *reply, enum kl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#pragma GCC visibility pop

#endif
