/* ps/service/run.c - see run.h. */
#include "ps/service/run.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "checkpoint/tables_file.h"
#include "net/wire/lacking.h"
#include "net/wire/tables.h"
#include "ps/store/handover.h"
#include <stdlib.h>

static enum status load_chunk(void *ctx, int chunk, float *value, float *slots, int64_t *version)
{
    const struct run_config *cfg = ctx;
    const struct net_chunk *c = &cfg->plan->chunks->chunks[chunk];
    return checkpoint_restore_read(cfg->restore, c->first, c->n_elems, value, slots, version);
}

/* Sets, for each parameter of the chunk, the number of updates in which it had no gradient. */
static enum status load_idle(const struct run_config *cfg, const struct run *r, int chunk)
{
    int n = lacking_n_params(r->chunks, chunk);
    bool has_some = false;
    int64_t version = 0;
    uint64_t *idle = calloc((size_t)n, sizeof *idle);
    if (!idle)
        return ST_NOMEM;
    buf_unref(store_read(r->store, chunk, &version));
    checkpoint_restore_idle(cfg->restore, r->chunks, chunk, version, idle);
    for (int k = 0; k < n; k++)
        has_some |= idle[k] > 0;
    enum status st = has_some ? handover_set_idle(r->store, chunk, idle, (size_t)n) : ST_OK;
    free(idle);
    return st;
}

/* Fills a bucket with the rows that the checkpoint has. */
static enum status load_bucket(const struct run_config *cfg, const struct run *r, int chunk)
{
    const struct net_table *t = tables_of(r->chunks, chunk);
    int number = chunk - t->first_chunk, table = r->chunks->chunks[chunk].table;
    size_t n_slots = optim_rows_slots(t->optimizer.kind, (size_t)t->dim);
    struct checkpoint_bucket b;
    const char *why = NULL;
    /* both jobs have the same tables in the same order (job_check.h) */
    enum status st = checkpoint_restore_bucket(cfg->restore, table, number, (int)n_slots, &b);
    if (st != ST_OK)
        return st;
    const struct handover_part part = {.version = b.version,
                                       .n_value = (size_t)b.n * (size_t)t->dim,
                                       .n_slots = (size_t)b.n * n_slots,
                                       .entries = {.n = (size_t)b.n,
                                                   .keys = b.keys,
                                                   .steps = b.steps,
                                                   .values = b.values,
                                                   .slots = b.slots,
                                                   .n_pending = (size_t)b.n_pending,
                                                   .pending_keys = b.pending_keys,
                                                   .pending_steps = b.pending_steps,
                                                   .pending_counts = b.pending_counts}};
    st = handover_add(r->store, chunk, &part, &why);
    checkpoint_bucket_free(&b);
    if (st != ST_OK)
        LOG_E("generation " TERM_FMT " cannot begin: bucket %d of table '%s': %s",
              TERM_ARG(r->generation), number, t->name, why ? why : status_text(st));
    return st;
}

static enum status load(const struct run_config *cfg, const struct run *r)
{
    uint64_t *list = NULL;
    size_t n;
    enum status st = ST_OK;
    TRY(handover_load(r->store, load_chunk, (void *)cfg));
    if (!cfg->restore)
        return ST_OK; /* a server that has no chunks needs no file */
    for (int i = 0; i < r->chunks->n_chunks; i++)
        if (r->plan->shard[i] == r->self)
            TRY(i < r->chunks->n_dense ? load_idle(cfg, r, i) : load_bucket(cfg, r, i));
    TRY(checkpoint_restore_samples(cfg->restore, &list, &n));
    st = handover_set_samples(r->store, list, n);
    if (st != ST_OK)
        LOG_E("generation " TERM_FMT
              " cannot begin: this server cannot copy the checkpoint's list of %zu samples: %s",
              TERM_ARG(r->generation), n, status_text(st));
done:
    free(list);
    return st;
}

static enum status fetch_shards(const struct run_config *cfg, const struct run *r)
{
    const struct shard_fetch_request request = {.plan = r->plan,
                                                .self = r->self,
                                                .address = cfg->address,
                                                .to = r->store,
                                                .before = cfg->before ? cfg->before->store : NULL};
    return shard_fetch_run(cfg->gather, &request);
}

/* Returns the largest size of an answer for a chunk. */
static size_t answer_bytes(const struct chunks *chunks, int chunk)
{
    if (chunk < chunks->n_dense)
        return (size_t)chunks->chunks[chunk].n_elems * sizeof(float);
    const struct net_table *t = tables_of(chunks, chunk);
    return (size_t)tables_share(t, t->step_rows) * (size_t)t->dim * sizeof(float);
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
    r->began = p->step;
    r->self = net_plan_server(p, cfg->address);
    r->members = calloc((size_t)p->n_members, sizeof *r->members);
    TRY(r->members ? ST_OK : ST_NOMEM);
    for (int i = 0; i < p->n_members; i++)
        r->members[i].missing_ns = r->start_ns;
    r->heard_ns = calloc((size_t)p->n_members, sizeof *r->heard_ns);
    TRY(r->heard_ns ? ST_OK : ST_NOMEM);
    for (int i = 0; i < p->chunks->n_chunks; i++)
        r->has_chunks0 |= p->shard[i] == 0;
    for (int i = 0; i < p->chunks->n_chunks; i++)
        if (p->shard[i] == r->self)
            r->n_bytes += answer_bytes(p->chunks, i);
    struct store_config store = cfg->store;
    store.chunks = p->chunks;
    store.job = &p->job;
    store.server = p->shard;
    store.self = r->self;
    store.generation = p->generation;
    store.position = p->position;
    store.n_members = p->n_members;
    store.member = p->member;
    TRY(square_sender_create(p, r->self, &r->squares));
    store.squares = r->squares ? square_sender_put : NULL;
    store.squares_ctx = r->squares;
    TRY(store_create(&store, &r->store));
    if (p->source == PLAN_CHECKPOINT)
        TRY(load(cfg, r));
    else if (p->source == PLAN_MEMORY)
        TRY(fetch_shards(cfg, r));
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
    square_sender_destroy(r->squares);
    store_destroy(r->store);
    net_plan_free(r->plan);
    free(r->members);
    free(r->heard_ns);
    free(r);
}

uint64_t run_position(const struct run *r, int64_t step)
{
    return net_plan_position(r->plan, step);
}

struct checkpoint_progress run_progress(const struct run *r, int64_t step)
{
    return (struct checkpoint_progress){.known = 1,
                                        .position = run_position(r, step),
                                        .n_members = r->plan->n_members,
                                        .member = r->plan->member,
                                        .servers = r->plan->servers};
}
