/* member/updates_rounds.c - local SGD (Stich 2019; with an outer optimizer DiLoCo, Douillard
 * et al. 2023): a worker makes H local steps, and the change of its parameters is its contribution
 * to one step of the servers, a round.
 *
 *     base: the servers' version of the round.   params: what the worker trains, base at first
 *     each step:    params -= the local optimizer's update, as of a worker alone
 *     after H:      contribution = base - params; weight: number of its samples
 *     with the answer: params = base = the servers' next version
 *
 * A parameter that lacks its gradient in a step does not change in that step. If it lacks its
 * gradient in all steps of a round, the contribution lacks it, too.
 *
 * The local optimizer begins each round with empty slots. So a round depends only on its version
 * and its samples, not on the worker: a round that is repeated after a failure has the same bits.
 * Averages (batch normalization) follow their own rule in the local steps. Their contribution is
 * chosen so that the servers' rule results in params: (params - keep * base) / (1 - keep).
 *
 * In async, ssp and with backup workers, a chunk's next round begins with the version in the answer
 * to its contribution. In async and ssp the servers have made updates since the round's version.
 * Complete changes of all workers would add up to too large a change. So the servers apply only a
 * part of each worker's change (the outer rate), and only this part of an average's change is
 * contributed.
 *
 * In this file a "step" is a step of the worker, and a "round" is a step of the servers; no other
 * file uses both words.
 * Threads: a chunk's push and wait do not overlap, but waits of several towers do, so there is a
 *          lock. */
#include "base/aligned.h"
#include "base/log.h"
#include "member/updates_impl.h"
#include "net/wire/lacking.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* limit on `part` times the number of workers; measured: training diverged with four workers and
 * 0.5, but not with two workers and 0.7 */
static const float MOST_PARTS = 1.5f;

/* Gradients that the steps of a chunk's round lack so far. */
enum round_lacks {
    ROUND_EMPTY, /* no step of the round had a weight above 0 */
    ROUND_LACKS, /* all steps so far lack the marked gradients */
    ROUND_WHOLE, /* a step of the round had all gradients */
};

struct rounds {
    struct updates local, servers;
    const struct chunks *chunks; /* borrowed */
    int64_t n_steps;             /* H: steps of a round */
    /* true in a mode other than sync: each chunk makes its rounds at its own pace */
    int own_pace;
    float part;    /* fraction of an average's change that this worker contributes */
    int batch;     /* samples of one step */
    float *params; /* trained parameters; borrowed */
    float *base;
    /* contributions until they are answered; in `segment` or in memory of this object */
    float *change;
    struct segment *segment; /* NULL: none */
    float *own_change;
    float *weight;           /* [n_chunks] weight of the round's steps so far */
    enum round_lacks *lacks; /* [n_chunks] */
    /* marks of the gradients that the steps of a round lack (lacking_at) */
    uint8_t *lacking;
    pthread_mutex_t lock; /* guards the three fields below */
    int64_t *round;       /* [n_chunks] current round, which began with this version in params */
    int64_t *taken;       /* [n_chunks] steps of the round so far */
    /* [n_chunks] in modes other than sync: the contribution was sent, so the next version begins a
     * round */
    char *is_sent;
};

/* Begins a round: copies the servers' version, which has arrived, to params. */
static void begin_round(struct rounds *r, int chunk, int64_t round)
{
    const struct net_chunk *c = &r->chunks->chunks[chunk];
    memcpy(r->params + c->first, r->base + c->first, (size_t)c->n_elems * sizeof(float));
    updates_local_empty(&r->local, chunk);
    r->weight[chunk] = 0;
    r->lacks[chunk] = ROUND_EMPTY;
    r->round[chunk] = round;
    r->taken[chunk] = 0;
    r->is_sent[chunk] = 0;
}

static int64_t own_pace_version(struct rounds *r, int chunk, int64_t round)
{
    return r->own_pace ? r->servers.ops->version(r->servers.ctx, chunk) : round;
}

static enum status rounds_start(void *ctx, struct net_start *out)
{
    struct rounds *r = ctx;
    enum status st = r->servers.ops->start(r->servers.ctx, out);
    if (st != ST_OK)
        return st;
    for (int i = 0; i < r->chunks->n_chunks; i++)
        begin_round(r, i, own_pace_version(r, i, out->step));
    /* the job's outer optimizer counts, whose rate may differ from this worker's flag */
    if (r->part < 1 && out->place.has_outer)
        r->part = out->place.outer.learning_rate;
    if (r->part < 1 && r->part * (float)out->place.n_members > MOST_PARTS && out->place.rank == 0)
        LOG_W(
            "--outer_learning_rate=%g is large for %d workers that are not in lockstep; start such a job with about 1/%d",
            (double)r->part, out->place.n_members, out->place.n_members);
    out->step *= r->n_steps;
    out->place.train_steps *= r->n_steps;
    out->place.asked_steps *= r->n_steps;
    if (out->place.asked_steps > 0)
        updates_local_set_total(&r->local, out->place.asked_steps);
    return ST_OK;
}

static void rounds_set_crew(void *ctx, const struct crew *crew)
{
    struct rounds *r = ctx;
    r->local.ops->set_crew(r->local.ctx, crew);
}

static enum status contribute_chunk(struct rounds *r, int chunk, int64_t round)
{
    const struct net_chunk *c = &r->chunks->chunks[chunk];
    const struct net_param *p = &r->chunks->params[c->param];
    float *change = r->change + c->first, keep = p->rule == PARAM_AVERAGE ? p->keep : -1;
    float *now = r->params + c->first, *base = r->base + c->first;
    for (int64_t i = 0; keep >= 0 && r->part < 1 && i < c->n_elems; i++)
        now[i] = base[i] + r->part * (now[i] - base[i]);
    optim_change(keep, (size_t)c->n_elems, base, now, change);
    const uint8_t *lacking =
        r->lacks[chunk] == ROUND_LACKS ? r->lacking + lacking_at(r->chunks, chunk) : NULL;
    return r->servers.ops->push_lacking(r->servers.ctx, chunk, round, change, r->weight[chunk],
                                        lacking);
}

static void note_lacking(struct rounds *r, int chunk, const uint8_t *lacking)
{
    uint8_t *marks = r->lacking + lacking_at(r->chunks, chunk);
    int n = lacking_n_params(r->chunks, chunk);
    if (!lacking)
        r->lacks[chunk] = ROUND_WHOLE;
    else if (r->lacks[chunk] == ROUND_LACKS)
        lacking_and(marks, marks, lacking, n);
    else if (r->lacks[chunk] == ROUND_EMPTY)
        memcpy(marks, lacking, lacking_bytes(n));
    if (r->lacks[chunk] == ROUND_EMPTY)
        r->lacks[chunk] = ROUND_LACKS;
}

static enum status rounds_push_lacking(void *ctx, int chunk, int64_t step, const float *data,
                                       float weight, const uint8_t *lacking)
{
    struct rounds *r = ctx;
    enum status st = r->local.ops->push_lacking(r->local.ctx, chunk, step, data, weight, lacking);
    int is_last = (step + 1) % r->n_steps == 0;
    r->weight[chunk] += weight;
    if (weight > 0)
        note_lacking(r, chunk, lacking);
    pthread_mutex_lock(&r->lock);
    r->taken[chunk]++;
    r->is_sent[chunk] = is_last && r->own_pace; /* the answer has the next version */
    pthread_mutex_unlock(&r->lock);
    if (st == ST_OK && is_last)
        st = contribute_chunk(r, chunk, step / r->n_steps);
    return st;
}

static enum status rounds_push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    return rounds_push_lacking(ctx, chunk, step, data, weight, NULL);
}

static void rounds_flush(void *ctx)
{
    struct rounds *r = ctx;
    r->servers.ops->flush(r->servers.ctx);
}

/* Waits for the servers' version at the end of a round. Within a round it only checks whether the
 * generation has ended. */
static enum status rounds_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    struct rounds *r = ctx;
    int64_t round = step / r->n_steps;
    enum status st = r->servers.ops->wait(r->servers.ctx, first, n, round, deadline_ns);
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&r->lock);
    for (int i = first; i < first + n; i++)
        if (r->round[i] < round || r->is_sent[i])
            begin_round(r, i, own_pace_version(r, i, round));
    pthread_mutex_unlock(&r->lock);
    return ST_OK;
}

static enum status rounds_pull(void *ctx, int chunk, int64_t step)
{
    struct rounds *r = ctx;
    pthread_mutex_lock(&r->lock);
    r->round[chunk] = -1; /* the next wait for the chunk begins the chunk's round */
    pthread_mutex_unlock(&r->lock);
    return r->servers.ops->pull(r->servers.ctx, chunk, step / r->n_steps);
}

static int64_t rounds_version(void *ctx, int chunk)
{
    struct rounds *r = ctx;
    int64_t version = r->servers.ops->version(r->servers.ctx, chunk), taken = 0;
    pthread_mutex_lock(&r->lock);
    /* if the versions differ, the answer to the chunk's contribution has arrived, so no step of
     * the next round is made yet */
    if (r->own_pace && version == r->round[chunk])
        taken = r->taken[chunk];
    pthread_mutex_unlock(&r->lock);
    return version < 0 ? version : version * r->n_steps + taken;
}

static int rounds_is_busy(void *ctx, int chunk)
{
    struct rounds *r = ctx;
    return r->servers.ops->is_busy(r->servers.ctx, chunk);
}

/* Returns the position of the current step within the round's samples, which the servers assign all
 * at once. */
static uint64_t rounds_samples(void *ctx)
{
    struct rounds *r = ctx;
    uint64_t first = r->servers.ops->samples(r->servers.ctx);
    int64_t taken = 0;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->chunks->n_chunks;
         i++) /* the highest number counts: a chunk at the end of its round makes no more steps */
        taken = r->taken[i] > taken ? r->taken[i] : taken;
    pthread_mutex_unlock(&r->lock);
    return first > 0 ? first + (uint64_t)(taken * r->batch) : 0;
}

static enum status rounds_leave_soon(void *ctx, int64_t deadline_ms)
{
    struct rounds *r = ctx;
    return r->servers.ops->leave_soon(r->servers.ctx, deadline_ms);
}

static int rounds_is_leaving(void *ctx)
{
    struct rounds *r = ctx;
    return r->servers.ops->is_leaving(r->servers.ctx);
}

static enum status rounds_leave(void *ctx, int done, const char *error)
{
    struct rounds *r = ctx;
    return r->servers.ops->leave(r->servers.ctx, done, error);
}

static void rounds_cancel(void *ctx)
{
    struct rounds *r = ctx;
    r->servers.ops->cancel(r->servers.ctx);
}

static void rounds_stats(void *ctx, struct net_exchange_stats *out)
{
    struct rounds *r = ctx;
    r->servers.ops->stats(r->servers.ctx, out);
}

static void rounds_waits(void *ctx, struct net_exchange_wait *out)
{
    struct rounds *r = ctx;
    r->servers.ops->waits(r->servers.ctx, out);
}

static void rounds_destroy(void *ctx)
{
    struct rounds *r = ctx;
    if (!r)
        return;
    updates_destroy(&r->servers);
    updates_destroy(&r->local);
    segment_unref(r->segment);
    pthread_mutex_destroy(&r->lock);
    free(r->base);
    free(r->own_change);
    free(r->weight);
    free(r->lacks);
    free(r->lacking);
    free(r->round);
    free(r->taken);
    free(r->is_sent);
    free(r);
}

static const struct updates_ops rounds_ops = {
    .set_crew = rounds_set_crew,
    .start = rounds_start,
    .push = rounds_push,
    .push_lacking = rounds_push_lacking,
    .pull = rounds_pull,
    .flush = rounds_flush,
    .wait = rounds_wait,
    .version = rounds_version,
    .is_busy = rounds_is_busy,
    .samples = rounds_samples,
    .leave_soon = rounds_leave_soon,
    .is_leaving = rounds_is_leaving,
    .leave = rounds_leave,
    .cancel = rounds_cancel,
    .stats = rounds_stats,
    .waits = rounds_waits,
    .destroy = rounds_destroy,
};

/* Allocates `change`, if possible in memory that servers on this host can read. */
static enum status make_change(struct rounds *r)
{
    size_t bytes = (size_t)r->chunks->n_elems * sizeof(float);
    r->segment = r->servers.ops->gradients(r->servers.ctx, DTYPE_F32);
    if (r->segment) {
        r->change = segment_data(r->segment);
        return ST_OK;
    }
    r->own_change = aligned_take(bytes);
    r->change = r->own_change;
    return r->change ? ST_OK : ST_NOMEM;
}

enum status updates_rounds_create(const struct net_exchange_config *cfg, struct updates *out)
{
    enum status st = ST_OK;
    struct net_exchange_config servers = *cfg;
    const struct chunks *chunks = cfg->join.chunks;
    size_t bytes = (size_t)chunks->n_elems * sizeof(float);
    struct rounds *r = calloc(1, sizeof *r);
    if (!r)
        return ST_NOMEM;
    pthread_mutex_init(&r->lock, NULL);
    r->chunks = chunks;
    r->n_steps = job_local_steps(&cfg->join.job);
    r->own_pace = !job_in_lockstep(&cfg->join.job);
    r->part = cfg->join.job.sync_mode == JOB_SYNC ? 1 : cfg->join.job.optim.learning_rate;
    r->batch = cfg->join.job.batch / (int)r->n_steps;
    r->params = cfg->params;
    r->base = aligned_take(bytes);
    r->weight = calloc((size_t)chunks->n_chunks, sizeof *r->weight);
    r->round = calloc((size_t)chunks->n_chunks, sizeof *r->round);
    r->taken = calloc((size_t)chunks->n_chunks, sizeof *r->taken);
    r->is_sent = calloc((size_t)chunks->n_chunks, 1);
    r->lacks = calloc((size_t)chunks->n_chunks, sizeof *r->lacks);
    r->lacking = malloc(lacking_total(chunks));
    TRY(r->base && r->weight && r->round && r->taken && r->is_sent ? ST_OK : ST_NOMEM);
    TRY(r->lacks && r->lacking ? ST_OK : ST_NOMEM);
    memcpy(r->base, cfg->params, bytes);
    servers.params = r->base;
    servers.values = NULL; /* lent memory would hold cfg->params */
    TRY(updates_local_create(cfg, &cfg->join.job.local, r->n_steps, &r->local));
    TRY(updates_remote_create(&servers, &r->servers));
    TRY(make_change(r));
    *out = (struct updates){&rounds_ops, r};
    return ST_OK;
done:
    if (st == ST_NOMEM)
        LOG_E("out of memory for local steps of %lld parameters", (long long)chunks->n_elems);
    rounds_destroy(r);
    return st;
}

struct updates *updates_rounds_local(const struct updates *x)
{
    return x->ops == &rounds_ops ? &((struct rounds *)x->ctx)->local : NULL;
}
