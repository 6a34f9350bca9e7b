/* tests/sim/parent.c - see region.h: net/exchange/exchange.h for a region's threads, as the
 * worker's own side of an exchange (exchange.c) does it. A chunk's answer is written into the
 * caller's parameters as it comes, and what is pushed is read from where it lies whenever it is
 * sent. */
#include "tests/sim/oracle.h"
#include "tests/sim/region.h"
#include <string.h>

struct net_exchange {
    struct worker *w;
    struct net_exchange_config cfg;
    int node, cancelled, failed;
    struct {
        int64_t version;
        uint64_t generation, ps0;
    } held[SIM_CHUNKS]; /* what lies in params */
};

enum status __wrap_net_exchange_create(const struct net_exchange_config *cfg,
                                       struct net_exchange **out);
void __wrap_net_exchange_destroy(struct net_exchange *x);
enum status __wrap_net_exchange_start(struct net_exchange *x, struct net_start *out);
enum status __wrap_net_exchange_push(struct net_exchange *x, int chunk, int64_t step,
                                     const float *data, float weight);
void __wrap_net_exchange_take_back(struct net_exchange *x, int64_t step);
void __wrap_net_exchange_flush(struct net_exchange *x);
enum status __wrap_net_exchange_wait(struct net_exchange *x, int first, int n, int64_t step);
enum status __wrap_net_exchange_leave_failed(struct net_exchange *x, int done, const char *error,
                                             int64_t deadline_ms);
void __wrap_net_exchange_cancel(struct net_exchange *x);
void __wrap_net_exchange_stats(struct net_exchange *x, struct net_exchange_stats *out);
void *__wrap_region_end_watch(void *region);

void parent_wake(struct worker *w)
{
    if (w->x)
        fiber_wake(w->x);
}

void parent_failed(struct worker *w, const char *why)
{
    STORY("%s: the exchange fails: %s", sim.node[w->node].name, why);
    w->x->failed = 1;
    parent_wake(w);
}

const float *parent_params(const struct worker *w, int chunk)
{
    return w->x->cfg.params + sim_chunks->chunks[chunk].first;
}

const struct net_job *parent_job(const struct worker *w)
{
    return &w->x->cfg.join.job;
}

void parent_renew(struct worker *w)
{
    w->x->cfg.first_values(w->x->cfg.ctx, w->x->cfg.params);
    w->has_first = 1;
}

void parent_got(struct worker *w, int chunk)
{
    struct net_exchange *x = w->x;
    const struct net_chunk *c = &sim_chunks->chunks[chunk];
    memcpy(x->cfg.params + c->first, w->chunk[chunk].value, (size_t)c->n_elems * sizeof(float));
    x->held[chunk].version = w->chunk[chunk].version;
    x->held[chunk].generation = w->generation;
    x->held[chunk].ps0 = w->ps0;
    const struct ledger_step at = {w->generation, w->ps0, chunk, 0, w->chunk[chunk].version};
    oracle_parent(&at, w->chunk[chunk].value, "as a region has it");
}

int64_t parent_version(const struct net_exchange *x, int chunk, uint64_t *generation, uint64_t *ps0)
{
    *generation = x->held[chunk].generation;
    *ps0 = x->held[chunk].ps0;
    return x->held[chunk].version;
}

enum status __wrap_net_exchange_create(const struct net_exchange_config *cfg,
                                       struct net_exchange **out)
{
    struct region *r = region_of(sim.running);
    struct net_exchange *x = sim_alloc(sizeof *x);
    if (r->x) { /* the region went back: another process for the parent */
        exchange_give_up(r->w);
        int64_t timer = r->w->link[0].timer;
        r->w = sim_alloc(sizeof *r->w);
        worker_init(r->w, r->node);
        r->w->incarnation = sim_draw(&sim.node[r->node].random) | 1;
        for (int i = 0; i < SIM_SERVERS; i++)
            r->w->link[i].timer = timer + 1000000;
    }
    x->node = r->node;
    x->cfg = *cfg;
    x->w = r->w;
    r->w->x = r->x = x;
    *out = x;
    return ST_OK;
}

static enum status state(const struct net_exchange *x)
{
    return x->cancelled ? ST_CANCELLED : x->failed ? ST_UNAVAILABLE : ST_OK;
}

static void settle_round(struct net_exchange *x)
{
    fiber_wait(x, INT64_MAX);
}

/* All servers of the next generation have let this member in. */
static enum status join_all(struct net_exchange *x)
{
    exchange_begin_start(x->w);
    while (state(x) == ST_OK && !exchange_all_joined(x->w)) {
        exchange_ask_again(x->w);
        settle_round(x);
    }
    return state(x);
}

static int is_at(const struct net_exchange *x, int64_t step)
{
    return exchange_quiet(x->w, step);
}

enum status __wrap_net_exchange_start(struct net_exchange *x, struct net_start *out)
{
    struct worker *w = x->w;
    for (;;) {
        enum status st = join_all(x);
        while (st == ST_OK && !exchange_is_over(w) && !is_at(x, 0)) {
            settle_round(x);
            st = state(x);
        }
        int64_t lowest = exchange_lowest(w);
        for (int i = 0; st == ST_OK && i < sim_chunks->n_chunks && !exchange_is_over(w); i++)
            if (w->chunk[i].version > lowest)
                exchange_request(w, i, PIECE_PULL, lowest);
        while (st == ST_OK && !exchange_is_over(w) && !is_at(x, lowest)) {
            settle_round(x);
            st = state(x);
        }
        if (st != ST_OK)
            return st;
        if (exchange_is_over(w))
            continue;
        w->step = lowest;
        *out = (struct net_start){lowest, w->generation, w->ps0, w->place};
        STORY("%s exchanges from round %lld", sim.node[x->node].name, (long long)lowest);
        return ST_OK;
    }
}

enum status __wrap_net_exchange_push(struct net_exchange *x, int chunk, int64_t step,
                                     const float *data, float weight)
{
    struct worker_chunk *c = &x->w->chunk[chunk];
    enum status st = state(x);
    if (st != ST_OK)
        return st;
    if (x->w->rebased || c->over)
        return ST_REBASED;
    if (c->kind != PIECE_NONE)
        return ST_BUSY;
    c->data = weight == 0 ? NULL : data;
    c->weight = weight;
    exchange_request(x->w, chunk, PIECE_PUSH, step);
    return ST_OK;
}

void __wrap_net_exchange_take_back(struct net_exchange *x, int64_t step)
{
}

void __wrap_net_exchange_flush(struct net_exchange *x)
{
}

enum status __wrap_net_exchange_wait(struct net_exchange *x, int first, int n, int64_t step)
{
    for (int i = first + n - 1; i >= first;) {
        const struct worker_chunk *c = &x->w->chunk[i];
        if (state(x) != ST_OK)
            return state(x);
        if (x->w->rebased || c->over)
            return ST_REBASED;
        if (c->kind == PIECE_NONE && c->version >= step)
            i--;
        else
            settle_round(x);
    }
    return ST_OK;
}

/* Of a region that has all its steps: simulated ones end with no error. */
enum status __wrap_net_exchange_leave_failed(struct net_exchange *x, int done, const char *error,
                                             int64_t deadline_ms)
{
    struct region *r = region_of(x->node);
    if (r->dying)
        return ST_CANCELLED;
    x->w->phase = PHASE_LEAVE;
    exchange_leave(x->w, done);
    while (x->w->n_leaves > 0 && !r->dying)
        settle_round(x);
    return ST_OK;
}

void __wrap_net_exchange_cancel(struct net_exchange *x)
{
    x->cancelled = 1;
    fiber_wake(x);
}

/* What is open ends with the process, or with the next one. */
void __wrap_net_exchange_destroy(struct net_exchange *x)
{
}

/* A parent is waited for as long as it takes (--parent_timeout=0). */
void *__wrap_region_end_watch(void *region)
{
    return NULL;
}

void __wrap_net_exchange_stats(struct net_exchange *x, struct net_exchange_stats *out)
{
    *out = (struct net_exchange_stats){.sent_bytes = 0};
}
