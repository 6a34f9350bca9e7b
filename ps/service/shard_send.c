/* ps/service/shard_send.c - see shard_send.h. */
#include "ps/service/shard_send.h"
#include "base/term.h"
#include "ps/store/handover.h"
#include <inttypes.h>
#include <stdio.h>

enum {
    PENDING_BYTES = 3 * sizeof(uint64_t),
    /* least room for a part of a bucket, so that a bucket does not arrive in many small parts */
    PART_LEAST_BYTES = FETCH_REPLY_BYTES / 4,
};

static enum status put_dense(const struct handover_chunk *t, int chunk,
                             struct net_fetch_reply *reply)
{
    const struct net_fetch_item item = {.chunk = chunk,
                                        .version = t->version,
                                        .value = t->value,
                                        .slots = t->slots,
                                        .idle = t->idle,
                                        .value_bytes = t->value->bytes,
                                        .slots_bytes = t->slots ? t->slots->bytes : 0,
                                        .samples = t->samples,
                                        .n_samples = t->n_samples};
    return net_fetch_put(reply, &item);
}

/* Adds the next part of a bucket. ST_RANGE: the reply is full, or the bucket has further parts. */
static enum status put_rows(const struct handover_chunk *t, int chunk, const uint64_t *after,
                            struct net_fetch_reply *reply)
{
    struct bucket_part part;
    size_t room = reply->bytes < FETCH_REPLY_BYTES ? FETCH_REPLY_BYTES - reply->bytes : 0;
    size_t unit = bucket_row_bytes(t->bucket->bucket);
    if (room < PART_LEAST_BYTES)
        return ST_RANGE;
    enum status st = bucket_copy(t->bucket, (uint64_t)t->version, after,
                                 room / (unit > PENDING_BYTES ? unit : PENDING_BYTES), &part);
    if (st != ST_OK)
        return st;
    const struct net_fetch_item item = {.chunk = chunk,
                                        .version = t->version,
                                        .is_bucket = true,
                                        .value = part.values,
                                        .slots = part.slots,
                                        .value_bytes = part.values ? part.values->bytes : 0,
                                        .slots_bytes = part.slots ? part.slots->bytes : 0,
                                        .keys = part.keys,
                                        .steps = part.steps,
                                        .pending = part.pending,
                                        .has_more = part.has_more};
    st = net_fetch_put(reply, &item);
    bool has_more = part.has_more;
    bucket_part_free(&part);
    return st == ST_OK && has_more ? ST_RANGE : st;
}

/* Adds chunk i of the request. */
static enum status put_chunk(struct store *from, const struct net_fetch_request *request, int i,
                             struct net_fetch_reply *reply)
{
    struct handover_chunk t;
    int chunk = request->chunk[i];
    enum status st = handover_take(from, chunk, request->step, &t);
    if (st != ST_OK) {
        if (st != ST_NOMEM)
            snprintf(reply->refused, sizeof reply->refused,
                     "chunk %d of generation " TERM_FMT " is not on this server at step %" PRId64,
                     chunk, TERM_ARG(request->generation), request->step);
        return st;
    }
    st = t.bucket
             ? put_rows(&t, chunk, i == 0 && request->has_after ? &request->after : NULL, reply)
             : put_dense(&t, chunk, reply);
    handover_drop(&t);
    return st;
}

void shard_send_chunks(struct store *from, const struct net_fetch_request *request,
                       struct net_fetch_reply *reply)
{
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && i < request->n; i++)
        st = put_chunk(from, request, i, reply);
    if (st == ST_NOMEM)
        snprintf(reply->refused, sizeof reply->refused, "the server is out of memory");
}
