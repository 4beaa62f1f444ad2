#include "vary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"

enum { POISON = 0xFF, MAX_PIECES = 4096, MAX_REPORTED = 64, MAX_CONTENT = 64 };

struct piece {
    unsigned char *at;
    size_t bytes;
    const unsigned char *own;
    const unsigned char *other;
    bool exchanged;
};

/* The pieces of one kind of change, in turn. */
struct kind {
    struct piece *pieces;
    size_t count;
    uint64_t changes;
};

struct copy {
    const unsigned char *from;
    unsigned char *to;
    size_t bytes;
    uint32_t moment;
};

struct span {
    unsigned char *at;
    size_t bytes;
};

static struct kind exchanged, restored, poisoned;
static struct piece *pieces;
static unsigned char *contents;
static struct copy *copies;
static size_t copy_count;
static struct span *spans;
static size_t span_count;
static uint64_t random_state;
static bool waiting;
static uint64_t copy_ns[2]; /* duration of copies, by moment; 0: not known yet */
static char drawn_mixture[MAX_REPORTED + 1];
static long drawn_restored;
static unsigned char restored_content[MAX_CONTENT];
static uint64_t offered;

static void forget(void) {
    free(pieces);
    free(contents);
    free(copies);
    free(spans);
    pieces = NULL;
    contents = NULL;
    copies = NULL;
    spans = NULL;
    exchanged = restored = poisoned = (struct kind){0};
    copy_count = span_count = 0;
    copy_ns[0] = copy_ns[1] = 0;
    drawn_mixture[0] = '\0';
    drawn_restored = -1;
    offered = 0;
    waiting = false;
}

static const unsigned char *in_window(uint64_t offset, uint64_t bytes, struct reply *reply) {
    uint64_t window_bytes;
    unsigned char *window = memory_window(&window_bytes);
    if (offset <= window_bytes && bytes <= window_bytes - offset)
        return window + offset;
    reply_fail(reply, KL_STATUS_INVALID, "%llu bytes at offset %llu leave the window of %llu",
               (unsigned long long)bytes, (unsigned long long)offset,
               (unsigned long long)window_bytes);
    return NULL;
}

static const unsigned char *kept(uint64_t offset, size_t bytes, unsigned char **room,
                                 struct reply *reply) {
    const unsigned char *from = in_window(offset, bytes, reply);
    unsigned char *copy = *room;
    if (!from)
        return NULL;
    memcpy(copy, from, bytes);
    *room += bytes;
    return copy;
}

/* Sorts the pieces of one kind of change to `to`; false with the reason in `reply`. */
static bool take_pieces(struct kind *kind, uint32_t change, const struct kl_piece *given,
                        uint32_t count, struct piece *to, unsigned char **room,
                        struct reply *reply) {
    kind->pieces = to;
    for (uint32_t i = 0; i < count; i++) {
        struct kl_piece from = given[i];
        if (from.change != change)
            continue;
        struct piece *piece = &kind->pieces[kind->count++];
        *piece = (struct piece){.bytes = from.bytes};
        piece->at = memory_resolve(from.address, from.bytes, reply);
        if (!piece->at)
            return false;
        if (change != KL_CHANGE_POISON && !(piece->own = kept(from.own, from.bytes, room, reply)))
            return false;
        if (change == KL_CHANGE_EXCHANGE &&
            !(piece->other = kept(from.other, from.bytes, room, reply)))
            return false;
    }
    return true;
}

static bool take_spans(const struct kl_span *given, uint32_t count, struct reply *reply) {
    for (span_count = 0; span_count < count; span_count++) {
        struct kl_span from = given[span_count];
        unsigned char *at = memory_resolve(from.address, from.bytes, reply);
        if (!at)
            return false;
        spans[span_count] = (struct span){at, from.bytes};
    }
    return true;
}

static bool take_copies(const struct kl_snapshot *given, uint32_t count, struct reply *reply) {
    for (copy_count = 0; copy_count < count; copy_count++) {
        struct kl_snapshot from = given[copy_count];
        const unsigned char *data = memory_resolve(from.address, from.bytes, reply);
        const unsigned char *to = data ? in_window(from.offset, from.bytes, reply) : NULL;
        if (!to)
            return false;
        copies[copy_count] = (struct copy){data, (unsigned char *)to, from.bytes, from.moment};
    }
    return true;
}

static bool take(const struct kl_vary *message, const unsigned char *tail, struct reply *reply) {
    const struct kl_piece *given = (const void *)tail;
    const struct kl_span *given_spans = (const void *)(given + message->pieces_count);
    const struct kl_snapshot *given_copies = (const void *)(given_spans + message->poisoned_count);
    size_t bytes = 0;
    for (uint32_t i = 0; i < message->pieces_count; i++)
        bytes += 2 * (size_t)given[i].bytes;
    /* One more than needed, since allocating nothing may return NULL. */
    pieces = calloc(message->pieces_count + 1, sizeof *pieces);
    contents = malloc(bytes + 1);
    spans = calloc(message->poisoned_count + 1, sizeof *spans);
    copies = calloc(message->snapshots_count + 1, sizeof *copies);
    if (!pieces || !contents || !spans || !copies) {
        reply_fail(reply, KL_STATUS_OUT_OF_MEMORY, "no memory for the pieces that vary");
        return false;
    }
    random_state = message->secret;
    unsigned char *room = contents;
    uint32_t count = message->pieces_count;
    struct piece *next = pieces;
    if (!take_pieces(&exchanged, KL_CHANGE_EXCHANGE, given, count, next, &room, reply))
        return false;
    next += exchanged.count;
    if (!take_pieces(&restored, KL_CHANGE_RESTORE, given, count, next, &room, reply))
        return false;
    next += restored.count;
    return take_pieces(&poisoned, KL_CHANGE_POISON, given, count, next, &room, reply) &&
           take_spans(given_spans, message->poisoned_count, reply) &&
           take_copies(given_copies, message->snapshots_count, reply);
}

void vary(const struct request *request, struct reply *reply) {
    struct kl_vary message;
    forget();
    if (request->body_bytes < sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "Vary is cut short");
    memcpy(&message, request->body, sizeof message);
    if (request->body_bytes - sizeof message !=
        message.pieces_count * (uint64_t)sizeof(struct kl_piece) +
            message.poisoned_count * (uint64_t)sizeof(struct kl_span) +
            message.snapshots_count * (uint64_t)sizeof(struct kl_snapshot))
        return reply_fail(reply, KL_STATUS_INVALID, "Vary has lists of other lengths");
    if (message.pieces_count > MAX_PIECES)
        return reply_fail(reply, KL_STATUS_INVALID, "%u pieces are more than %d",
                          message.pieces_count, MAX_PIECES);
    waiting = take(&message, request->body + sizeof message, reply);
    if (!waiting)
        forget();
}

bool vary_begin(void) {
    return waiting;
}

/* SplitMix64. */
uint64_t vary_draw(uint64_t limit) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return limit ? z % limit : 0;
}

static void set(struct piece *piece, bool other) {
    piece->exchanged = other;
    memcpy(piece->at, other ? piece->other : piece->own, piece->bytes);
}

/* In the order of a Gray code, so that no mixture of both data sets returns for a long time. */
static void exchange_next(void) {
    if (!exchanged.count)
        return;
    uint64_t digit = (uint64_t)__builtin_ctzll(++exchanged.changes);
    struct piece *piece = &exchanged.pieces[digit < exchanged.count ? digit : exchanged.count - 1];
    set(piece, !piece->exchanged);
}

static struct piece *next_of(struct kind *kind) {
    if (kind->changes >= kind->count)
        kind->changes = 0;
    return kind->count ? &kind->pieces[kind->changes++] : NULL;
}

void vary_change(void) {
    exchange_next();
    struct piece *piece = next_of(&restored);
    if (piece)
        set(piece, false);
    piece = next_of(&poisoned);
    if (piece)
        memset(piece->at, POISON, piece->bytes);
}

void vary_unmix(void) {
    for (size_t i = 0; i < exchanged.count; i++)
        if (exchanged.pieces[i].exchanged)
            set(&exchanged.pieces[i], false);
    for (size_t i = 0; i < restored.count; i++)
        set(&restored.pieces[i], false);
    for (size_t i = 0; i < poisoned.count; i++)
        memset(poisoned.pieces[i].at, POISON, poisoned.pieces[i].bytes);
}

void vary_poison(void) {
    for (size_t i = 0; i < span_count; i++)
        memset(spans[i].at, POISON, spans[i].bytes);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t copy(enum kl_moment moment) {
    uint64_t start = now();
    for (size_t i = 0; i < copy_count; i++)
        if (copies[i].moment == moment)
            memcpy(copies[i].to, copies[i].from, copies[i].bytes);
    return now() - start;
}

bool vary_around(void) {
    for (size_t i = 0; i < copy_count; i++)
        if (copies[i].moment == KL_MOMENT_BEFORE)
            return true;
    return false;
}

uint64_t vary_copy(enum kl_moment moment, bool drawn) {
    uint64_t start = now();
    if (!copy_ns[moment]) {
        copy(moment); /* touches the pages */
        copy_ns[moment] = copy(moment) + 1;
    }
    if (drawn) {
        copy(moment);
    } else {
        uint64_t since = now();
        while (now() - since < copy_ns[moment]) {
        }
    }
    return now() - start;
}

/* A digit for each exchanged piece, in the order of the message. */
static void describe_mixture(char *text) {
    size_t count = exchanged.count < MAX_REPORTED ? exchanged.count : MAX_REPORTED;
    for (size_t i = 0; i < count; i++)
        text[i] = exchanged.pieces[i].exchanged ? '1' : '0';
    text[count] = '\0';
}

void vary_keep(void) {
    describe_mixture(drawn_mixture);
}

void vary_keep_one(void) {
    if (!restored.count || vary_draw(++offered) != 0)
        return;
    const struct piece *piece = &restored.pieces[restored.changes - 1];
    if (piece->bytes > sizeof restored_content)
        return;
    describe_mixture(drawn_mixture);
    drawn_restored = (long)restored.changes - 1;
    memcpy(restored_content, piece->at, piece->bytes);
}

void vary_report(struct reply *reply) {
    char last[MAX_REPORTED + 1];
    size_t at = strlen(reply->detail);
    describe_mixture(last);
    at += (size_t)snprintf(reply->detail + at, sizeof reply->detail - at, "drawn=%s\nlast=%s\n",
                           drawn_mixture, last);
    if (drawn_restored < 0)
        return;
    char text[2 * MAX_CONTENT + 1];
    for (size_t i = 0; i < restored.pieces[drawn_restored].bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", restored_content[i]);
    snprintf(reply->detail + at, sizeof reply->detail - at, "restored=%ld\ncontent=%s\n",
             drawn_restored, text);
}

void vary_end(void) {
    forget();
}
