/* ps/run.c - see run.h. */
#include "ps/run.h"
#include "base/clock.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static enum status load_chunk(void *ctx, int chunk, float *value, float *slots, int64_t *version)
{
    const struct run_config *cfg = ctx;
    const struct net_chunk *c = &cfg->plan->chunks->chunks[chunk];
    return ps_restore_read(cfg->restore, c->first, c->n_elems, value, slots, version);
}

/* A chunk that this server had before. */
static enum status take_own(const struct run_config *cfg, struct run *r, int chunk)
{
    struct ps_taken taken;
    enum status st = cfg->before ? ST_OK : ST_NOT_FOUND;
    if (st == ST_OK)
        st = ps_store_take(cfg->before->store, chunk, r->plan->step, &taken);
    if (st != ST_OK) {
        LOG_E("generation %" PRIu64 " cannot begin: chunk %d of generation %" PRIu64
              " is not here at step %" PRId64,
              r->generation, chunk, r->plan->before, r->plan->step);
        return st;
    }
    st = ps_store_give(r->store, chunk, &taken);
    ps_taken_drop(&taken);
    return st;
}

/* What the servers of the generation before hold. */
static enum status take_from_memory(const struct run_config *cfg, struct run *r)
{
    enum status st = ST_OK;
    const struct net_plan *p = r->plan;
    for (int i = 0; i < p->chunks->n_chunks && st == ST_OK; i++) {
        if (p->shard[i] != r->self)
            continue;
        if (strcmp(p->holders.addr[p->held_by[i]], cfg->address) == 0) {
            st = take_own(cfg, r, i);
            continue;
        }
        LOG_E("generation %" PRIu64 " cannot begin: chunk %d is at %s", r->generation, i,
              p->holders.addr[p->held_by[i]]);
        st = ST_UNSUPPORTED;
    }
    return st;
}

enum status run_create(const struct run_config *cfg, struct run **out)
{
    enum status st = ST_OK;
    struct run *r = calloc(1, sizeof *r);
    TRY(r ? ST_OK : ST_NOMEM);
    atomic_init(&r->refs, 1);
    TRY(net_plan_copy(cfg->plan, &r->plan));
    const struct net_plan *p = r->plan;
    r->generation = p->generation;
    r->job = p->job;
    r->chunks = p->chunks;
    r->start_ns = clock_now_ns();
    r->self = net_plan_server(p, cfg->address);
    r->members = calloc((size_t)p->n_members, sizeof *r->members);
    TRY(r->members ? ST_OK : ST_NOMEM);
    for (int i = 0; i < p->n_members; i++)
        r->members[i].missing_ns = r->start_ns;
    for (int i = 0; i < p->chunks->n_chunks; i++)
        if (p->shard[i] == r->self)
            r->n_bytes += (size_t)p->chunks->chunks[i].n_elems * sizeof(float);
    struct ps_store_config store = cfg->store;
    store.chunks = p->chunks;
    store.job = &p->job;
    store.server = p->shard;
    store.self = r->self;
    store.generation = p->generation;
    store.n_members = p->n_members;
    store.member = p->member;
    TRY(ps_store_create(&store, &r->store));
    if (p->source == PLAN_CHECKPOINT)
        TRY(ps_store_load(r->store, load_chunk, (void *)cfg));
    else if (p->source == PLAN_MEMORY)
        TRY(take_from_memory(cfg, r));
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
    net_plan_free(r->plan);
    free(r->members);
    free(r);
}

uint64_t run_position(const struct run *r, int64_t step)
{
    return net_plan_position(r->plan, step);
}

struct ps_progress run_progress(const struct run *r, int64_t step)
{
    return (struct ps_progress){.known = 1,
                                .position = run_position(r, step),
                                .n_members = r->plan->n_members,
                                .member = r->plan->member,
                                .servers = r->plan->servers};
}
