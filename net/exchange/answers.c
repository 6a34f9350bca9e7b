/* net/exchange/answers.c - processes the servers' answers to an exchange's requests. */
#include "base/log.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "net/exchange/exchange_requests.h"
#include "net/exchange/rows_impl.h"
#include "net/wire/fragments.h"
#include <stdbool.h>
#include <stdlib.h>

static const struct send_queue_item request_none = {.kind = PIECE_NONE};

/* Returns true if the piece answers the chunk's pending request. If the request is in the queue
 * again, an answer to its earlier transmission does not count. The caller holds x->lock. */
static bool is_answer(const struct exchange_chunk *c, const struct net_piece *p)
{
    if (c->queued)
        return false;
    switch (p->kind) {
    case PIECE_VERSION:
        return (c->item.kind == PIECE_PULL && p->step + 1 >= c->item.step) ||
               c->item.kind == PIECE_INIT;
    case PIECE_AVERAGE:
        return c->item.kind == PIECE_PULL_AVERAGE;
    case PIECE_APPLIED:
    case PIECE_DUPLICATE:
    case PIECE_STALE:
        return c->item.kind == PIECE_PUSH && p->step > c->item.step;
    default:
        return false;
    }
}

/* Processes an answer that ends the exchange. */
static enum status refuse_answer(struct link *l, const struct net_piece *p)
{
    switch (p->kind) {
    case PIECE_REFUSED:
        LOG_E("ps:%d (%s) refused chunk %u: %s", l->index, l->addr, p->chunk, p->why);
        return ST_REFUSED;
    case PIECE_WRONG_SHARD:
        LOG_E("ps:%d (%s) does not own chunk %u; do all programs have the same --ps_hosts?",
              l->index, l->addr, p->chunk);
        return ST_PROTOCOL;
    default:
        LOG_E("ps:%d (%s) sent a piece of kind %d, which is not an answer", l->index, l->addr,
              (int)p->kind);
        return ST_PROTOCOL;
    }
}

static bool all_fetched(const struct link *l)
{
    const struct net_exchange *x = l->x;
    for (int i = 0; i < x->n_chunks; i++)
        if (x->server[i] == l->index && x->chunks[i].version < 0)
            return false;
    return true;
}

/* Ends the chunk's request after its answer. late: the version that the answer contained, if it is
 * not in params yet; NULL: it is. */
static void complete_request(struct link *l, struct exchange_chunk *c, const struct net_piece *p,
                             float *late)
{
    struct net_exchange *x = l->x;
    struct session_event fetched = {.kind = EVENT_FETCHED_ALL};
    pthread_mutex_lock(&x->lock);
    trace_span(c->begin_ns, TRACE_EXCHANGE, "request", (int)p->chunk, p->chunk,
               (int64_t)c->item.step);
    if (p->kind != PIECE_AVERAGE) {
        c->version = (int64_t)p->step;
        exchange_request_set_late(c, late);
        x->samples = p->samples ? p->samples : x->samples;
    }
    x->waits_ns = clock_now_ns();
    bool must_report = exchange_request_set_item(l, c, &request_none);
    exchange_request_acked(l, c);
    size_t placed = p->placed ? (size_t)exchange_request_chunk(x, (int)p->chunk)->n_elems : 0;
    size_t bytes = p->payload.bytes + placed * sizeof(float);
    x->stats.received_bytes += bytes;
    if (p->shared_offset || p->placed)
        x->stats.shared_bytes += bytes;
    x->stats.applied += p->kind == PIECE_APPLIED;
    x->stats.duplicate += p->kind == PIECE_DUPLICATE;
    x->stats.stale += p->kind == PIECE_STALE;
    int first = !l->fetched && all_fetched(l);
    l->fetched |= first;
    exchange_request_wake_waiters(x, c);
    pthread_mutex_unlock(&x->lock);
    if (first)
        exchange_session_step_link(l, &fetched);
    if (must_report)
        exchange_session_report_busy(l);
}

/* Processes TAKEN: the server has received the contribution, and its answer will follow. */
static void note_taken(struct link *l, const struct net_piece *p)
{
    struct net_exchange *x = l->x;
    pthread_mutex_lock(&x->lock);
    struct exchange_chunk *c = &x->chunks[p->chunk];
    if (!c->queued && c->item.kind == PIECE_PUSH && c->item.step == p->step)
        exchange_request_acked(l, c);
    pthread_mutex_unlock(&x->lock);
}

/* Returns true if the chunk's request allows an answer in this dtype: a change, if params hold the
 * previous version, or a whole version. The caller holds x->lock. */
static bool is_wanted_dtype(const struct exchange_chunk *c, const struct net_piece *p)
{
    const struct net_exchange *x = c->x;
    enum dtype d = chunks_dtype(x->cfg.join.chunks, (int)p->chunk, x->version_dtype);
    if (c->item.kind == PIECE_PULL || c->item.kind == PIECE_PULL_AVERAGE)
        return p->dtype == c->item.dtype;
    if (dtype_block(d) == 1)
        return p->dtype == d;
    return p->dtype == DTYPE_F32 || (p->dtype == d && c->version + 1 == (int64_t)p->step);
}

/* Ends the chunk's request without an answer, because the chunk has its last version of this
 * generation. The session receives the event before the chunk is marked, because a thread that
 * waits for the chunk may start the next generation as soon as the chunk is marked. */
static void note_ended(struct link *l, const struct net_piece *p)
{
    struct net_exchange *x = l->x;
    struct session_event e = {.kind = EVENT_REBASE};
    struct exchange_chunk *c = &x->chunks[p->chunk];
    bool must_report = false;
    pthread_mutex_lock(&x->lock);
    bool is_answer = !c->queued && c->item.kind != PIECE_NONE;
    pthread_mutex_unlock(&x->lock);
    if (!is_answer)
        return;
    exchange_session_step_link(l, &e);
    pthread_mutex_lock(&x->lock);
    if (c->item.kind != PIECE_NONE) {
        trace_span(c->begin_ns, TRACE_EXCHANGE, "request", (int)p->chunk, p->chunk,
                   (int64_t)c->item.step);
        must_report = exchange_request_set_item(l, c, &request_none);
        c->ended = 1;
        exchange_request_acked(l, c);
        pthread_cond_broadcast(&x->ready);
        exchange_session_notify(x);
    }
    pthread_mutex_unlock(&x->lock);
    if (must_report)
        exchange_session_report_busy(l);
}

/* Returns true if the piece has no payload because the chunk was not exchanged in this step
 * (fragments.h), so this member already has its version. */
static bool is_kept(const struct net_exchange *x, const struct net_piece *p)
{
    return p->kind != PIECE_VERSION && p->step > 0 && p->payload.bytes == 0 &&
           p->dtype == DTYPE_F32 &&
           !fragments_turn(&x->cfg.join.job, x->fragment, (int)p->chunk, (int64_t)p->step - 1);
}

/* Returns true if the piece reports that the server has written the version to params. The caller
 * holds x->lock. */
static bool is_placed(const struct link *l, const struct net_piece *p)
{
    return p->placed && l->places && p->kind == PIECE_APPLIED && p->dtype == DTYPE_F32 &&
           p->payload.bytes == 0;
}

static bool fits_table(const struct link *l, const struct net_piece *p)
{
    const struct net_exchange *x = l->x;
    return p->chunk < (uint32_t)x->n_chunks && x->server[p->chunk] == l->index &&
           (unsigned)p->dtype < DTYPE_N_KINDS && p->step <= INT64_MAX &&
           (is_kept(x, p) || p->placed ||
            p->payload.bytes ==
                dtype_bytes(p->dtype, (size_t)exchange_request_chunk(x, (int)p->chunk)->n_elems));
}

static bool is_summed(const struct link *l, const struct net_piece *p)
{
    return !p->shared_offset && (p->crc32c != 0 || link_is_summed(l));
}

static enum status check_sum(const struct link *l, const struct net_piece *p, uint32_t crc)
{
    if (crc == p->crc32c)
        return ST_OK;
    LOG_W("ps:%d (%s): checksum of chunk %u, step %llu is wrong; requesting it again", l->index,
          l->addr, p->chunk, (unsigned long long)p->step);
    return ST_CORRUPT;
}

/* Checks the stamp after data were read from the server's memory. */
static enum status check_stamp(const struct link *l, const struct net_piece *p)
{
    if (!p->shared_offset || segment_stamp(p->payload.span->data) == p->shared_stamp)
        return ST_OK;
    LOG_W(
        "ps:%d (%s) reused the buffer of chunk %u, step %llu, before it was read; requesting it again",
        l->index, l->addr, p->chunk, (unsigned long long)p->step);
    return ST_CORRUPT;
}

/* elements that one call of decode_part decodes; a multiple of every dtype's block size */
enum { PART = 32768 };

/* Arguments for decoding a version whose bytes are contiguous. */
struct decoding {
    enum dtype dtype;
    size_t n;
    const uint8_t *src;
    float *dst;
};

static void decode_part(void *ctx, int k)
{
    const struct decoding *d = ctx;
    size_t at = (size_t)k * PART;
    dtype_decode(d->dtype, d->dst + at, d->src + dtype_bytes(d->dtype, at),
                 d->n - at < PART ? d->n - at : PART);
}

/* Decodes a version, or n numbers of rows, to `to`: params or other memory. The caller does not
 * read the chunk before the answer is complete, so a bad copy does no harm: a correct copy will
 * follow. If params hold a contribution, and the server sends its answer again, then the server has
 * counted the contribution and does not read it again. */
static enum status read_version(struct link *l, const struct net_piece *p, size_t n, float *to)
{
    enum status st = ST_OK;
    uint32_t crc = p->crc32c;
    if (p->shared_offset) {
        struct decoding d = {p->dtype, n, p->payload.span->data + p->payload.skip, to};
        thread_pool_run(l->x->cfg.threads, (int)((d.n + PART - 1) / PART), decode_part, &d);
        return check_stamp(l, p);
    }
    payload_decode(&p->payload, p->dtype, n, to, is_summed(l, p) ? &crc : NULL);
    TRY(check_sum(l, p, crc));
done:
    return st;
}

struct change {
    enum dtype dtype;
    float *value;
};

static void add_change(void *ctx, size_t first, const void *src, size_t n)
{
    const struct change *c = ctx;
    dtype_add(c->dtype, c->value + first, src, n);
}

/* Adds a change to the version in params. A bad change must not be added, so it is checked first. A
 * change in the server's memory is copied before it is checked. */
static enum status read_change(struct link *l, const struct net_piece *p)
{
    enum status st = ST_OK;
    const struct net_chunk *c = exchange_request_chunk(l->x, (int)p->chunk);
    struct change change = {p->dtype, l->x->cfg.params + c->first};
    struct net_payload payload = p->payload;
    struct net_span span;
    TRY(check_sum(l, p, is_summed(l, p) ? payload_crc32c(&payload) : p->crc32c));
    if (p->shared_offset) {
        if (!l->change)
            l->change = malloc(CHUNKS_MAX_BYTES);
        TRY(l->change ? ST_OK : ST_NOMEM);
        payload_copy(&payload, l->change);
        TRY(check_stamp(l, p));
        span = (struct net_span){l->change, payload.bytes};
        payload = (struct net_payload){&span, 0, span.n};
    }
    payload_each_run(&payload, p->dtype, (size_t)c->n_elems, dtype_block(p->dtype), add_change,
                     &change);
done:
    return st;
}

/* Reads the answer to the chunk's request, and ends the request. apart: gRPC still holds slices of
 * params, so the version is stored elsewhere until gRPC has released them. */
static enum status read_answer(struct link *l, const struct net_piece *p, bool apart)
{
    enum status st = ST_OK;
    struct exchange_chunk *c = &l->x->chunks[p->chunk];
    const struct net_chunk *at = exchange_request_chunk(l->x, (int)p->chunk);
    size_t n = (size_t)at->n_elems;
    float *late = NULL;
    if (p->kind == PIECE_AVERAGE) {
        TRY(read_version(l, p, n, l->x->averages + at->first));
    } else if (dtype_block(p->dtype) > 1) {
        TRY(read_change(l, p));
    } else {
        if (apart)
            late = malloc(n * sizeof *late);
        TRY(apart && !late ? ST_NOMEM : ST_OK);
        TRY(read_version(l, p, n, apart ? late : l->x->cfg.params + at->first));
    }
    complete_request(l, c, p, late);
    late = NULL;
done:
    free(late);
    return st;
}

static enum status ignore_late(const struct link *l, const struct net_piece *p)
{
    LOG_D("ps:%d (%s): late answer for chunk %u ignored", l->index, l->addr, p->chunk);
    return ST_OK;
}

/* Reads the answer to a bucket's request: the rows of the request's read keys. */
static enum status answer_rows(struct link *l, const struct net_piece *p)
{
    struct net_exchange *x = l->x;
    struct exchange_chunk *c = &x->chunks[p->chunk];
    struct exchange_rows *r = exchange_rows_of(x, (int)p->chunk);
    enum status st = ST_OK;
    pthread_mutex_lock(&x->lock);
    bool wanted = is_answer(c, p);
    pthread_mutex_unlock(&x->lock);
    if (!wanted)
        return ignore_late(l, p);
    TRY(exchange_rows_check(l, p));
    TRY(read_version(l, p, r->n_reads * (size_t)r->dim, r->values));
    TRY(exchange_rows_check_values(l, p));
    complete_request(l, c, p, NULL);
done:
    return st;
}

enum status exchange_request_answer(struct link *l, const struct net_piece *p)
{
    struct net_exchange *x = l->x;
    bool is_its = p->chunk < (uint32_t)x->n_chunks && x->server[p->chunk] == l->index;
    if (is_its && (p->kind == PIECE_TAKEN || p->kind == PIECE_REBASE)) {
        (p->kind == PIECE_TAKEN ? note_taken : note_ended)(l, p);
        return ST_OK;
    }
    if ((p->kind < PIECE_VERSION || p->kind > PIECE_STALE) && p->kind != PIECE_AVERAGE)
        return refuse_answer(l, p);
    if (is_its && (int)p->chunk >= x->n_dense)
        return answer_rows(l, p);
    if (!fits_table(l, p)) {
        LOG_E(
            "ps:%d (%s) sent %zu bytes for chunk %u, step %llu, which the table of chunks does not allow",
            l->index, l->addr, p->payload.bytes, p->chunk, (unsigned long long)p->step);
        return ST_PROTOCOL;
    }
    struct exchange_chunk *c = &x->chunks[p->chunk];
    pthread_mutex_lock(&x->lock);
    bool placed = is_placed(l, p), is_there = placed || is_kept(x, p);
    int follows = c->version + 1 == (int64_t)p->step;
    int wanted = is_answer(c, p) && (is_there ? follows : is_wanted_dtype(c, p));
    bool apart = c->params_held;
    pthread_mutex_unlock(&x->lock);
    if (p->placed && !placed) {
        LOG_E("ps:%d (%s) reports that it wrote chunk %u to memory that it may not write to",
              l->index, l->addr, p->chunk);
        return ST_PROTOCOL;
    }
    if (!wanted)
        return ignore_late(l, p);
    if (!is_there)
        return read_answer(l, p, apart);
    complete_request(l, c, p, NULL);
    return ST_OK;
}
