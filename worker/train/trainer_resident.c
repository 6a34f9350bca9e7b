/* worker/train/trainer_resident.c - queues runs, each of several steps, on a device, and waits for
 * their results. It reads the parameters for an evaluation, an observation or the end of training.
 * See trainer_resident.h. */
#include "worker/train/trainer_resident.h"
#include "base/log.h"
#include "base/trace.h"
#include "kernels/resident.h"
#include "kernels/vector/finite.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct run {
    const struct trainer_resident *r;
    const struct resident_ops *ops;
    struct plan *plan;
    struct resident_peer *peers; /* [n_towers - 1] the other towers */
    uint32_t *item;              /* [train->n] order of the samples in one pass */
    uint64_t n_passes;           /* number of passes whose order was sent to the device */
    int n_queued;                /* number of queued runs whose results have not been read */
    int64_t first, step;
    struct trainer_result result;
};

/* Returns true if each tower is on a device of its own that holds the data, and all devices are of
 * one backend. */
static bool towers_fit(const struct trainer_config *cfg, struct tower *const *towers)
{
    const struct backend *b = towers[0]->spec.own.backend;
    bool fit = b->resident && (cfg->n_towers == 1 || b->group_create);
    for (int i = 0; fit && i < cfg->n_towers; i++) {
        fit = towers[i]->spec.own.backend == b && towers[i]->data &&
              split_tower_only_plan(towers[i]->stages);
        for (int j = 0; fit && j < i; j++)
            fit = towers[j]->spec.own.device != towers[i]->spec.own.device;
    }
    return fit;
}

bool trainer_resident_fits(const struct trainer_config *cfg, struct tower *const *towers)
{
    const struct updates *x = cfg->updates;
    if (cfg->params_on_host)
        return false;
    const struct optim_config *rule = x->ops->rule ? x->ops->rule(x->ctx) : NULL;
    return rule && rule->clip_value == 0 && rule->clip_norm == 0 && rule->ema_decay == 0 &&
           !cfg->at_step && !cfg->validation && !cfg->own_pace && !cfg->sample_log &&
           cfg->push_delay_ms == 0 && cfg->fault_nonfinite == 0 && !cfg->skip_nonfinite &&
           towers_fit(cfg, towers);
}

static enum status begin_run(struct run *run)
{
    enum status st = ST_OK;
    const struct trainer_config *cfg = run->r->cfg;
    struct tower *const *towers = run->r->towers;
    const struct tower *t = towers[0];
    float *keep = calloc((size_t)cfg->chunks->n_params + 1, sizeof *keep);
    run->item = calloc((size_t)cfg->train->n, sizeof *run->item);
    run->peers = calloc((size_t)cfg->n_towers, sizeof *run->peers);
    if (!keep || !run->item || !run->peers) {
        LOG_W("no memory for the order of %" PRId64 " images", cfg->train->n);
        st = ST_NOMEM;
        goto done;
    }
    for (int i = 0; i < cfg->chunks->n_params; i++) {
        const struct net_param *p = &cfg->chunks->params[i];
        keep[i] = p->rule == PARAM_AVERAGE ? p->keep : -1.0f;
        for (int k = 0; k < cfg->n_towers; k++)
            TRY(split_tower_load_param(towers[k]->stages, i));
    }
    for (int k = 1; k < cfg->n_towers; k++)
        run->peers[k - 1] = (struct resident_peer){.plan = split_tower_only_plan(towers[k]->stages),
                                                   .data = towers[k]->data,
                                                   .first = tower_position(towers[k], 0)};
    struct resident_config rc = {
        .data = t->data,
        .optim = *cfg->updates->ops->rule(cfg->updates->ctx),
        .keep = keep,
        .step = (uint64_t)run->first,
        .first = tower_position(t, 0),
        .stride = tower_position(t, 1) - tower_position(t, 0),
        .graphs = cfg->cuda_graphs,
        .peers = run->peers,
        .n_peers = cfg->n_towers - 1,
    };
    run->n_passes = tower_position(t, run->first) / (uint64_t)cfg->train->n;
    TRY(run->ops->begin(run->plan, &rc));
done:
    free(keep);
    return st;
}

/* Sends the device the order of samples of each pass that the next n steps read. */
static enum status orders_give(struct run *run, int n)
{
    const struct tower *t = run->r->towers[0];
    const struct trainer_config *cfg = run->r->cfg;
    uint64_t items = (uint64_t)cfg->train->n;
    uint64_t last = tower_position(t, run->step + n - 1) + (uint64_t)cfg->batch - 1;
    for (; run->n_passes <= last / items; run->n_passes++) {
        for (uint64_t k = 0; k < items; k++)
            run->item[k] = (uint32_t)dataset_order_item(t->order, run->n_passes * items + k);
        enum status st = run->ops->order(run->plan, run->n_passes, run->item);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

/* Returns how many of the next steps together read samples of at most two passes, because the
 * device holds the orders of two passes. The result is at least 1, because a batch is no larger
 * than the data set. */
static int64_t steps_in_two_passes(const struct run *run)
{
    const struct tower *t = run->r->towers[0];
    uint64_t items = (uint64_t)run->r->cfg->train->n, at = tower_position(t, run->step);
    uint64_t stride = tower_position(t, run->step + 1) - at;
    uint64_t end = (at / items + 2) * items;
    return (int64_t)((end - at - (uint64_t)run->r->cfg->batch) / stride) + 1;
}

/* Returns the number of steps of the next run, which ends at the next log line, evaluation,
 * observation or the end of training. */
static int run_steps(const struct run *run)
{
    const struct trainer_config *cfg = run->r->cfg;
    int64_t n = cfg->train_steps - run->step, most = steps_in_two_passes(run);
    int64_t until_log = cfg->log_every > 0 ? cfg->log_every - run->step % cfg->log_every : n;
    int64_t until_eval = cfg->eval_every > 0 ? cfg->eval_every - run->step % cfg->eval_every : n;
    n = n < until_log ? n : until_log;
    n = n < until_eval ? n : until_eval;
    const struct trainer_observer *o = cfg->observer;
    int64_t until_seen = o ? o->next(o->ctx, run->step) - run->step : n;
    n = n < until_seen ? n : until_seen;
    n = n < most ? n : most;
    return n < RESIDENT_STEPS ? (int)n : RESIDENT_STEPS;
}

static enum status wait_for_one(struct run *run)
{
    enum status st = ST_OK;
    struct resident_result got;
    int64_t begin = trace_begin();
    TRY(run->ops->wait(run->plan, &got));
    run->n_queued--;
    trace_end(begin, TRACE_WAIT, "steps on the device", NULL, -1, (int64_t)got.step);
    struct trainer_result *r = &run->result;
    r->local_steps = (int64_t)got.step - run->first;
    r->global_step = (int64_t)got.step;
    r->images = r->local_steps * run->r->cfg->batch;
    r->loss = got.loss;
    int64_t n = run->r->cfg->train->n, last = r->global_step * run->r->cfg->batch - 1;
    struct progress_point at = {r->global_step, r->global_step, r->loss, r->images, 1 + last / n};
    progress_update(run->r->progress, &at);
    run->r->step_done(run->r->ctx, r, got.n_correct);
done:
    return st;
}

/* Checks the loss of a run's last step. The device reports no other loss, so an earlier step of the
 * run may have been the first whose loss was not finite. */
static enum status check_loss(struct run *run)
{
    const struct trainer_config *cfg = run->r->cfg;
    const struct trainer_result r = run->result;
    struct resident_result got;
    const char *name = NULL;
    if (r.local_steps == 0 || isfinite(r.loss))
        return ST_OK;
    enum status st = ST_OK;
    for (; st == ST_OK && run->n_queued > 0; run->n_queued--)
        st = run->ops->wait(run->plan, &got);
    for (int i = 0; st == ST_OK && i < cfg->chunks->n_params && !name; i++) {
        const struct net_param *p = &cfg->chunks->params[i];
        float *value = cfg->params + p->first;
        st = run->ops->read_param(run->plan, i, value);
        if (finite_first_bad(DTYPE_F32, value, (size_t)p->n_elems) < (size_t)p->n_elems)
            name = p->name;
    }
    LOG_E(
        "worker %d, step %" PRId64
        " or shortly before: the loss is %g%s%s%s; training stops. A lower --learning_rate may help",
        run->r->member, r.global_step - 1, (double)r.loss, name ? ", and parameter '" : "",
        name ? name : "", name ? "' is not finite" : "");
    return st == ST_OK ? ST_INVALID : st;
}

/* Waits for all queued runs, and reads the parameters to the host. */
static enum status come_home(struct run *run)
{
    enum status st = ST_OK;
    const struct trainer_config *cfg = run->r->cfg;
    while (run->n_queued > 0) {
        TRY(wait_for_one(run));
        TRY(check_loss(run));
    }
    for (int i = 0; i < cfg->chunks->n_params; i++)
        TRY(run->ops->read_param(run->plan, i, cfg->params + cfg->chunks->params[i].first));
done:
    return st;
}

static enum status train_run(struct run *run)
{
    enum status st = ST_OK;
    const struct trainer_resident *r = run->r;
    const struct trainer_config *cfg = r->cfg;
    while (run->step < cfg->train_steps && !r->stopped(r->ctx)) {
        if (cfg->eval_every > 0 && run->step > run->first && run->step % cfg->eval_every == 0) {
            TRY(come_home(run));
            TRY(r->evaluate(r->ctx, run->step));
        }
        if (cfg->observer && cfg->observer->wants_values(cfg->observer->ctx, run->step, 0)) {
            TRY(come_home(run));
            r->look(r->ctx, run->step);
        }
        int n = run_steps(run);
        TRY(orders_give(run, n));
        if (run->n_queued == RESIDENT_RUNS) {
            TRY(wait_for_one(run));
            TRY(check_loss(run));
        }
        TRY(run->ops->run(run->plan, n));
        run->n_queued++;
        run->step += n;
    }
    TRY(come_home(run));
    if (run->step < cfg->train_steps)
        st = ST_CANCELLED;
done:
    return st;
}

static void log_begin(const struct trainer_resident *r)
{
    const struct tower_device *d = &r->towers[0]->spec.own;
    int n = r->cfg->n_towers;
    /* bytes that each device sends in a step, for a reduce-scatter of gradients and an all-gather
     * of parameters */
    double sent = 2.0 * (n - 1) / n * (double)r->cfg->chunks->n_elems * sizeof(float);
    const char *graph = r->cfg->cuda_graphs ? "; each step is one CUDA graph" : "";
    if (n == 1)
        LOG_I("training runs on %s:%d without copies to the host%s", d->backend->name, d->device,
              graph);
    else
        LOG_I(
            "training runs on %d devices (%s:%d, ...) without copies to the host%s on each. A device sends %.1f MB in each step, while it computes the backward of lower layers. The expected speed is an estimate, because it was never measured on a machine with several GPUs: up to %d times that of one device with the samples of one tower, less the time of copies that last longer than the backward",
            n, d->backend->name, d->device, graph, sent / 1e6, n);
}

enum status trainer_resident_run(const struct trainer_resident *r, int64_t step,
                                 struct trainer_result *out, bool *done)
{
    enum status st = ST_OK;
    const struct tower_device *d = &r->towers[0]->spec.own;
    struct run run = {.r = r,
                      .ops = d->backend->resident,
                      .plan = split_tower_only_plan(r->towers[0]->stages),
                      .first = step,
                      .step = step,
                      .result = {.global_step = step}};
    *done = false;
    st = begin_run(&run);
    if (st == ST_NOMEM || (st == ST_UNSUPPORTED && r->cfg->n_towers > 1)) {
        LOG_I("each step copies gradients and parameters between %s:%d and the host",
              d->backend->name, d->device);
        st = ST_OK;
        goto done;
    }
    TRY(st);
    *done = true;
    log_begin(r);
    st = train_run(&run);
    *out = run.result;
done:
    free(run.peers);
    free(run.item);
    return st;
}
