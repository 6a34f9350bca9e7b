/* net/wire/fetch.h - chunks that another server had in the generation before, with their slots:
 * asked for by the number, sent as many at a time as fit one message, the rest asked for again.
 *
 * Owns:    a reply references to the buffers in it.
 * Threads: values.
 * Errors:  ST_RANGE, ST_NOMEM. */
#ifndef NET_WIRE_FETCH_H
#define NET_WIRE_FETCH_H
#include "base/buf.h"
#include "base/status.h"
#include "net/wire/control.h"

enum {
    FETCH_REPLY_BYTES = 16 << 20, /* of values and slots in one message; any one chunk's fit; the
                                     rest, with one list of samples, has 64 bytes for each chunk */
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
    const uint64_t *samples; /* as in the proto; unchecked */
    size_t n_samples;
};

/* What a server's handler fills, one chunk after the other in the order asked for. */
struct net_fetch_item {
    int chunk;
    int64_t version;
    struct buf *value, *slots; /* little-endian fp32, the first so many bytes; slots: may be NULL */
    size_t value_bytes, slots_bytes;
    uint64_t *samples; /* a copy is taken */
    size_t n_samples;
};
struct net_fetch_reply {
    char refused[CONTROL_TEXT_BYTES]; /* not empty: they are not handed on, a sentence */
    int n, room;
    struct net_fetch_item *item;
    size_t bytes;
    size_t list_bytes; /* of the items' samples */
};
/* Takes references and copies. ST_RANGE: it is full, the rest will be asked for again; ST_NOMEM. */
enum status net_fetch_put(struct net_fetch_reply *reply, const struct net_fetch_item *item);
void net_fetch_reply_free(struct net_fetch_reply *reply); /* zeros are fine */

#endif
