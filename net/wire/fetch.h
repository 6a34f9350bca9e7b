/* net/wire/fetch.h - moves chunks, with their slots, from the server that had them in the previous
 * generation. The new server requests the chunks by number. A reply contains as many chunks as fit;
 * the new server requests the missing chunks again. A bucket of a table may need several replies,
 * each with a part of its entries (rows, and pending keys of admission) in ascending order of keys.
 * The new server requests the next part by the last key that it has, its cursor.
 *
 * Owns:    a reply owns references to its buffers.
 * Threads: plain values without a lock.
 * Errors:  ST_RANGE, ST_NOMEM. */
#ifndef NET_WIRE_FETCH_H
#define NET_WIRE_FETCH_H
#include "base/buf.h"
#include "base/status.h"
#include "net/wire/control.h"
#include <stdbool.h>

enum {
    /* limit on the values and slots in one message; every chunk fits. The other fields, including
     * one list of samples, need 64 bytes for each chunk */
    FETCH_REPLY_BYTES = 16 << 20,
    FETCH_REPLY_CHUNKS = 4096,  /* chunks in one message */
    FETCH_IDLE_BYTES = 1 << 20, /* limit on the encoded `idle` lists of the chunks in one message */
    FETCH_MESSAGE_BYTES = FETCH_REPLY_BYTES + FETCH_IDLE_BYTES + 64 * FETCH_REPLY_CHUNKS,
};

struct net_fetch_request {
    uint64_t generation; /* the previous generation */
    int64_t step; /* requested version; in modes in which each chunk advances by itself, the newest
                     is sent */
    int n;        /* > 0 */
    int *chunk;
    /* cursor of the first chunk, if it is a bucket: only entries with keys above `after` are
     * sent */
    bool has_after;
    uint64_t after;
};

/* A received chunk. The data are 4-byte aligned, and valid only until the receiving function
 * returns. */
struct net_fetched {
    int chunk;
    int64_t version; /* >= 0 */
    const float *value, *slots;
    /* numbers of floats; n_slots counts the floats of all slots together, and may be 0 */
    size_t n_value, n_slots;
    const uint64_t *samples, *idle; /* lists of weir.proto, whose values are not checked */
    size_t n_samples, n_idle;
    /* A part of a bucket: rows and pending keys, each with ascending keys above the cursor of the
     * request; value and slots have the same number of floats for each row. Whether the keys belong
     * to the bucket, and whether a key is in both lists, is not checked. */
    bool is_bucket;
    bool has_more; /* entries with higher keys follow */
    size_t n_rows, n_pending;
    const uint64_t *keys, *steps;                                  /* [n_rows] */
    const uint64_t *pending_keys, *pending_steps, *pending_counts; /* [n_pending] */
};

/* One chunk of the reply. The server's handler adds the chunks in the order of the request. */
struct net_fetch_item {
    int chunk;
    int64_t version;
    struct buf *value, *slots; /* little-endian fp32; only the first value_bytes and slots_bytes are
                                  sent; slots may be NULL */
    size_t value_bytes, slots_bytes;
    uint64_t *samples; /* list, which is copied */
    size_t n_samples;
    struct buf *idle; /* numbers of type uint64_t; NULL: none */
    bool is_bucket;   /* if not, the fields below are not used */
    /* keys and last steps of the rows of a bucket, and keys, last steps and counts of its pending
     * keys; NULL: none, as value and slots of a part without rows */
    struct buf *keys, *steps, *pending;
    bool has_more; /* the bucket has higher keys: no chunk follows in this reply */
};
struct net_fetch_reply {
    char refused[CONTROL_TEXT_BYTES]; /* not empty: the server refuses, with this sentence */
    int n, room;
    struct net_fetch_item *item;
    size_t bytes;
    size_t list_bytes; /* bytes of the items' samples */
    size_t idle_bytes; /* upper bound of the encoded size of the items' `idle` */
};
/* Adds a chunk: references its buffers and copies the list. ST_RANGE: the reply is full, and the
 * receiver will request this chunk again; ST_NOMEM. */
enum status net_fetch_put(struct net_fetch_reply *reply, const struct net_fetch_item *item);
void net_fetch_reply_free(struct net_fetch_reply *reply); /* zeros are fine */

#endif
