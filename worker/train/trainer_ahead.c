/* worker/train/trainer_ahead.c - decides whether the card updates the parameters, and compares the
 * versions that the card and the servers have computed. The design is in trainer_ahead.h. */
#include "worker/train/trainer_ahead.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "kernels/device_updates.h"
#include "kernels/tuning.h"
#include "kernels/vector/digest.h"
#include "worker/train/trainer_impl.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct tower_device *device_of(const struct trainer *t)
{
    return &t->towers[0]->spec.own;
}

static struct plan *plan_of(const struct trainer *t)
{
    return split_tower_only_plan(t->towers[0]->stages);
}

/* Returns the first step of the generation whose update the card can make. If an earlier process of
 * this worker may have pushed gradients of start->step, that step's update is the servers': they
 * count those gradients and ignore the new ones, whose bits may differ. */
static int64_t first_update(const struct trainer *t, const struct net_start *start)
{
    bool was_pushed = start->redoes || (start->step > 0 && t->result.local_steps == 0);
    return start->step + was_pushed;
}

/* Returns the reason why the job's updates cannot be made on the card; NULL: they can. */
static const char *problem_of_job(const struct trainer *t, const struct net_start *start)
{
    const struct trainer_config *cfg = &t->cfg;
    const struct optim_config *o = cfg->server_optim;
    const struct net_place *p = &start->place;
    if (cfg->own_pace || cfg->local_steps > 1 || p->n_regions > 0)
        return "it needs --sync_mode=sync, without backup workers, local steps and regions";
    if (p->push_dtype != DTYPE_F32 || p->version_dtype != DTYPE_F32)
        return "it needs --wire_dtype=fp32";
    if (o->clip_value > 0 || o->clip_norm > 0 || o->ema_decay > 0)
        return "it does not support --clip_value, --clip_norm and --ema_decay";
    if (chunks_have_factors(cfg->chunks))
        return "it does not support factors of the learning rate";
    if (cfg->skip_nonfinite)
        return "it does not support --on_nonfinite=skip";
    if (p->n_members != 1)
        return "the job has several workers";
    if (first_update(t, start) > 0 && optim_n_slots(o) > 0)
        return "the optimizer's slots are on the servers";
    return NULL;
}

/* Allocates the optimizer's slots on the card, and sets them to zero. If the slots do not fit, the
 * plan is unchanged. */
static enum status begin(struct trainer *t, const struct net_start *start)
{
    const struct chunks *all = t->cfg.chunks;
    float *keep = calloc((size_t)all->n_params + 1, sizeof *keep);
    if (!t->ahead.asked)
        t->ahead.asked = calloc((size_t)all->n_chunks, sizeof *t->ahead.asked);
    if (!keep || !t->ahead.asked) {
        LOG_W("no memory for lists of %d parameters and %d chunks", all->n_params, all->n_chunks);
        free(keep);
        return ST_NOMEM;
    }
    memset(t->ahead.asked, 0, (size_t)all->n_chunks * sizeof *t->ahead.asked);
    for (int i = 0; i < all->n_params; i++)
        keep[i] = all->params[i].rule == PARAM_AVERAGE ? all->params[i].keep : -1.0f;
    struct device_updates_config cfg = {
        .optim = *t->cfg.server_optim, .keep = keep, .weight = (float)t->cfg.batch};
    /* the servers compute their learning rates from the same number of steps */
    if (start->place.asked_steps > 0)
        cfg.optim.total_steps = (uint64_t)start->place.asked_steps;
    else if (start->place.train_steps > 0)
        cfg.optim.total_steps = (uint64_t)start->place.train_steps;
    enum status st = device_of(t)->backend->updates->begin(plan_of(t), &cfg);
    free(keep);
    return st;
}

enum status trainer_ahead_start(struct trainer *t, const struct net_start *start)
{
    const struct tower_device *d = device_of(t);
    const char *problem;
    if (t->ahead.is_on)
        d->backend->updates->end(plan_of(t));
    t->ahead.is_on = false;
    if (!(d->tuning & TUNING_UPDATES) || !t->cfg.server_optim)
        return ST_OK;
    if (t->rows.tables)
        problem = "it does not support tables";
    else if (!t->parts.fetches || !d->backend->updates || !plan_of(t))
        problem = "it needs one tower, on one card";
    else
        problem = problem_of_job(t, start);
    if (!problem) {
        enum status st = begin(t, start);
        if (st != ST_OK && st != ST_NOMEM)
            return st;
        problem = st == ST_OK ? NULL : "the card has too little memory";
    }
    if (problem) {
        LOG_I("--gpu_tuning=updates has no effect from step %" PRId64 " on: %s", start->step,
              problem);
        return ST_OK;
    }
    t->ahead.is_on = true;
    t->ahead.first_step = t->ahead.version = t->ahead.arrived = first_update(t, start);
    LOG_I("%s:%d updates the parameters itself from step %" PRId64
          " on, and compares the servers' versions with its own",
          d->backend->name, d->device, t->ahead.first_step);
    return ST_OK;
}

bool trainer_ahead_has(const struct trainer *t, int64_t step)
{
    return t->ahead.is_on && step > t->ahead.first_step;
}

struct comparison {
    const float *value;
    const uint64_t *digest;
    size_t n_elems;
    /* first element of the first block that differs; n_elems: no block differs */
    _Atomic size_t bad;
};

static size_t block_elems(const struct comparison *c, size_t at)
{
    return c->n_elems - at < DEVICE_UPDATES_BLOCK ? c->n_elems - at : DEVICE_UPDATES_BLOCK;
}

_Static_assert(CREW_RANGE % DEVICE_UPDATES_BLOCK == 0, "ranges have whole blocks");

static void compare_range(void *ctx, size_t first, size_t n)
{
    struct comparison *c = ctx;
    for (size_t at = first; at < first + n; at += DEVICE_UPDATES_BLOCK) {
        size_t bad = atomic_load(&c->bad);
        if (vector_digest(c->value + at, block_elems(c, at)) ==
            c->digest[at / DEVICE_UPDATES_BLOCK])
            continue;
        while (at < bad && !atomic_compare_exchange_weak(&c->bad, &bad, at))
            ;
    }
}

/* The range of a parameter that is in a chunk. */
struct piece {
    int chunk, param;
    int64_t at; /* first element in the parameter */
    size_t n;
};

static enum status report(const struct trainer *t, const struct piece *p,
                          const struct comparison *c, int64_t step)
{
    size_t at = atomic_load(&c->bad), n = block_elems(c, at);
    LOG_E(
        "worker %d, step %" PRId64
        ": elements %zu to %zu of '%s' (chunk %d) have the digest %016" PRIx64
        " in the servers' version, and %016" PRIx64
        " after the card's own update; training stops. Without 'updates' in --gpu_tuning the worker uses the servers' versions",
        t->result.member, step, (size_t)p->at + at, (size_t)p->at + at + n - 1,
        t->cfg.chunks->params[p->param].name, p->chunk, vector_digest(c->value + at, n),
        c->digest[at / DEVICE_UPDATES_BLOCK]);
    return ST_MISMATCH;
}

static enum status compare(struct trainer *t, const struct piece *p, int64_t step)
{
    enum status st = ST_OK;
    struct comparison c = {.value = t->cfg.params + t->cfg.chunks->params[p->param].first + p->at,
                           .n_elems = p->n};
    TRY(device_of(t)->backend->updates->digests(
        plan_of(t), p->param, p->at / tower_part_elems(&t->cfg), (uint64_t)step, &c.digest));
    atomic_init(&c.bad, c.n_elems);
    crew_run(&t->crew, c.n_elems, compare_range, &c);
    if (atomic_load(&c.bad) < c.n_elems)
        st = report(t, p, &c, step);
done:
    return st;
}

static enum status fetch(struct trainer *t, const struct piece *p, int64_t step)
{
    (void)step;
    return device_of(t)->backend->updates->fetch(plan_of(t), p->param,
                                                 p->at / tower_part_elems(&t->cfg));
}

/* Calls f for each piece of the chunk. */
static enum status each_piece(struct trainer *t, int chunk, int64_t step,
                              enum status (*f)(struct trainer *t, const struct piece *p,
                                               int64_t step))
{
    enum status st = ST_OK;
    const struct chunks *all = t->cfg.chunks;
    const struct net_chunk *c = &all->chunks[chunk];
    int64_t end = c->first + c->n_elems;
    for (int i = c->param; i < all->n_params && all->params[i].first < end; i++) {
        const struct net_param *param = &all->params[i];
        int64_t last = param->first + param->n_elems < end ? param->first + param->n_elems : end;
        struct piece p = {chunk, i, i == c->param ? c->first - param->first : 0, 0};
        p.n = (size_t)(last - param->first - p.at);
        TRY(f(t, &p, step));
    }
done:
    return st;
}

/* Waits until all chunks have the version of the step. */
static enum status catch_up(struct trainer *t, int64_t step)
{
    enum status st = ST_OK;
    const struct updates *x = t->cfg.updates;
    int64_t begin = trace_begin(), waits_since_ns = clock_now_ns();
    if (!trainer_ahead_has(t, step) || t->ahead.arrived == step)
        return ST_OK;
    st = x->ops->wait(x->ctx, 0, t->cfg.chunks->n_chunks, step, INT64_MAX);
    TRY(trainer_state_note_rebased(t, st, step));
    trace_end(begin, TRACE_WAIT, "answers", NULL, -1, step);
    t->wait_ns += clock_now_ns() - waits_since_ns;
    t->ahead.arrived = step;
done:
    return st;
}

enum status trainer_ahead_fetch(struct trainer *t, int first, int n, int64_t step)
{
    enum status st = ST_OK;
    for (int c = first; t->ahead.is_on && c < first + n; c++) {
        if (t->ahead.asked[c] == step + 1)
            continue;
        TRY(catch_up(t, step));
        if (trainer_state_is_invalid(t, step))
            return ST_OK;
        if (trainer_ahead_has(t, step))
            TRY(each_piece(t, c, step, compare));
        TRY(each_piece(t, c, step, fetch));
        t->ahead.asked[c] = step + 1;
    }
done:
    return st;
}

enum status trainer_ahead_compare_all(struct trainer *t)
{
    enum status st = ST_OK;
    if (!trainer_ahead_has(t, t->ahead.version))
        return ST_OK;
    for (int c = 0; c < t->cfg.chunks->n_chunks; c++)
        TRY(each_piece(t, c, t->ahead.version, compare));
done:
    return st;
}

enum status trainer_ahead_update(struct trainer *t, int64_t step)
{
    enum status st = ST_OK;
    if (!t->ahead.is_on || step < t->ahead.first_step)
        return ST_OK;
    TRY(device_of(t)->backend->updates->run(plan_of(t), (uint64_t)step + 1));
    t->ahead.version = step + 1;
done:
    return st;
}

void trainer_ahead_free(struct trainer *t)
{
    free(t->ahead.asked);
}
