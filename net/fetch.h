/* net/fetch.h - chunks that another server had in the generation before, with their slots: asked
 * for by the number, sent as many at a time as fit one message, the rest asked for again.
 *
 * Owns:    a client its channel; a reply references to the buffers in it.
 * Threads: one runs, any cancels. A run blocks its thread and nobody else.
 * Errors:  of a run: ST_UNAVAILABLE, ST_DEADLINE, ST_CANCELLED, ST_REFUSED (the server does not
 *          hand them on), ST_CORRUPT (a checksum), ST_PROTOCOL, ST_NOMEM, and what `take` returns;
 *          not logged, a sentence in `why`. */
#ifndef NET_FETCH_H
#define NET_FETCH_H
#include "base/buf.h"
#include "net/control.h"

enum {
    FETCH_REPLY_BYTES = 16 << 20, /* of values and slots in one message; any one chunk's fit */
    FETCH_REPLY_CHUNKS = 4096,    /* in one message */
    FETCH_MESSAGE_BYTES = FETCH_REPLY_BYTES + 64 * FETCH_REPLY_CHUNKS,
};

struct net_fetch_request {
    uint64_t generation; /* the one before */
    int64_t step;        /* the version; where chunks go each at its own pace: the newest is sent */
    int n;               /* > 0 */
    int *chunk;
};

/* One chunk as it came; 4-byte aligned, valid for the call. */
struct net_fetched {
    int chunk;
    int64_t version; /* >= 0 */
    const float *value, *slots;
    size_t n_value, n_slots; /* numbers; n_slots counts those of all slots, may be 0 */
};

/* Asks addr until it has everything: a server that is busy or away is asked again. */
struct net_fetch_client;
enum status net_fetch_create(const char *addr, struct net_fetch_client **out);
void net_fetch_destroy(struct net_fetch_client *c); /* NULL is fine */
/* take: called in the order of request->chunk; another answer than ST_OK ends the run with it. */
enum status net_fetch_run(struct net_fetch_client *c, const struct net_fetch_request *request,
                          int64_t deadline_ms,
                          enum status (*take)(void *ctx, const struct net_fetched *chunk),
                          void *ctx, char why[CONTROL_TEXT_BYTES]);
/* Ends the run under way with ST_CANCELLED; if there is none, the next. */
void net_fetch_cancel(struct net_fetch_client *c);

/* What a server's handler fills, one chunk after the other in the order asked for. */
struct net_fetch_item {
    int chunk;
    int64_t version;
    struct buf *value, *slots; /* little-endian fp32, the first so many bytes; slots: may be NULL */
    size_t value_bytes, slots_bytes;
};
struct net_fetch_reply {
    char refused[CONTROL_TEXT_BYTES]; /* not empty: they are not handed on, a sentence */
    int n, room;
    struct net_fetch_item *item;
    size_t bytes;
};
/* Takes references. ST_RANGE: it is full, the rest will be asked for again; ST_NOMEM. */
enum status net_fetch_put(struct net_fetch_reply *reply, const struct net_fetch_item *item);
void net_fetch_reply_free(struct net_fetch_reply *reply); /* zeros are fine */

#endif
