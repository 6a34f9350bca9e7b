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

enum status chunk_rows_create(const struct store *s, struct chunk_state *c)
{
    enum status st = ST_OK;
    struct bucket_config config;
    size_t n_terms = (size_t)c->sum.n_members;
    struct chunk_rows *r = calloc(1, sizeof *r);
    TRY(r ? ST_OK : ST_NOMEM);
    c->rows = r;
    c->version = 0;
    chunk_rows_config(s, c->chunk, &config);
    r->table = tables_of(s->cfg.chunks, c->chunk);
    r->number = (int)config.number;
    r->weight = calloc(n_terms, sizeof *r->weight);
    r->reads = calloc((size_t)s->n_members, sizeof *r->reads);
    TRY(r->weight && r->reads ? ST_OK : ST_NOMEM);
    TRY(shared_bucket_create(&config, &r->shared));
    TRY(merge_create((int)n_terms, config.dim, &r->merge));
done:
    return st;
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
    free(r);
}
