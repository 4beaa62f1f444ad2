#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gate.h"

static int channel = -1;
static struct kl_header current;
static unsigned char *message; /* the last one received, its header included */
static size_t message_capacity;

void channel_open(int descriptor) {
    channel = descriptor;
}

/* Reads fewer than `bytes` only at the end of the stream. */
static size_t receive_fully(void *to, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = gate_receive(channel, (char *)to + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

/* Both in one call, so that the reader wakes up once. */
static void send_both(const void *first, size_t first_bytes, const void *second,
                      size_t second_bytes) {
    struct iovec parts[2] = {{(void *)first, first_bytes}, {(void *)second, second_bytes}};
    while (parts[0].iov_len || parts[1].iov_len) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t sent = gate_send(channel, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return;
        for (int i = 0; i < 2; i++) {
            size_t part = (size_t)sent < parts[i].iov_len ? (size_t)sent : parts[i].iov_len;
            if (part) /* an empty part may be at no address */
                parts[i].iov_base = (char *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            sent -= (ssize_t)part;
        }
    }
}

/* A stream that has lost its framing is unreadable: report and exit. */
static void refuse_stream(enum kl_status status, const char *why) {
    struct reply reply = {.status = status, .value = KL_VERSION};
    snprintf(reply.detail, sizeof reply.detail, "%s", why);
    channel_respond(&reply);
    fprintf(stderr, "runner: %s\n", why);
    _exit(3);
}

bool channel_receive(struct request *request) {
    if (receive_fully(&current, sizeof current) != sizeof current)
        return false;
    if (current.magic != KL_MAGIC)
        refuse_stream(KL_STATUS_INVALID, "what was received is not a message");
    if (current.version != KL_VERSION)
        refuse_stream(KL_STATUS_WRONG_VERSION, "the message is of another version than the runner");
    if (current.size < sizeof current || current.size > KL_MAX_MESSAGE_BYTES)
        refuse_stream(KL_STATUS_INVALID, "the message has an impossible size");
    if (current.size > message_capacity) {
        unsigned char *larger = realloc(message, current.size);
        if (!larger)
            refuse_stream(KL_STATUS_OUT_OF_MEMORY, "no memory for the message");
        message = larger;
        message_capacity = current.size;
    }
    memcpy(message, &current, sizeof current);
    size_t bytes = current.size - sizeof current;
    unsigned char *body = message + sizeof current;
    if (receive_fully(body, bytes) != bytes)
        return false;
    *request =
        (struct request){.header = current, .whole = message, .body = body, .body_bytes = bytes};
    return true;
}

void channel_send(const void *responses, size_t bytes) {
    send_both(responses, bytes, NULL, 0);
}

void channel_respond(const struct reply *reply) {
    size_t detail_bytes = strnlen(reply->detail, sizeof reply->detail);
    size_t sample_bytes = reply->sample_count * sizeof *reply->samples;
    struct {
        struct kl_header header;
        struct kl_response response;
        char detail[DETAIL_BYTES];
    } __attribute__((packed)) answer;
    size_t opening = sizeof answer.header + sizeof answer.response + detail_bytes;
    answer.header = current;
    answer.header.magic = KL_MAGIC;
    answer.header.version = KL_VERSION;
    answer.header.kind = KL_KIND_RESPONSE;
    answer.header.addressees = 0;
    answer.header.size = (uint32_t)(opening + sample_bytes);
    answer.response = (struct kl_response){.answers = current.kind,
                                           .status = reply->status,
                                           .value = reply->value,
                                           .detail_bytes = (uint32_t)detail_bytes,
                                           .samples_count = reply->sample_count,
                                           .conditions = reply->conditions};
    memcpy(answer.detail, reply->detail, detail_bytes);
    send_both(&answer, opening, reply->samples, sample_bytes);
}

bool channel_abandoned(void) {
    struct pollfd state = {.fd = channel, .events = 0};
    return gate_poll(&state, 0) > 0 && (state.revents & (POLLHUP | POLLERR | POLLNVAL));
}

bool channel_idle(void) {
    struct pollfd state = {.fd = channel, .events = POLLIN};
    return gate_poll(&state, 0) == 0;
}

void reply_fail(struct reply *reply, enum kl_status status, const char *format, ...) {
    reply->status = status;
    reply->value = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reply->detail, sizeof reply->detail, format, arguments);
    va_end(arguments);
}
