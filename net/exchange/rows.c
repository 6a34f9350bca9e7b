/* net/exchange/rows.c - see rows.h. A request's payload is encoded once, at the call, into memory
 * of its bucket: a range of the exchange's segment if there is one, so that a server on this host
 * reads it in place. Memory for the rows of the answer is allocated at the call, too. */
#include "net/exchange/rows.h"
#include "base/log.h"
#include "kernels/vector/finite.h"
#include "net/exchange/exchange_requests.h"
#include "net/exchange/rows_impl.h"
#include "net/wire/tables.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

struct segment *exchange_rows_segment(const struct chunks *chunks, enum dtype d,
                                      char why[SEGMENT_WHY_BYTES])
{
    struct segment *s = NULL;
    size_t flat = chunks_wire_bytes(chunks, d);
    if (chunks->n_tables > 0 &&
        segment_create_sparse(tables_wire_bytes(chunks, d), &s, why) == ST_OK) {
        if (segment_reserve(s, 0, flat, why) == ST_OK)
            return s;
        segment_unref(s);
        s = NULL;
    }
    return segment_create(flat, &s, why) == ST_OK ? s : NULL;
}

enum status exchange_rows_create(struct net_exchange *x)
{
    const struct chunks *chunks = x->cfg.join.chunks;
    if (chunks->n_tables == 0)
        return ST_OK;
    /* offset of the bucket after the last one, and then of each bucket before it */
    size_t at = tables_wire_bytes(chunks, x->push_dtype);
    x->rows = calloc((size_t)(x->n_chunks - x->n_dense), sizeof *x->rows);
    if (!x->rows)
        return ST_NOMEM;
    for (int i = x->n_chunks - 1; i >= x->n_dense; i--) {
        const struct net_table *t = tables_of(chunks, i);
        struct exchange_rows *r = exchange_rows_of(x, i);
        r->dim = t->dim;
        at -= tables_range_bytes(t);
        if (!x->cfg.segment && segment_at(x->segment, at, tables_range_bytes(t)))
            r->at = at;
    }
    return ST_OK;
}

void exchange_rows_destroy(struct net_exchange *x)
{
    for (int i = x->n_dense; x->rows && i < x->n_chunks; i++) {
        free(exchange_rows_of(x, i)->own);
        free(exchange_rows_of(x, i)->values);
    }
    free(x->rows);
}

void exchange_rows_forget(struct net_exchange *x, int chunk)
{
    exchange_rows_of(x, chunk)->n_reads = 0;
}

/* Finds memory for a request of so many bytes. */
static enum status make_request(struct net_exchange *x, struct exchange_rows *r, size_t bytes)
{
    char why[SEGMENT_WHY_BYTES];
    size_t more = (bytes + PAGE - 1) / PAGE * PAGE;
    if (r->at > 0 && bytes > r->reserved &&
        segment_reserve(x->segment, r->at + r->reserved, more - r->reserved, why) == ST_OK)
        r->reserved = more;
    if (r->at > 0 && bytes <= r->reserved) {
        r->request = (uint8_t *)segment_data(x->segment) + r->at;
        return ST_OK;
    }
    if (bytes > r->own_bytes) {
        uint8_t *own = malloc(bytes);
        if (!own)
            return ST_NOMEM;
        free(r->own);
        r->own = own;
        r->own_bytes = bytes;
    }
    r->request = r->own;
    return ST_OK;
}

static enum status make_values(struct exchange_rows *r, size_t n)
{
    if (n <= r->n_values)
        return ST_OK;
    float *values = malloc(n * sizeof *values);
    if (!values)
        return ST_NOMEM;
    free(r->values);
    r->values = values;
    r->n_values = n;
    return ST_OK;
}

/* Checks that the bucket may have a request, whose payload may then be written. gRPC may still read
 * the last payload after its answer. */
static enum status check_free(struct net_exchange *x, int chunk)
{
    const struct exchange_chunk *c = &x->chunks[chunk];
    pthread_mutex_lock(&x->lock);
    enum status st = exchange_session_status(x);
    if (st == ST_OK && c->ended)
        st = ST_REBASED;
    if (st == ST_OK && (!x->server || c->item.kind != PIECE_NONE || c->refs > 0))
        st = ST_BUSY;
    pthread_mutex_unlock(&x->lock);
    return st;
}

/* Encodes the rows as the payload of a request, and starts it. */
static enum status request_rows(struct net_exchange *x, const struct net_rows *rows,
                                struct send_queue_item *item)
{
    int chunk = (int)item->chunk;
    enum status st = ST_OK;
    if (chunk < x->n_dense || chunk >= x->n_chunks)
        return ST_RANGE;
    const struct net_table *t = tables_of(x->cfg.join.chunks, chunk);
    struct exchange_rows *r = exchange_rows_of(x, chunk);
    size_t most = (size_t)tables_share(t, t->step_rows), dim = (size_t)r->dim;
    if (rows->n > most || rows->n_reads > most)
        return ST_RANGE;
    size_t keys = rows->n * sizeof *rows->keys, reads = rows->n_reads * sizeof *rows->reads;
    item->bytes = keys + reads + dtype_bytes(item->dtype, rows->n * dim);
    item->rows = (uint32_t)rows->n;
    item->reads = (uint32_t)rows->n_reads;
    TRY(check_free(x, chunk));
    TRY(make_values(r, rows->n_reads * dim));
    TRY(item->bytes > 0 ? make_request(x, r, item->bytes) : ST_OK);
    if (rows->n > 0) {
        memcpy(r->request, rows->keys, keys);
        dtype_encode(item->dtype, r->request + keys + reads, rows->gradients, rows->n * dim);
    }
    if (rows->n_reads > 0)
        memcpy(r->request + keys, rows->reads, reads);
    item->data = item->bytes > 0 ? r->request : NULL;
    r->reads = item->bytes > 0 ? (const uint64_t *)(const void *)(r->request + keys) : NULL;
    r->n_reads = rows->n_reads;
    st = exchange_request_start(x, chunk, item);
done:
    return st;
}

enum status net_exchange_push_rows(struct net_exchange *x, int chunk, int64_t step,
                                   const struct net_rows *rows, float weight)
{
    struct send_queue_item item = {.kind = PIECE_PUSH,
                                   .chunk = (uint32_t)chunk,
                                   .step = (uint64_t)step,
                                   .weight = weight,
                                   .rate = atomic_load(&x->rate),
                                   .dtype = x->push_dtype};
    struct net_rows counted = *rows;
    item.has_rate = item.rate != 1;
    if (weight == 0)
        counted.n = 0;
    return step < 0 ? ST_RANGE : request_rows(x, &counted, &item);
}

enum status net_exchange_pull_rows(struct net_exchange *x, int chunk, int64_t step,
                                   const uint64_t *reads, size_t n_reads)
{
    struct send_queue_item item = {.kind = PIECE_PULL,
                                   .chunk = (uint32_t)chunk,
                                   .step = (uint64_t)step + 1,
                                   .dtype = x->version_dtype};
    const struct net_rows rows = {.n_reads = n_reads, .reads = reads};
    return step < 0 ? ST_RANGE : request_rows(x, &rows, &item);
}

const float *net_exchange_rows(struct net_exchange *x, int chunk, const uint64_t **keys, size_t *n)
{
    *n = 0;
    *keys = NULL;
    if (chunk < x->n_dense || chunk >= x->n_chunks)
        return NULL;
    const struct exchange_rows *r = exchange_rows_of(x, chunk);
    pthread_mutex_lock(&x->lock);
    *n = x->chunks[chunk].item.kind == PIECE_NONE ? r->n_reads : 0;
    *keys = *n > 0 ? r->reads : NULL;
    pthread_mutex_unlock(&x->lock);
    return *n > 0 ? r->values : NULL;
}

enum status exchange_rows_check(const struct link *l, const struct net_piece *p)
{
    const struct net_exchange *x = l->x;
    enum dtype dtype = x->version_dtype;
    const struct net_table *t = tables_of(x->cfg.join.chunks, (int)p->chunk);
    size_t n = exchange_rows_of(x, (int)p->chunk)->n_reads;
    /* the server may not write to this program's memory */
    if (!p->placed && p->dtype == dtype && p->rows == n && p->step <= INT64_MAX &&
        p->payload.bytes == dtype_bytes(dtype, n * (size_t)t->dim))
        return ST_OK;
    LOG_E(
        "ps:%d (%s) sent %u rows in %zu bytes for table '%s', bucket %d, step %llu; this worker requested %zu rows of %d numbers in %s",
        l->index, l->addr, p->rows, p->payload.bytes, t->name, (int)p->chunk - t->first_chunk,
        (unsigned long long)p->step, n, t->dim, dtype_name(dtype));
    return ST_PROTOCOL;
}

enum status exchange_rows_check_values(const struct link *l, const struct net_piece *p)
{
    const struct net_table *t = tables_of(l->x->cfg.join.chunks, (int)p->chunk);
    const struct exchange_rows *r = exchange_rows_of(l->x, (int)p->chunk);
    size_t n = r->n_reads * (size_t)t->dim, bad = finite_first_bad(DTYPE_F32, r->values, n);
    if (bad == n)
        return ST_OK;
    LOG_E(
        "ps:%d (%s) sent a row of table '%s' that is not finite: key %llu, number %zu, bucket %d, step %llu",
        l->index, l->addr, t->name, (unsigned long long)r->reads[bad / (size_t)t->dim],
        bad % (size_t)t->dim, (int)p->chunk - t->first_chunk, (unsigned long long)p->step);
    return ST_PROTOCOL;
}
