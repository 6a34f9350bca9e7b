/* member/updates.c - the local and the remote kind of updates; see updates.h.
 *
 * The local kind computes for a chunk exactly what a server computes for one member: it multiplies
 * the gradient by its weight, then does one fused update. So a worker without servers computes the
 * same bits as a single worker with servers. */
#include "base/log.h"
#include "kernels/vector/clip.h"
#include "kernels/vector/optim.h"
#include "kernels/vector/vector.h"
#include "member/updates_impl.h"
#include "net/exchange/averages.h"
#include "net/wire/lacking.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct local {
    const struct chunks *chunks; /* borrowed */
    struct optim_config optim;
    struct net_place place;
    int n_slots;
    int64_t restarts; /* the slots are emptied after this many steps; 0: never */
    float *params;    /* flat block; borrowed */
    /* n_slots x n_elems; a chunk's slots are stored together, from n_slots * first on */
    float *slots;
    /* numbers of updates in which a parameter of a chunk had no gradient, see idle_of() */
    uint64_t *idle;
    struct crew crew;
    double clip; /* factor that clips this step's gradients; set before the step's first push */
    _Atomic float rate;   /* factor of the learning rate */
    pthread_mutex_t lock; /* guards the two fields below */
    int64_t *version;     /* [n_chunks] */
    struct net_exchange_stats stats;
};

static const struct optim_config *local_rule(void *ctx)
{
    return &((struct local *)ctx)->optim;
}

static enum status local_start(void *ctx, struct net_start *out)
{
    const struct local *l = ctx;
    *out = (struct net_start){.step = l->place.first_step, .place = l->place};
    return ST_OK;
}

static void local_set_crew(void *ctx, const struct crew *crew)
{
    ((struct local *)ctx)->crew = *crew;
}

/* Update of one chunk. Chunks that are pushed at the same time share no data. */
struct push {
    const struct net_param *param;
    struct optim_step step;
    const float *data;
    float weight, scale;
    float *value, *slots;
    size_t n; /* distance between two slots of an element: the number of the chunk's elements */
};

enum {
    BLOCK = 2048
}; /* elements that are weighted or clipped at once, so that they stay in the
    * cache */

static void optimize_range(const struct push *p, size_t first, size_t n)
{
    struct optim_run r = {.n = n,
                          .sum = p->data + first,
                          .weight = p->weight, /* the update multiplies by the weight while it
                                                * reads */
                          .scale = p->scale,
                          .old = p->value + first,
                          .slots = p->slots + first,
                          .new_slots = p->slots + first,
                          .slot_stride = p->n,
                          .new_ = p->value + first};
    float clipped[BLOCK];
    if (p->step.clip > 0) {
        vector_clip(clipped, r.sum, p->weight, p->scale, p->step.clip, n);
        r.sum = clipped;
        r.weight = r.scale = 1;
    }
    optim_run(&p->step, &r);
}

static void average_range(const struct push *p, size_t first, size_t n)
{
    float sum[BLOCK], *value = p->value + first;
    vector_scale(sum, p->data + first, p->weight, n);
    optim_average(p->param->keep, n, sum, p->scale, value, value);
}

static void update_range(void *ctx, size_t first, size_t n)
{
    const struct push *p = ctx;
    int whole = p->param->rule != PARAM_AVERAGE && p->step.clip <= 0;
    size_t block = whole ? n : BLOCK;
    for (size_t at = 0; at < n; at += block) {
        size_t now = n - at < block ? n - at : block;
        if (p->param->rule == PARAM_AVERAGE)
            average_range(p, first + at, now);
        else
            optimize_range(p, first + at, now);
    }
}

static void local_set_rate(void *ctx, float rate)
{
    atomic_store(&((struct local *)ctx)->rate, rate);
}

/* Returns the counts of idle updates of the chunk's parameters. */
static uint64_t *idle_of(const struct local *l, int chunk)
{
    return l->idle + l->chunks->chunks[chunk].param + chunk;
}

/* Arguments of optim_begin_scaled for a chunk. `since` does not yet include the chunk's idle
 * updates. */
struct moment {
    uint64_t step, since;
    struct optim_factors factors;
};

/* Updates the chunk's n parameters one after the other, except those without a gradient. */
static void update_params(struct local *l, int chunk, const struct moment *when,
                          const uint8_t *lacking, const struct push *whole)
{
    const struct net_chunk *c = &l->chunks->chunks[chunk];
    int n = lacking_n_params(l->chunks, chunk);
    uint64_t *idle = idle_of(l, chunk);
    for (int k = 0; k < n; k++) {
        const struct net_param *param = &l->chunks->params[c->param + k];
        int64_t at = n > 1 ? param->first - c->first : 0;
        struct push p = *whole;
        if (lacking && lacking_has(lacking, k)) {
            idle[k]++;
            continue;
        }
        p.data += at;
        p.value += at;
        p.slots += at;
        if (p.param->rule != PARAM_AVERAGE)
            optim_begin_scaled(&l->optim, when->step, when->since + idle[k], &when->factors,
                               &p.step);
        if (l->clip > 0)
            crew_run(&l->crew, (size_t)(n > 1 ? param->n_elems : c->n_elems), update_range, &p);
    }
}

static bool has_idle(const struct local *l, int chunk)
{
    const uint64_t *idle = idle_of(l, chunk);
    for (int k = 0, n = lacking_n_params(l->chunks, chunk); k < n; k++)
        if (idle[k] > 0)
            return true;
    return false;
}

static enum status local_push_lacking(void *ctx, int chunk, int64_t step, const float *data,
                                      float weight, const uint8_t *lacking)
{
    struct local *l = ctx;
    const struct net_chunk *c = &l->chunks->chunks[chunk];
    int averages = l->chunks->params[c->param].rule == PARAM_AVERAGE;
    float scale = clip_scale(averages ? 1 : l->clip, (double)weight); /* the same scale as on a
                                                                       * server */
    struct push p = {.param = &l->chunks->params[c->param],
                     .data = data,
                     .weight = weight,
                     .scale = scale,
                     .value = l->params + c->first,
                     .slots = l->slots + l->n_slots * c->first,
                     .n = (size_t)c->n_elems};
    int64_t since = l->restarts > 0 ? step - step % l->restarts : 0;
    struct moment when = {(uint64_t)step + 1, (uint64_t)since, p.param->factors};
    when.factors.rate *= atomic_load(&l->rate);
    if (!averages)
        optim_begin_scaled(&l->optim, when.step, when.since, &when.factors, &p.step);
    if (lacking && !lacking_any(lacking, lacking_n_params(l->chunks, chunk)))
        lacking = NULL;
    if (weight > 0 && (lacking || has_idle(l, chunk)))
        update_params(l, chunk, &when, lacking, &p);
    else if (weight > 0 && l->clip > 0)
        crew_run(&l->crew, p.n, update_range, &p);
    pthread_mutex_lock(&l->lock);
    l->version[chunk] = step + 1;
    l->stats.applied++;
    pthread_mutex_unlock(&l->lock);
    return ST_OK;
}

static enum status local_push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    return local_push_lacking(ctx, chunk, step, data, weight, NULL);
}

static enum status local_pull(void *ctx, int chunk, int64_t step)
{
    (void)ctx, (void)chunk, (void)step;
    return ST_OK;
}

static void local_flush(void *ctx)
{
    (void)ctx;
}

/* Does not wait, since each push is complete when it returns. */
static enum status local_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    (void)ctx, (void)first, (void)n, (void)step, (void)deadline_ns;
    return ST_OK;
}

static int64_t local_version(void *ctx, int chunk)
{
    struct local *l = ctx;
    pthread_mutex_lock(&l->lock);
    int64_t v = l->version[chunk];
    pthread_mutex_unlock(&l->lock);
    return v;
}

static enum status local_leave(void *ctx, int done, const char *error)
{
    (void)ctx, (void)done, (void)error;
    return ST_OK;
}

static void local_cancel(void *ctx)
{
    (void)ctx;
}

static void local_stats(void *ctx, struct net_exchange_stats *out)
{
    struct local *l = ctx;
    pthread_mutex_lock(&l->lock);
    *out = l->stats;
    pthread_mutex_unlock(&l->lock);
}

static void local_destroy(void *ctx)
{
    struct local *l = ctx;
    if (!l)
        return;
    pthread_mutex_destroy(&l->lock);
    free(l->slots);
    free(l->idle);
    free(l->version);
    free(l);
}

/* Returns the averages of a chunk's values; NULL: there are none. */
static float *averages_of(const struct local *l, const struct net_chunk *c)
{
    bool has = l->optim.ema_decay > 0 && l->chunks->params[c->param].rule == PARAM_TRAINED;
    return has ? l->slots + l->n_slots * c->first + (l->n_slots - 1) * c->n_elems : NULL;
}

static enum status local_averages(void *ctx, float *out)
{
    const struct local *l = ctx;
    for (int i = 0; i < l->chunks->n_chunks; i++) {
        const struct net_chunk *c = &l->chunks->chunks[i];
        const float *from = averages_of(l, c);
        memcpy(out + c->first, from ? from : l->params + c->first,
               (size_t)c->n_elems * sizeof *out);
    }
    return ST_OK;
}

static const struct updates_ops local_ops = {
    .rule = local_rule,
    .set_crew = local_set_crew,
    .start = local_start,
    .set_rate = local_set_rate,
    .push = local_push,
    .push_lacking = local_push_lacking,
    .pull = local_pull,
    .averages = local_averages,
    .flush = local_flush,
    .wait = local_wait,
    .version = local_version,
    .leave = local_leave,
    .cancel = local_cancel,
    .stats = local_stats,
    .destroy = local_destroy,
};

static enum status no_memory(const struct net_exchange_config *cfg)
{
    LOG_E("out of memory for the optimizer of %lld parameters",
          (long long)cfg->join.chunks->n_elems);
    return ST_NOMEM;
}

enum status updates_local_create(const struct net_exchange_config *cfg,
                                 const struct optim_config *optim, int64_t restarts,
                                 struct updates *out)
{
    struct local *l = calloc(1, sizeof *l);
    if (!l)
        return no_memory(cfg);
    pthread_mutex_init(&l->lock, NULL);
    l->chunks = cfg->join.chunks;
    l->optim = *optim;
    l->restarts = restarts;
    l->n_slots = optim_n_slots(&l->optim);
    l->params = cfg->params;
    l->clip = 1;
    atomic_init(&l->rate, 1);
    l->place = (struct net_place){
        .member = cfg->join.member, .n_members = 1, .train_steps = cfg->join.job.train_steps};
    l->slots = calloc((size_t)l->chunks->n_elems * (size_t)(l->n_slots ? l->n_slots : 1),
                      sizeof *l->slots);
    l->version = calloc((size_t)l->chunks->n_chunks, sizeof *l->version);
    l->idle = calloc((size_t)l->chunks->n_params + (size_t)l->chunks->n_chunks, sizeof *l->idle);
    if (!l->slots || !l->version || !l->idle) {
        local_destroy(l);
        return no_memory(cfg);
    }
    for (int i = 0; i < l->chunks->n_chunks; i++) {
        const struct net_chunk *c = &l->chunks->chunks[i];
        float *averages = averages_of(l, c);
        if (averages)
            memcpy(averages, l->params + c->first, (size_t)c->n_elems * sizeof *averages);
    }
    *out = (struct updates){&local_ops, l};
    return ST_OK;
}

void updates_local_set_total(struct updates *x, int64_t steps)
{
    struct local *l = x->ctx;
    CHECK(x->ops == &local_ops);
    l->optim.total_steps = (uint64_t)steps;
}

void updates_local_empty(struct updates *x, int chunk)
{
    struct local *l = x->ctx;
    const struct net_chunk *c = &l->chunks->chunks[chunk];
    CHECK(x->ops == &local_ops);
    memset(l->slots + l->n_slots * c->first, 0,
           (size_t)l->n_slots * (size_t)c->n_elems * sizeof *l->slots);
    memset(idle_of(l, chunk), 0, (size_t)lacking_n_params(l->chunks, chunk) * sizeof *l->idle);
}

/* Returns the local kind that does the updates in this process; NULL: none. */
static struct local *local_of(const struct updates *x)
{
    const struct updates *of_rounds = updates_rounds_local(x);
    if (of_rounds)
        return of_rounds->ctx;
    return x->ops == &local_ops ? x->ctx : NULL;
}

int updates_state(const struct updates *x, struct updates_state *out)
{
    const struct local *l = local_of(x);
    if (!l)
        return 0;
    *out = (struct updates_state){l->params, l->slots, l->n_slots, l->place};
    return 1;
}

uint64_t *updates_idle(const struct updates *x, int chunk)
{
    const struct local *l = local_of(x);
    return l ? idle_of(l, chunk) : NULL;
}

void updates_resume(struct updates *x, int64_t step, uint64_t position)
{
    struct local *l = x->ctx;
    CHECK(x->ops == &local_ops);
    l->place.first_step = step;
    l->place.position = position;
    for (int i = 0; i < l->chunks->n_chunks; i++)
        l->version[i] = step;
}

int updates_clip(struct updates *x, double factor)
{
    struct local *l = local_of(x);
    if (l)
        l->clip = factor;
    return l != NULL;
}

static struct segment *remote_gradients(void *ctx, enum dtype dtype)
{
    return net_exchange_gradients(ctx, dtype);
}

static enum status remote_start(void *ctx, struct net_start *out)
{
    return net_exchange_start(ctx, out);
}

static void remote_set_rate(void *ctx, float rate)
{
    net_exchange_set_rate(ctx, rate);
}

static enum status remote_push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    return net_exchange_push(ctx, chunk, step, data, weight);
}

static enum status remote_push_lacking(void *ctx, int chunk, int64_t step, const float *data,
                                       float weight, const uint8_t *lacking)
{
    return net_exchange_push_lacking(ctx, chunk, step, data, weight, lacking);
}

static enum status remote_push_encoded(void *ctx, int chunk, int64_t step, const void *data,
                                       float weight, const uint8_t *lacking)
{
    return net_exchange_push_encoded(ctx, chunk, step, data, weight, lacking);
}

static enum status remote_pull(void *ctx, int chunk, int64_t step)
{
    return net_exchange_pull(ctx, chunk, step);
}

static enum status remote_push_rows(void *ctx, int chunk, int64_t step, const struct net_rows *rows,
                                    float weight)
{
    return net_exchange_push_rows(ctx, chunk, step, rows, weight);
}

static enum status remote_pull_rows(void *ctx, int chunk, int64_t step, const uint64_t *reads,
                                    size_t n_reads)
{
    return net_exchange_pull_rows(ctx, chunk, step, reads, n_reads);
}

static const float *remote_rows(void *ctx, int chunk, const uint64_t **keys, size_t *n)
{
    return net_exchange_rows(ctx, chunk, keys, n);
}

static enum status remote_averages(void *ctx, float *out)
{
    return net_exchange_averages(ctx, out);
}

static void remote_flush(void *ctx)
{
    net_exchange_flush(ctx);
}

static enum status remote_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    return net_exchange_wait_until(ctx, first, n, step, deadline_ns);
}

static enum status remote_wait_any(void *ctx, const uint8_t *skip, int64_t step, int *chunk)
{
    return net_exchange_wait_any(ctx, skip, step, chunk);
}

static int64_t remote_version(void *ctx, int chunk)
{
    return net_exchange_version(ctx, chunk);
}

static int remote_is_busy(void *ctx, int chunk)
{
    return net_exchange_is_busy(ctx, chunk);
}

static uint64_t remote_samples(void *ctx)
{
    return net_exchange_samples(ctx);
}

static enum status remote_leave_soon(void *ctx, int64_t deadline_ms)
{
    return net_exchange_leave_soon(ctx, deadline_ms);
}

static int remote_is_leaving(void *ctx)
{
    return net_exchange_is_leaving(ctx);
}

static enum status remote_leave(void *ctx, int done, const char *error)
{
    return net_exchange_leave_failed(ctx, done, error, 5000);
}

static void remote_cancel(void *ctx)
{
    net_exchange_cancel(ctx);
}

static void remote_stats(void *ctx, struct net_exchange_stats *out)
{
    net_exchange_stats(ctx, out);
}

static void remote_waits(void *ctx, struct net_exchange_wait *out)
{
    net_exchange_waits(ctx, out);
}

static void remote_destroy(void *ctx)
{
    net_exchange_destroy(ctx);
}

static const struct updates_ops remote_ops = {
    .gradients = remote_gradients,
    .start = remote_start,
    .set_rate = remote_set_rate,
    .push = remote_push,
    .push_lacking = remote_push_lacking,
    .push_encoded = remote_push_encoded,
    .pull = remote_pull,
    .push_rows = remote_push_rows,
    .pull_rows = remote_pull_rows,
    .rows = remote_rows,
    .averages = remote_averages,
    .flush = remote_flush,
    .wait = remote_wait,
    .wait_any = remote_wait_any,
    .version = remote_version,
    .is_busy = remote_is_busy,
    .samples = remote_samples,
    .leave_soon = remote_leave_soon,
    .is_leaving = remote_is_leaving,
    .leave = remote_leave,
    .cancel = remote_cancel,
    .stats = remote_stats,
    .waits = remote_waits,
    .destroy = remote_destroy,
};

enum status updates_create(const struct net_exchange_config *cfg, struct updates *out)
{
    if (cfg->ps_hosts->n == 0 && cfg->join.chunks->n_tables > 0) {
        LOG_E("tables need servers: start a server, on this machine or another one");
        return ST_UNSUPPORTED;
    }
    if (cfg->ps_hosts->n == 0)
        return updates_local_create(cfg, &cfg->join.job.optim, 0, out);
    if (cfg->join.job.local_steps > 1)
        return updates_rounds_create(cfg, out);
    return updates_remote_create(cfg, out);
}

enum status updates_remote_create(const struct net_exchange_config *cfg, struct updates *out)
{
    struct net_exchange *x = NULL;
    enum status st = net_exchange_create(cfg, &x);
    if (st == ST_OK)
        *out = (struct updates){&remote_ops, x};
    return st;
}

void updates_destroy(struct updates *x)
{
    if (x->ops)
        x->ops->destroy(x->ctx);
    *x = (struct updates){0};
}
