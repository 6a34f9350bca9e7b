/* ps/run.c - see run.h. */
#include "ps/run.h"
#include "base/clock.h"
#include <stdlib.h>

struct source {
    const struct ps_restore *restore;
    const struct chunks *chunks;
};

static enum status load_chunk(void *ctx, int chunk, float *value, float *slots, int64_t *version)
{
    const struct source *s = ctx;
    const struct net_chunk *c = &s->chunks->chunks[chunk];
    return ps_restore_read(s->restore, c->first, c->n_elems, value, slots, version);
}

enum status run_create(const struct run_config *cfg, struct run **out)
{
    enum status st = ST_OK;
    const struct chunks *chunks = cfg->first->chunks;
    struct run *r = calloc(1, sizeof *r);
    TRY(r ? ST_OK : ST_NOMEM);
    atomic_init(&r->refs, 1);
    r->generation = cfg->generation;
    r->job = cfg->first->job;
    r->start_ns = clock_now_ns();
    TRY(chunks_create(chunks->params, chunks->n_params, chunks->chunk_bytes, &r->chunks));
    r->members = calloc((size_t)r->job.n_workers, sizeof *r->members);
    r->server = malloc((size_t)r->chunks->n_chunks * sizeof *r->server);
    TRY(r->members && r->server ? ST_OK : ST_NOMEM);
    TRY(chunks_shard(r->chunks, cfg->n_servers, r->server));
    for (int i = 0; i < r->chunks->n_chunks; i++)
        if (r->server[i] == cfg->store.self)
            r->n_bytes += (size_t)r->chunks->chunks[i].n_elems * sizeof(float);
    struct ps_store_config store = cfg->store;
    store.chunks = r->chunks;
    store.job = &r->job;
    store.server = r->server;
    store.generation = cfg->generation;
    TRY(ps_store_create(&store, &r->store));
    struct source source = {cfg->restore, r->chunks};
    if (cfg->restore)
        TRY(ps_store_load(r->store, load_chunk, &source));
    *out = r;
    return ST_OK;
done:
    run_unref(r);
    return st;
}

struct run *run_ref(struct run *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void run_unref(struct run *r)
{
    if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
        return;
    ps_store_destroy(r->store);
    chunks_destroy(r->chunks);
    free(r->server);
    free(r->members);
    free(r);
}
