/* net/exchange/exchange_requests.c - the pending requests of an exchange's chunks: at most one per
 * chunk, kept until it is answered, even if its stream breaks. A chunk is ready when its request is
 * answered and gRPC holds no slice of the caller's bytes. An answer that arrives late, from an
 * older stream, and contains nothing new is ignored. */
#include "net/exchange/exchange_requests.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/trace.h"
#include "net/exchange/residuals.h"
#include "net/exchange/rows_impl.h"
#include "net/wire/lacking.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Limit on the bytes that a server on this host or near it has been sent, but has not read yet. The
 * server's gRPC receives all bytes that arrive before it delivers any. Without a limit it would
 * store a whole model, which would have left the caches before the server reads it. */
enum { REQUEST_WINDOW_BYTES = 2 << 20 };

/* A connection to a proxy on this host has short round trips, even if the server behind it is far.
 * So a server counts as near only while the fastest of NEAR_ACKS acknowledgements lasted at
 * most NEAR_MS. */
enum { NEAR_MS = 5, NEAR_ACKS = 16 };

void exchange_request_wake_waiters(struct net_exchange *x, const struct exchange_chunk *c)
{
    if (c->item.kind != PIECE_NONE || c->refs > 0)
        return;
    if (c->n_waiters > 0)
        pthread_cond_broadcast(&x->ready);
    exchange_session_notify(x);
}

static float *params_of(const struct exchange_chunk *c)
{
    struct net_exchange *x = c->x;
    return x->cfg.params + exchange_request_chunk(x, (int)(c - x->chunks))->first;
}

void exchange_request_drop_late(struct exchange_chunk *c)
{
    free(c->late);
    c->late = NULL;
}

/* Copies the version that waits in c->late to params, unless gRPC still holds a slice of params.
 * The caller holds x->lock. */
static void settle_late(struct exchange_chunk *c)
{
    struct net_exchange *x = c->x;
    if (!c->late || c->params_held)
        return;
    size_t n = (size_t)exchange_request_chunk(x, (int)(c - x->chunks))->n_elems;
    memcpy(params_of(c), c->late, n * sizeof *c->late);
    exchange_request_drop_late(c);
}

void exchange_request_set_late(struct exchange_chunk *c, float *version)
{
    exchange_request_drop_late(c);
    c->late = version;
    settle_late(c);
}

static void release_chunk(void *owner)
{
    send_queue_acquire();
    struct exchange_chunk *c = owner;
    struct net_exchange *x = c->x;
    pthread_mutex_lock(&x->lock);
    x->n_refs--;
    if (--c->refs == 0) {
        c->params_held = false;
        settle_late(c);
    }
    exchange_request_wake_waiters(x, c);
    if (x->n_refs == 0)
        pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

/* Counts a reference to the item's bytes, because they are about to be sent. */
static void hold_bytes(struct net_exchange *x, struct send_queue_item *item)
{
    struct exchange_chunk *c = &x->chunks[item->chunk];
    x->stats.sent_bytes += item->bytes;
    item->release = NULL;
    if (item->shared_offset)
        x->stats.shared_bytes += item->bytes;
    if ((item->bytes == 0 || item->shared_offset) && !item->lacking)
        return;
    item->owner = c;
    item->release = release_chunk;
    c->refs++;
    c->params_held |= item->data == params_of(c);
    x->n_refs++;
}

static void queue_chunk(struct net_exchange *x, struct link *l, struct exchange_chunk *c)
{
    int i = (int)(c - x->chunks);
    struct request_queue *q = &l->queue;
    if (c->queued || c->item.kind == PIECE_NONE || !l->up)
        return;
    c->queued = 1;
    q->bits[i / 64] |= (uint64_t)1 << (i % 64);
    q->n++;
    q->bytes += c->item.bytes;
    if (i / 64 < q->lowest)
        q->lowest = i / 64;
}

static void unqueue_chunk(struct net_exchange *x, struct link *l, int i)
{
    struct request_queue *q = &l->queue;
    x->chunks[i].queued = 0;
    q->bits[i / 64] &= ~((uint64_t)1 << (i % 64));
    q->n--;
    q->bytes -= x->chunks[i].item.bytes;
}

/* Returns the queued chunk that is sent next, or -1. */
static int lowest_queued(struct request_queue *q)
{
    if (q->n == 0)
        return -1;
    while (!q->bits[q->lowest])
        q->lowest++;
    return q->lowest * 64 + __builtin_ctzll(q->bits[q->lowest]);
}

/* Chooses whether the item's payload is sent to this server, or read by it from shared memory. */
static void choose_way(struct link *l, struct send_queue_item *item)
{
    item->head = l->head;
    item->shared = l->arena != NULL;
    if (item->kind == PIECE_PUSH && l->lends && item->bytes > 0)
        item->shared_offset = segment_find(l->x->segment, item->data, item->bytes);
    item->placed = item->shared_offset > 0 && l->places && (int)item->chunk < l->x->n_dense;
}

static bool has_window(const struct link *l)
{
    return l->arena || l->is_near;
}

/* Returns true if the next request must wait for the server's acknowledgement. Two requests are
 * always sent, so that the server receives one while it processes the other. */
static bool is_full(const struct link *l, size_t bytes)
{
    return has_window(l) && l->in_flight > bytes && l->in_flight + bytes > REQUEST_WINDOW_BYTES;
}

/* Counts the bytes that are sent, until the server has acknowledged them. Frames of few bytes do
 * not count, since an acknowledgement (TAKEN) for each of them would cost more than the frame.
 * Initial values do not count either: a region's server answers them only when it has received all
 * of them. Nor do the keys of a pull, which the server may answer only after contributions that
 * wait behind it. */
static void count_in_flight(struct link *l, struct send_queue_batch *batch)
{
    bool counts = has_window(l) && batch->bytes >= SEND_QUEUE_EAGER_BYTES;
    int64_t now_ns = counts ? clock_now_ns() : 0;
    for (int i = 0; counts && i < batch->n; i++) {
        struct send_queue_item *item = batch->items[i];
        if (item->shared_offset || item->kind == PIECE_INIT || item->kind == PIECE_PULL)
            continue;
        item->ask_taken = item->kind == PIECE_PUSH;
        l->x->chunks[item->chunk].in_flight = item->bytes;
        l->x->chunks[item->chunk].sent_ns = now_ns;
        l->in_flight += item->bytes;
    }
}

static void note_ack(struct link *l, int64_t took_ns)
{
    if (l->n_acked == 0 || took_ns < l->fastest_ns)
        l->fastest_ns = took_ns;
    if (++l->n_acked < NEAR_ACKS)
        return;
    l->is_near &= l->fastest_ns <= NEAR_MS * INT64_C(1000000);
    l->n_acked = 0;
}

static void forget_in_flight(struct link *l, struct exchange_chunk *c)
{
    l->in_flight -= c->in_flight;
    c->in_flight = 0;
}

void exchange_request_acked(struct link *l, struct exchange_chunk *c)
{
    if (c->in_flight > 0)
        note_ack(l, clock_now_ns() - c->sent_ns);
    forget_in_flight(l, c);
}

int exchange_request_next(struct link *l, struct send_queue_batch *batch,
                          struct send_queue_item *items)
{
    struct net_exchange *x = l->x;
    batch->n = 0;
    batch->bytes = 0;
    l->stalled = 0;
    for (int i; (i = lowest_queued(&l->queue)) >= 0;) {
        if (batch->n == SEND_QUEUE_FRAME_PIECES)
            break;
        l->stalled = batch->n == 0 && is_full(l, x->chunks[i].item.bytes);
        if (l->stalled)
            break;
        struct send_queue_item *copy = &items[batch->n];
        *copy = x->chunks[i].item;
        choose_way(l, copy);
        if (!send_queue_batch_add(batch, copy))
            break;
        unqueue_chunk(x, l, i);
        hold_bytes(x, copy);
    }
    count_in_flight(l, batch);
    return batch->n;
}

void exchange_request_queue_clear(struct link *l)
{
    for (int i; (i = lowest_queued(&l->queue)) >= 0;)
        unqueue_chunk(l->x, l, i);
}

void exchange_request_forget_all(struct net_exchange *x)
{
    for (int i = 0; i < x->n_links; i++) {
        struct link *l = x->links[i];
        exchange_request_queue_clear(l);
        l->in_flight = 0;
        l->n_under_way = 0;
        l->fetched = l->reported_busy = false;
    }
    for (int i = 0; i < x->n_chunks; i++) {
        x->chunks[i].item.kind = PIECE_NONE;
        exchange_request_drop_late(&x->chunks[i]);
        x->chunks[i].in_flight = 0;
        x->chunks[i].ended = 0;
        x->chunks[i].version = -1;
    }
}

bool exchange_request_set_item(struct link *l, struct exchange_chunk *c,
                               const struct send_queue_item *item)
{
    l->n_under_way += (item->kind != PIECE_NONE) - (c->item.kind != PIECE_NONE);
    c->item = *item;
    return (l->n_under_way > 0) != l->reported_busy;
}

void exchange_request_queue_all(struct link *l)
{
    struct net_exchange *x = l->x;
    for (int i = 0; i < x->n_chunks; i++)
        if (x->server[i] == l->index) {
            forget_in_flight(l, &x->chunks[i]);
            queue_chunk(x, l, &x->chunks[i]);
        }
}

/* Returns the dtype in which whole versions of the chunk are requested. */
static enum dtype whole_dtype(const struct net_exchange *x, int chunk)
{
    enum dtype d = chunks_dtype(x->cfg.join.chunks, chunk, x->version_dtype);
    return dtype_block(d) > 1 ? DTYPE_F32 : d;
}

void exchange_request_first(struct link *l, bool init)
{
    struct net_exchange *x = l->x;
    for (int i = 0; i < x->n_chunks; i++) {
        struct exchange_chunk *c = &x->chunks[i];
        if (x->server[i] != l->index)
            continue;
        struct send_queue_item item = {
            .kind = PIECE_PULL, .chunk = (uint32_t)i, .dtype = whole_dtype(x, i)};
        if (i >= x->n_dense) {
            exchange_rows_forget(x, i); /* a bucket's first version is empty */
        } else if (init) { /* full precision, because the servers start with this value */
            const struct net_chunk *at = exchange_request_chunk(x, i);
            item.kind = PIECE_INIT;
            item.dtype = DTYPE_F32;
            item.data = x->cfg.params + at->first;
            item.bytes = (size_t)at->n_elems * sizeof(float);
        }
        pthread_mutex_lock(&x->lock);
        c->begin_ns = trace_begin();
        /* link_open reports the new requests to the session */
        exchange_request_set_item(l, c, &item);
        pthread_mutex_unlock(&x->lock);
    }
}

enum status exchange_request_start(struct net_exchange *x, int chunk,
                                   const struct send_queue_item *item)
{
    if (chunk < 0 || chunk >= x->n_chunks || item->step > INT64_MAX)
        return ST_RANGE;
    struct exchange_chunk *c = &x->chunks[chunk];
    struct link *l = NULL;
    bool must_report = false;
    pthread_mutex_lock(&x->lock);
    enum status st = exchange_session_status(x);
    if (st == ST_OK && c->ended)
        st = ST_REBASED;
    if (st == ST_OK && (!x->server || c->item.kind != PIECE_NONE))
        st = ST_BUSY;
    if (st == ST_OK) {
        l = x->links[x->server[chunk]];
        struct send_queue_item own = *item;
        if (item->lacking)
            own.lacking = memcpy(x->lacking + lacking_at(x->cfg.join.chunks, chunk), item->lacking,
                                 item->lacking_bytes);
        c->begin_ns = trace_begin();
        must_report = exchange_request_set_item(l, c, &own);
        queue_chunk(x, l, c);
    }
    pthread_mutex_unlock(&x->lock);
    if (must_report)
        exchange_session_report_busy(l);
    if (l)
        link_pump(l, 0);
    return st;
}

void net_exchange_set_rate(struct net_exchange *x, float rate)
{
    atomic_store(&x->rate, rate);
}

enum status net_exchange_push_encoded(struct net_exchange *x, int chunk, int64_t step,
                                      const void *data, float weight, const uint8_t *lacking)
{
    if (chunk < 0 || chunk >= x->n_dense)
        return ST_RANGE;
    enum dtype dtype = job_push_dtype(&x->cfg.join.job, x->cfg.join.chunks, chunk);
    struct send_queue_item item = {
        .kind = PIECE_PUSH,
        .chunk = (uint32_t)chunk,
        .step = (uint64_t)step,
        .weight = weight,
        .rate = atomic_load(&x->rate),
        .dtype = dtype,
        .data = data,
        .bytes = dtype_bytes(dtype, (size_t)exchange_request_chunk(x, chunk)->n_elems)};
    item.has_rate = item.rate != 1;
    int n_params = lacking && weight > 0 ? lacking_n_params(x->cfg.join.chunks, chunk) : 0;
    if (n_params > 0 && lacking_any(lacking, n_params)) {
        item.lacking = lacking;
        item.lacking_bytes = lacking_bytes(n_params);
    }
    if (weight == 0 || (item.lacking && lacking_all(lacking, n_params))) {
        item.data = NULL; /* the contribution adds nothing, so its data are not sent */
        item.bytes = 0;
    }
    return exchange_request_start(x, chunk, &item);
}

/* Sets the residuals of the parameters whose gradient is missing, from the n_elems floats of
 * `from`; NULL: to 0. */
static void set_residuals(const struct net_exchange *x, int chunk, const uint8_t *lacking,
                          float *residual, const float *from)
{
    const struct chunks *chunks = x->cfg.join.chunks;
    const struct net_chunk *c = exchange_request_chunk(x, chunk);
    int n = lacking_n_params(chunks, chunk);
    for (int k = 0; k < n; k++) {
        const struct net_param *p = &chunks->params[c->param + k];
        int64_t at = n > 1 ? p->first - c->first : 0, n_elems = n > 1 ? p->n_elems : c->n_elems;
        if (!lacking_has(lacking, k))
            continue;
        if (from)
            memcpy(residual + at, from + at, (size_t)n_elems * sizeof *residual);
        else
            memset(residual + at, 0, (size_t)n_elems * sizeof *residual);
    }
}

enum status net_exchange_push(struct net_exchange *x, int chunk, int64_t step, const float *data,
                              float weight)
{
    return net_exchange_push_lacking(x, chunk, step, data, weight, NULL);
}

enum status net_exchange_push_lacking(struct net_exchange *x, int chunk, int64_t step,
                                      const float *data, float weight, const uint8_t *lacking)
{
    if (chunk < 0 || chunk >= x->n_dense)
        return ST_RANGE;
    enum dtype dtype = job_push_dtype(&x->cfg.join.job, x->cfg.join.chunks, chunk);
    if (dtype == DTYPE_F32 || (weight == 0 && !x->residuals))
        return net_exchange_push_encoded(x, chunk, step, data, weight, lacking);
    bool is_empty = weight == 0 ||
                    (lacking && lacking_all(lacking, lacking_n_params(x->cfg.join.chunks, chunk)));
    pthread_mutex_lock(&x->lock);
    /* true: the chunk's staged bytes are in use */
    bool busy = x->chunks[chunk].item.kind != PIECE_NONE;
    pthread_mutex_unlock(&x->lock);
    if (busy)
        return ST_BUSY;
    const struct net_chunk *c = exchange_request_chunk(x, chunk);
    uint8_t *staged = x->staged + chunks_wire_at(x->cfg.join.chunks, x->push_dtype, chunk);
    float *residual = x->residuals ? residuals_of(x->residuals, chunk, step) : NULL;
    if (!is_empty && residual && lacking)
        set_residuals(x, chunk, lacking, residual, NULL);
    if (!is_empty && residual)
        dtype_encode_residual(dtype, staged, data, residual, (size_t)c->n_elems);
    else if (!is_empty)
        dtype_encode(dtype, staged, data, (size_t)c->n_elems);
    if (!is_empty && residual && lacking)
        set_residuals(x, chunk, lacking, residual, residuals_added(x->residuals, chunk));
    return net_exchange_push_encoded(x, chunk, step, staged, weight, lacking);
}

const float *net_exchange_unsent(const struct net_exchange *x, int chunk)
{
    return x->residuals ? residuals_last(x->residuals, chunk) : NULL;
}

void net_exchange_set_unsent(struct net_exchange *x, int chunk, int64_t version,
                             const float *unsent)
{
    residuals_set(x->residuals, chunk, version - 1, unsent);
}

void net_exchange_restore_unsent(struct net_exchange *x, int64_t step)
{
    for (int i = 0; x->residuals && i < x->n_chunks; i++)
        residuals_restore(x->residuals, i, step);
}

static enum status pull_chunk(struct net_exchange *x, int chunk, int64_t step, enum dtype dtype)
{
    struct send_queue_item item = {
        .kind = PIECE_PULL, .chunk = (uint32_t)chunk, .step = (uint64_t)step + 1, .dtype = dtype};
    return step < 0 ? ST_RANGE : exchange_request_start(x, chunk, &item);
}

enum status exchange_request_version(struct net_exchange *x, int chunk, int64_t step)
{
    return pull_chunk(x, chunk, step, whole_dtype(x, chunk));
}

enum status exchange_request_average(struct net_exchange *x, int chunk)
{
    const struct send_queue_item item = {.kind = PIECE_PULL_AVERAGE,
                                         .chunk = (uint32_t)chunk,
                                         .step = (uint64_t)net_exchange_version(x, chunk) + 1,
                                         .dtype = DTYPE_F32};
    return exchange_request_start(x, chunk, &item);
}

enum status net_exchange_pull(struct net_exchange *x, int chunk, int64_t step)
{
    return chunk >= x->n_dense ? ST_RANGE : pull_chunk(x, chunk, step, DTYPE_F32);
}
