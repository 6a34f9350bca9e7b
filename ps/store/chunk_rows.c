/* ps/store/chunk_rows.c - see chunk_rows.h. */
#include "ps/store/chunk_rows.h"
#include "base/log.h"
#include "net/shm/segment.h"
#include "ps/store/chunk_state.h"
#include <stdlib.h>

void chunk_rows_config(const struct store *s, int chunk, struct bucket_config *out)
{
    const struct net_table *t = tables_of(s->cfg.chunks, chunk);
    *out =
        (struct bucket_config){.dim = t->dim,
                               .dtype = t->row_dtype,
                               .optimizer = t->optimizer,
                               .init = {t->init, t->init_scale, row_init_key(s->job.seed, t->name)},
                               .number = (uint32_t)(chunk - t->first_chunk),
                               .n_buckets = (uint32_t)t->n_buckets,
                               .keeps_previous = s->lockstep,
                               .max_rows = (uint64_t)tables_share(t, t->max_rows),
                               .admit_after = (uint64_t)t->admit_after,
                               .evict_after = (uint64_t)t->evict_after,
                               .when_full = t->when_full};
    out->optimizer.common.total_steps = s->job.optim.total_steps;
}

double chunk_rows_most_bytes(const struct chunks *chunks, int chunk)
{
    const struct net_table *t = tables_of(chunks, chunk);
    return bucket_most_bytes((size_t)t->dim, t->row_dtype, t->optimizer.kind,
                             tables_share(t, t->max_rows));
}

enum status chunk_rows_create(const struct store *s, struct chunk_state *c)
{
    enum status st = ST_OK;
    struct bucket_config config;
    size_t n_terms = (size_t)c->sum.n_members;
    struct chunk_rows *r = calloc(1, sizeof *r);
    TRY(r ? ST_OK : ST_NOMEM);
    c->rows = r;
    c->version = 0;
    c->sum.dtype = s->job.push_dtype;
    r->held = -1;
    chunk_rows_config(s, c->chunk, &config);
    r->table = tables_of(s->cfg.chunks, c->chunk);
    r->number = (int)config.number;
    r->weight = calloc(n_terms, sizeof *r->weight);
    r->reads = calloc((size_t)s->n_members, sizeof *r->reads);
    r->refused = calloc((size_t)s->n_members, sizeof *r->refused);
    TRY(r->weight && r->reads && r->refused ? ST_OK : ST_NOMEM);
    TRY(shared_bucket_create(&config, &r->shared));
    TRY(merge_create((int)n_terms, config.dim, &r->merge));
done:
    return st;
}

size_t chunk_rows_area_bytes(const struct chunk_state *c)
{
    const struct net_table *t = c->rows->table;
    size_t rows = (size_t)tables_share(t, t->step_rows);
    size_t bytes = dtype_bytes(c->version_dtype, rows * (size_t)t->dim);
    return SEGMENT_STAMP_BYTES + ((bytes + 63) & ~(size_t)63);
}

/* The last reference to an answer in the segment has ended. */
static void release_area(struct buf *b, void *segment)
{
    buf_free(b);
    segment_unref(segment);
}

/* Makes memory for answers in area k of the member. If memory is lacking, the bucket has no areas
 * from now on. */
static enum status make_shared(const struct store *s, struct chunk_rows *r, int member, int k,
                               size_t room, struct buf **out)
{
    char why[SEGMENT_WHY_BYTES];
    size_t at = r->area + (size_t)(member * CHUNK_ANSWERS + k) * r->area_bytes;
    size_t data = at + SEGMENT_STAMP_BYTES;
    enum status st = segment_reserve(s->segment, at, room + SEGMENT_STAMP_BYTES, why);
    if (st != ST_OK) {
        LOG_FEW("shared memory: %s; rows of table '%.60s', bucket %d are sent by TCP", why,
                r->table->name, r->number);
        r->area_bytes = 0;
        return st;
    }
    st = buf_create_shared((char *)segment_data(s->segment) + data, room, data + 1, out);
    if (st != ST_OK)
        return st;
    (*out)->recycle = release_area;
    (*out)->recycle_ctx = segment_ref(s->segment);
    return ST_OK;
}

/* Returns true if an answer of this size can be in the segment. */
static bool fits_area(const struct chunk_rows *r, int member, size_t bytes)
{
    return r->reads[member].is_local && bytes + SEGMENT_STAMP_BYTES <= r->area_bytes;
}

/* Makes memory k for answers of so many bytes: in the segment if possible. */
static enum status make_answer(const struct store *s, struct chunk_rows *r, int member, int k,
                               size_t bytes)
{
    struct chunk_answer *a = &r->reads[member].answer[k];
    size_t room = bytes + bytes / 4;
    struct buf *made = NULL;
    enum status st = ST_OK;
    if (fits_area(r, member, bytes)) {
        size_t most = r->area_bytes - SEGMENT_STAMP_BYTES;
        make_shared(s, r, member, k, room < most ? room : most, &made);
    }
    if (!made)
        st = buf_create(room, &made);
    if (st != ST_OK)
        return st;
    buf_unref(a->buf);
    *a = (struct chunk_answer){made, made->bytes};
    return ST_OK;
}

enum status chunk_rows_take_answer(const struct store *s, struct chunk_rows *r, int member,
                                   size_t bytes, struct buf **out)
{
    const struct chunk_reads *reads = &r->reads[member];
    int k = 0;
    while (k < CHUNK_ANSWERS && reads->answer[k].buf &&
           atomic_load(&reads->answer[k].buf->refs) > 1)
        k++;
    if (k == CHUNK_ANSWERS)
        return buf_create(bytes, out);
    const struct chunk_answer *a = &reads->answer[k];
    bool was_shared = a->buf && a->buf->shared;
    if (!a->buf || a->room < bytes || was_shared != fits_area(r, member, bytes)) {
        enum status st = make_answer(s, r, member, k, bytes);
        if (st != ST_OK)
            return st;
    }
    a->buf->bytes = bytes;
    if (a->buf->shared)
        segment_restamp(a->buf->data);
    *out = buf_ref(a->buf);
    return ST_OK;
}

bool chunk_rows_is_readable(const struct chunk_rows *r, uint64_t version)
{
    if (!r->shared || (int64_t)version < r->first)
        return false;
    pthread_mutex_lock(&r->shared->lock);
    bool is_readable = bucket_is_readable(r->shared->bucket, version);
    pthread_mutex_unlock(&r->shared->lock);
    return is_readable;
}

/* Ends the hold of the version that the store has handed over. */
static void release_held(struct chunk_rows *r)
{
    if (!r->shared || r->held < 0)
        return;
    pthread_mutex_lock(&r->shared->lock);
    bucket_release(r->shared->bucket, (uint64_t)r->held);
    pthread_mutex_unlock(&r->shared->lock);
    r->held = -1;
}

void chunk_rows_empty(const struct store *s, struct chunk_rows *r)
{
    release_held(r);
    shared_bucket_unref(r->shared);
    r->shared = NULL;
    merge_destroy(r->merge);
    r->merge = NULL;
    for (int m = 0; r->reads && m < s->n_members; m++) {
        free(r->reads[m].keys);
        for (int k = 0; k < CHUNK_ANSWERS; k++)
            buf_unref(r->reads[m].answer[k].buf);
        r->reads[m] = (struct chunk_reads){.n = 0};
    }
}

void chunk_rows_destroy(const struct store *s, struct chunk_rows *r)
{
    if (!r)
        return;
    chunk_rows_empty(s, r);
    free(r->weight);
    free(r->reads);
    free(r->refused);
    free(r);
}
