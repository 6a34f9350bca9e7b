/* ps/store/chunk_rows.c - see chunk_rows.h. */
#include "ps/store/chunk_rows.h"
#include "ps/store/chunk_state.h"
#include <stdlib.h>

void chunk_rows_config(const struct store *s, int chunk, struct bucket_config *out)
{
    const struct net_table *t = tables_of(s->cfg.chunks, chunk);
    *out = (struct bucket_config){.dim = t->dim,
                                  .optimizer = t->optimizer,
                                  .init = t->init,
                                  .init_scale = t->init_scale,
                                  .init_key = bucket_init_key(s->job.seed, t->name),
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
    size_t dim = (size_t)t->dim;
    size_t floats = dim + optim_rows_slots(t->optimizer.kind, dim);
    /* the index has a 4-byte entry for each row, and is filled to at least 3/8 */
    double index = sizeof(uint32_t) * 8.0 / 3.0;
    double row = (double)(sizeof(struct row) + floats * sizeof(float)) + index;
    return (double)tables_share(t, t->max_rows) * row;
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

bool chunk_rows_is_readable(const struct chunk_rows *r, uint64_t version)
{
    if (!r->shared)
        return false;
    pthread_mutex_lock(&r->shared->lock);
    bool is_readable = bucket_is_readable(r->shared->bucket, version);
    pthread_mutex_unlock(&r->shared->lock);
    return is_readable;
}

void chunk_rows_empty(const struct store *s, struct chunk_rows *r)
{
    shared_bucket_unref(r->shared);
    r->shared = NULL;
    merge_destroy(r->merge);
    r->merge = NULL;
    for (int m = 0; r->reads && m < s->n_members; m++) {
        free(r->reads[m].keys);
        buf_unref(r->reads[m].answer);
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
