/* worker/trainer.c - the loop, and the meeting of the towers.
 *
 * DESIGN. Each tower is a thread that takes the same steps. Before a layer's forward it waits until
 * all towers' gradients of that layer's last step have been handed out and the new version is in
 * params. After a layer's backward it arrives at that layer; the last tower to arrive adds the
 * summands in their order, whoever came last, and pushes the layer's chunks. A summand is one block
 * of gradients on the host, with its weight in the sum: a tower's, or the sum of all towers of a
 * group (tower_group.h), which is weighted already. The only one may be rounded to the wire's dtype
 * already, too; then it is handed out as it is. A layer's gradients and parameters are touched
 * again only after the exchange's answer, so one copy of each suffices and nothing else is locked.
 * When the servers' generation ends, a wait says so: the step whose parameters are not to be had is
 * spoilt, and with it all later ones: nothing of them is handed out. What is to be handed out of
 * the steps before still is, for it may count. Towers of a group, which wait for each other in the
 * middle of a step, first end the newest step that any has begun, with what they have. Then all
 * begin again at the step that the servers give, and at this worker's place among the others. */
#include "worker/trainer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/trace.h"
#include "kernels/vector/vector.h"
#include "worker/device_data.h"
#include "worker/tower.h"
#include "worker/tower_group.h"
#include "worker/trainer_resident.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { EVAL_BATCH = 250, WAIT_SLICE_MS = 1000 };

struct step_share {
    float loss;
    int n_correct;
};

struct summand {
    const struct tower *tower; /* in whose gradients it lies */
    float weight;
};

struct trainer {
    struct trainer_config cfg;
    struct tower **towers;
    struct tower_group *group; /* NULL: none */
    struct summand *summands;  /* the first one's block becomes the sum */
    int n_summands;
    struct tower *eval;
    struct device_data *data;
    struct progress *progress;
    int64_t first_step; /* global and local step that run starts from */
    uint64_t generation;
    int64_t start_ns;
    _Atomic int stopped;
    _Atomic int failed; /* enum status of the first tower that failed */

    int lowest; /* the first layer with parameters: nobody passes it before all were there */

    pthread_mutex_t lock; /* guards the six below */
    pthread_cond_t handed_out;
    int64_t newest_step; /* that a tower has begun */
    int64_t last_step;   /* the generation is over: the towers' last one; else INT64_MAX */
    int64_t spoilt;      /* the first step without its parameters; else INT64_MAX */
    int *arrived;        /* [n_layers] towers whose backward of the step is done */
    int64_t *pushed;     /* [n_layers] steps whose gradients were handed out */

    struct step_share (*share)[2]; /* [n_towers][step & 1] */
    struct trainer_result result;  /* written by the last tower of a step, read after run */
    int64_t steps_before;          /* local ones, in generations before */
};

struct tower_run {
    struct trainer *t;
    struct tower *tower;
    enum status st;
};

static int over(struct trainer *t)
{
    return atomic_load(&t->stopped) || atomic_load(&t->failed) != ST_OK;
}

static void fail(struct trainer *t, enum status st)
{
    int none = ST_OK;
    if (atomic_compare_exchange_strong(&t->failed, &none, (int)st))
        t->cfg.exchange->ops->cancel(t->cfg.exchange->ctx);
    tower_group_cancel(t->group);
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->handed_out);
    pthread_mutex_unlock(&t->lock);
}

void trainer_stop(struct trainer *t)
{
    atomic_store(&t->stopped, 1);
    tower_group_cancel(t->group);
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->handed_out);
    pthread_mutex_unlock(&t->lock);
}

static int is_over_here(struct trainer *t)
{
    pthread_mutex_lock(&t->lock);
    int gone = t->last_step != INT64_MAX;
    pthread_mutex_unlock(&t->lock);
    return gone;
}

static int is_spoilt(struct trainer *t, int64_t step)
{
    pthread_mutex_lock(&t->lock);
    int spoilt = step >= t->spoilt;
    pthread_mutex_unlock(&t->lock);
    return spoilt;
}

/* Whether a tower need not end the step: nobody waits for it in its middle. */
static int is_given_up(struct trainer *t, int64_t step)
{
    return !t->group && is_spoilt(t, step);
}

/* Takes ST_REBASED off an exchange's answer; `spoilt`: the step that it spoils, or INT64_MAX. */
static enum status note_rebased(struct trainer *t, enum status st, int64_t spoilt)
{
    if (st != ST_REBASED)
        return st;
    pthread_mutex_lock(&t->lock);
    if (t->last_step == INT64_MAX)
        t->last_step = t->newest_step;
    if (spoilt < t->spoilt)
        t->spoilt = spoilt;
    pthread_cond_broadcast(&t->handed_out);
    pthread_mutex_unlock(&t->lock);
    return ST_OK;
}

/* 0: the tower has taken its last step before all begin again. */
static int begin_step(struct trainer *t, int64_t step)
{
    pthread_mutex_lock(&t->lock);
    int go = step <= t->last_step;
    if (go && step > t->newest_step)
        t->newest_step = step;
    pthread_mutex_unlock(&t->lock);
    return go;
}

/* The chunks that hold a layer's parameters are neighbours: parameters are numbered in layer order.
 * The first and the last may hold parameters of other layers, too. */
static void layer_chunks(const struct trainer *t, int layer, int *first, int *n)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    *first = *n = 0;
    if (l->n_params == 0)
        return;
    const struct net_param *last = &t->cfg.chunks->params[l->param[l->n_params - 1]];
    *first = t->cfg.chunks->params[l->param[0]].first_chunk;
    *n = last->first_chunk + last->n_chunks - *first;
}

/* Waits until params hold the layer's version that local step `step` computes on. */
static enum status layer_wait(struct trainer *t, int layer, int64_t step)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    if (l->n_params == 0)
        return ST_OK;
    int64_t begin = trace_begin();
    pthread_mutex_lock(&t->lock);
    while (t->pushed[layer] < step && !over(t) && (t->group || step < t->spoilt))
        clock_cond_wait(&t->handed_out, &t->lock, clock_deadline_ns(WAIT_SLICE_MS));
    int spoilt = step >= t->spoilt;
    pthread_mutex_unlock(&t->lock);
    if (over(t))
        return ST_CANCELLED;
    if (spoilt)
        return ST_OK;
    int first, n;
    layer_chunks(t, layer, &first, &n);
    struct exchange *x = t->cfg.exchange;
    enum status st =
        note_rebased(t, x->ops->wait(x->ctx, first, n, t->cfg.own_pace ? 0 : step), step);
    trace_end(begin, TRACE_WAIT, "parameters of", l->name, layer, step);
    return st;
}

/* Likewise, and the tower has them. */
static enum status layer_load(struct trainer *t, struct tower *w, int layer, int64_t step)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    enum status st = layer_wait(t, layer, step);
    if (is_spoilt(t, step)) /* what is computed now counts no more */
        return st;
    for (int i = 0; st == ST_OK && i < l->n_params; i++)
        st = stages_load_param(w->stages, l->param[i]);
    return st;
}

/* Each tower's gradients, weighted by its samples; a group's once, as they are. */
static void summands_list(struct trainer *t)
{
    for (int i = 0; i < t->cfg.n_towers; i++) {
        const struct tower *w = t->towers[i];
        int rank = tower_group_rank(t->group, i);
        float weight = rank < 0 ? (float)w->spec.n / (float)t->cfg.batch : 1;
        if (rank <= 0)
            t->summands[t->n_summands++] = (struct summand){w, weight};
    }
}

/* Adds the summands of one parameter into the first one's block. */
static void reduce_param(struct trainer *t, int param)
{
    size_t n = (size_t)t->cfg.chunks->params[param].n_elems;
    const struct summand *s = t->summands;
    float *sum = s[0].tower->grad_of[param];
    if (s[0].weight != 1)
        vector_scale(sum, sum, s[0].weight, n);
    for (int i = 1; i < t->n_summands; i++)
        vector_add_scaled(sum, s[i].tower->grad_of[param], s[i].weight, n);
}

static enum status push_chunk(struct trainer *t, int chunk, int64_t version)
{
    const struct exchange *x = t->cfg.exchange;
    const struct tower *w = t->summands[0].tower;
    int64_t first = t->cfg.chunks->chunks[chunk].first;
    float weight = (float)t->cfg.batch;
    if (w->grads16)
        return x->ops->push_encoded(x->ctx, chunk, version, w->grads16 + first, weight);
    return x->ops->push(x->ctx, chunk, version, w->grads + first, weight);
}

static void fault_delay(const struct trainer *t, int chunk, int64_t step)
{
    if (t->cfg.push_delay_ms <= 0)
        return;
    uint64_t key = rng_key((uint64_t)clock_now_ns(), RNG_TEST, (uint64_t)chunk);
    int64_t ms = (int64_t)rng_below(key, (uint64_t)step, (uint64_t)t->cfg.push_delay_ms + 1);
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&ts, NULL);
}

static enum status push_layer(struct trainer *t, int layer, int64_t step)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    struct exchange *x = t->cfg.exchange;
    if (is_spoilt(t, step))
        return ST_OK;
    for (int i = 0; i < l->n_params && !t->summands[0].tower->grads16; i++)
        reduce_param(t, l->param[i]);
    int first, n;
    layer_chunks(t, layer, &first, &n);
    for (int c = first; c < first + n; c++) {
        if (t->cfg.chunks->chunks[c].param < l->param[0])
            continue; /* it goes with the layer where it begins, whose backward comes later */
        int64_t version = t->cfg.own_pace ? x->ops->version(x->ctx, c) : step;
        if (version >= t->cfg.train_steps) /* at its own pace: it has had all its updates */
            continue;
        fault_delay(t, c, step);
        /* at its own pace, none: the generation ended after the step had begun */
        enum status st = version < 0 ? ST_REBASED : push_chunk(t, c, version);
        st = note_rebased(t, st, INT64_MAX);
        if (st != ST_OK)
            return st;
    }
    x->ops->flush(x->ctx);
    return ST_OK;
}

/* After the backward of a layer: the last tower of the step hands the gradients out. */
static enum status layer_arrive(struct trainer *t, int layer, int64_t step, int *was_last)
{
    pthread_mutex_lock(&t->lock);
    *was_last = ++t->arrived[layer] == t->cfg.n_towers;
    if (*was_last)
        t->arrived[layer] = 0;
    pthread_mutex_unlock(&t->lock);
    if (!*was_last)
        return ST_OK;
    const struct layer *l = &t->cfg.model->layers[layer];
    int64_t begin = l->n_params > 0 ? trace_begin() : 0;
    enum status st = push_layer(t, layer, step);
    trace_end(begin, TRACE_PUSH, "hand out", l->name, layer, step);
    pthread_mutex_lock(&t->lock);
    t->pushed[layer] = step + 1;
    pthread_cond_broadcast(&t->handed_out);
    pthread_mutex_unlock(&t->lock);
    return st;
}

/* What the job has reached: at their own pace, the chunk that is behind all others. */
static int64_t global_step(struct trainer *t, int64_t local_step)
{
    struct exchange *x = t->cfg.exchange;
    int64_t lowest = INT64_MAX;
    if (!t->cfg.own_pace)
        return local_step;
    for (int c = 0; c < t->cfg.chunks->n_chunks; c++) {
        int64_t version = x->ops->version(x->ctx, c);
        lowest = version < lowest ? version : lowest;
    }
    return lowest;
}

/* By the last tower of a step: its figures, before anyone can be two steps further. */
static void step_done(struct trainer *t, int64_t step)
{
    double loss = 0;
    if (is_spoilt(t, step))
        return;
    for (int i = 0; i < t->cfg.n_towers; i++)
        loss += (double)t->share[i][step & 1].loss * t->towers[i]->spec.n / t->cfg.batch;
    struct trainer_result *r = &t->result;
    r->loss = (float)loss;
    r->local_steps = t->steps_before + step + 1 - t->first_step;
    r->images = r->local_steps * t->cfg.batch;
    /* at their own pace: this step's own update is under way; there will be at least one more */
    r->global_step = t->cfg.own_pace ? global_step(t, step) + 1 : step + 1;
    if (r->global_step > t->cfg.train_steps)
        r->global_step = t->cfg.train_steps;
    struct progress_point at = {step + 1, r->global_step, r->loss, r->images};
    progress_update(t->progress, &at);
}

/* The gradients of a layer whose backward was called, to the host and onwards. */
static enum status layer_hand_out(struct trainer *t, struct tower *w, int layer, int64_t step)
{
    enum status st = ST_OK;
    int last;
    TRY(stages_wait_grads(w->stages, layer));
    TRY(layer_arrive(t, layer, step, &last));
    if (layer == t->lowest && last)
        step_done(t, step);
done:
    return st;
}

static enum status evaluate_now(struct trainer *t, int64_t step)
{
    double accuracy, loss;
    struct exchange *x = t->cfg.exchange;
    enum status st = x->ops->wait(x->ctx, 0, t->cfg.chunks->n_chunks, t->cfg.own_pace ? 0 : step);
    if (st == ST_REBASED)
        return note_rebased(t, st, step);
    if (st == ST_OK)
        st = trainer_evaluate(t, &accuracy, &loss);
    if (st == ST_OK)
        LOG_I("Worker %d: global step %" PRId64 ": test accuracy: %.4f, test loss: %.4f",
              t->result.member, global_step(t, step), accuracy, loss);
    return st;
}

static enum status tower_step(struct trainer *t, struct tower *w, int64_t step)
{
    enum status st = ST_OK;
    int n_layers = t->cfg.model->n_layers;
    int64_t begin = trace_begin();
    TRY(tower_load_batch(w, step));
    TRY(record_step(t->cfg.record, t->generation, step, w->position[0], w->spec.n));
    trace_end(begin, TRACE_COMPUTE, "load batch", NULL, -1, step);
    for (int i = 0; i < n_layers; i++) {
        TRY(layer_load(t, w, i, step));
        if (i <= t->lowest && is_given_up(t, step))
            return ST_OK;
        TRY(stages_forward(w->stages, i, step));
    }
    struct step_share *share = &t->share[w->index][step & 1];
    /* where backward only queues its work, a layer's gradients travel while the next one computes:
     * they are handed out one layer later */
    int lag = stages_grads_are_late(w->stages);
    for (int i = n_layers - 1; i >= -lag; i--) {
        if (i >= 0)
            TRY(stages_backward(w->stages, i, step));
        if (i == t->lowest)
            TRY(stages_result(w->stages, &share->loss, &share->n_correct));
        if (i + lag < n_layers)
            TRY(layer_hand_out(t, w, i + lag, step));
    }
done:
    return st;
}

/* Before step `step`: has the job had its updates? At their own pace, all towers see the same,
 * since versions move only with this worker's own pushes, which start when all towers are past
 * this. Each step moves every chunk that is not at its end, so there is an end. */
static int job_done(struct trainer *t, int64_t step)
{
    return global_step(t, step) >= t->cfg.train_steps;
}

static enum status tower_train(struct trainer *t, struct tower *w)
{
    enum status st = ST_OK;
    for (int64_t step = t->first_step; !over(t); step++) {
        if (!begin_step(t, step))
            return ST_OK;
        TRY(layer_wait(t, 0, step));
        if (t->cfg.own_pace) {
            for (int i = 1; i < t->cfg.model->n_layers; i++)
                TRY(layer_wait(t, i, step));
        }
        if (is_given_up(t, step))
            return ST_OK;
        if (job_done(t, step))
            return ST_OK;
        if (w->index == 0 && t->cfg.eval_every > 0 && step > t->first_step &&
            step % t->cfg.eval_every == 0)
            TRY(evaluate_now(t, step));
        if (is_given_up(t, step))
            return ST_OK;
        TRY(tower_step(t, w, step));
    }
    st = ST_CANCELLED;
done:
    return st;
}

static void *tower_main(void *arg)
{
    struct tower_run *r = arg;
    trace_thread_name("tower", r->tower->index);
    r->st = tower_train(r->t, r->tower);
    if (r->st != ST_OK)
        fail(r->t, r->st);
    return NULL;
}

/* After the last step: all chunks at their final version, in this process and in full precision. At
 * their own pace they are here, but are asked for all the same: the servers answer that when the
 * last checkpoint is on the disk. */
static enum status collect(struct trainer *t)
{
    struct exchange *x = t->cfg.exchange;
    enum status st = ST_OK;
    int n = t->cfg.chunks->n_chunks;
    TRY(x->ops->wait(x->ctx, 0, n, t->cfg.train_steps));
    if (t->cfg.version_dtype == DTYPE_F32 && !t->cfg.own_pace)
        return ST_OK;
    for (int c = 0; c < n; c++)
        TRY(x->ops->pull(x->ctx, c, t->cfg.train_steps));
    TRY(x->ops->wait(x->ctx, 0, n, t->cfg.train_steps));
done:
    return st;
}

static enum status no_memory(int n_towers)
{
    LOG_E("out of memory for the lists of %d towers", n_towers);
    return ST_NOMEM;
}

static enum status run_towers(struct trainer *t)
{
    int n = t->cfg.n_towers, started = 0;
    struct tower_run *runs = calloc((size_t)n, sizeof *runs);
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    enum status st = runs && threads ? ST_OK : no_memory(n);
    for (; st == ST_OK && started < n; started++) {
        runs[started] = (struct tower_run){t, t->towers[started], ST_OK};
        if (pthread_create(&threads[started], NULL, tower_main, &runs[started]) != 0) {
            LOG_E("cannot start the thread of tower %d: too many threads or no memory", started);
            st = ST_NOMEM;
            fail(t, st);
            break;
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(runs);
    free(threads);
    if (st == ST_OK)
        st = (enum status)atomic_load(&t->failed);
    return st;
}

static int is_over(void *ctx)
{
    return over(ctx);
}

static enum status evaluate_at(void *ctx, int64_t step)
{
    return evaluate_now(ctx, step);
}

/* *taken: the device has done it all. */
static enum status run_resident(struct trainer *t, int64_t step, int *taken)
{
    struct trainer_resident r = {.cfg = &t->cfg,
                                 .tower = t->towers[0],
                                 .progress = t->progress,
                                 .ctx = t,
                                 .over = is_over,
                                 .evaluate = evaluate_at};
    if (!trainer_resident_fits(&t->cfg, t->towers[0]))
        return ST_OK;
    return trainer_resident_run(&r, step, &t->result, taken);
}

static void start_from(struct trainer *t, const struct net_start *start)
{
    int64_t step = start->step;
    t->first_step = t->newest_step = step;
    t->generation = start->generation;
    t->last_step = t->spoilt = INT64_MAX;
    t->result.member = start->place.member;
    if (start->place.train_steps > 0)
        t->cfg.train_steps = start->place.train_steps;
    for (int i = 0; i < t->cfg.n_towers; i++)
        tower_set_place(t->towers[i], &start->place);
    for (int i = 0; i < t->cfg.model->n_layers; i++) {
        t->pushed[i] = step;
        t->arrived[i] = 0;
    }
}

/* No tower runs. *again: it goes on. */
static enum status begin_again(struct trainer *t, int *again)
{
    struct exchange *x = t->cfg.exchange;
    struct net_start start;
    enum status st = x->ops->start(x->ctx, &start);
    t->result.left =
        st == ST_CANCELLED && !over(t) && x->ops->is_leaving && x->ops->is_leaving(x->ctx);
    *again = st == ST_OK;
    if (st != ST_OK)
        return t->result.left ? ST_OK : st;
    t->steps_before = t->result.local_steps;
    start_from(t, &start);
    return ST_OK;
}

enum status trainer_run(struct trainer *t, const struct net_start *start,
                        struct trainer_result *out)
{
    enum status st = ST_OK;
    int taken = 0, again;
    t->result = (struct trainer_result){.global_step = start->step};
    start_from(t, start);
    struct progress_config pc = {t->cfg.progress, start->place.member, start->step,
                                 t->cfg.train_steps, t->cfg.log_every};
    TRY(progress_create(&pc, &t->progress));
    t->steps_before = 0;
    t->start_ns = clock_now_ns();
    TRY(run_resident(t, start->step, &taken));
    for (again = !taken; again;) {
        TRY(run_towers(t));
        st = is_over_here(t) ? ST_REBASED : collect(t);
        again = st == ST_REBASED;
        TRY(again ? begin_again(t, &again) : st);
    }
    t->result.elapsed_seconds = (double)(clock_now_ns() - t->start_ns) / 1e9;
    if (t->cfg.own_pace)
        t->result.global_step = global_step(t, 0);
    *out = t->result;
done:
    progress_destroy(t->progress);
    t->progress = NULL;
    return st;
}

enum status trainer_evaluate(struct trainer *t, double *accuracy, double *loss)
{
    enum status st = ST_OK;
    const struct dataset *d = t->cfg.test;
    struct tower *e = t->eval;
    int64_t right = 0;
    double sum = 0;
    int64_t begin = trace_begin();
    for (int i = 0; i < t->cfg.chunks->n_params; i++)
        TRY(stages_load_param(e->stages, i));
    for (int64_t at = 0; at < d->n; at += e->spec.n) {
        int n = d->n - at < e->spec.n ? (int)(d->n - at) : e->spec.n;
        TRY(tower_load_test(e, at, n));
        for (int i = 0; i < t->cfg.model->n_layers; i++)
            TRY(stages_forward_inference(e->stages, i));
        float part_loss;
        int part_right;
        TRY(stages_result(e->stages, &part_loss, &part_right));
        right += part_right;
        sum += (double)part_loss * n;
    }
    *accuracy = (double)right / (double)d->n;
    *loss = sum / (double)d->n;
    trace_end(begin, TRACE_COMPUTE, "evaluate", NULL, -1, -1);
done:
    return st;
}

size_t trainer_memory_bytes(const struct trainer *t)
{
    size_t n = 0;
    for (int i = 0; i < t->cfg.n_towers; i++)
        n += stages_memory_bytes(t->towers[i]->stages);
    return n + stages_memory_bytes(t->eval->stages);
}

static enum status towers_make(struct trainer *t)
{
    enum status st = ST_OK;
    struct tower_member member = {.first = NULL};
    TRY(tower_group_create(&t->cfg, &t->group));
    member.group = tower_group_backend(t->group);
    for (int i = 0; i < t->cfg.n_towers; i++) {
        member.rank = tower_group_rank(t->group, i);
        TRY(tower_create(&t->cfg, &t->cfg.towers[i], i, member.rank >= 0 ? &member : NULL,
                         &t->towers[i]));
        if (member.rank == 0)
            member.first = t->towers[i];
    }
    summands_list(t);
done:
    return st;
}

/* When all networks have their memory: what is left is for the data. */
static enum status data_place(struct trainer *t)
{
    enum status st = ST_OK;
    TRY(device_data_create(&t->data));
    for (int i = 0; i < t->cfg.n_towers; i++)
        TRY(device_data_get(t->data, &t->towers[i]->spec, t->cfg.train, &t->towers[i]->data));
    TRY(device_data_get(t->data, &t->eval->spec, t->cfg.test, &t->eval->data));
done:
    return st;
}

enum status trainer_create(const struct trainer_config *cfg, struct trainer **out)
{
    enum status st = ST_OK;
    struct trainer *t = calloc(1, sizeof *t);
    if (!t)
        return no_memory(cfg->n_towers);
    t->cfg = *cfg;
    pthread_mutex_init(&t->lock, NULL);
    clock_cond_init(&t->handed_out);
    size_t n_layers = (size_t)cfg->model->n_layers, n_towers = (size_t)cfg->n_towers;
    t->towers = calloc(n_towers, sizeof *t->towers);
    t->arrived = calloc(n_layers, sizeof *t->arrived);
    t->pushed = calloc(n_layers, sizeof *t->pushed);
    t->share = calloc(n_towers, sizeof *t->share);
    t->summands = calloc(n_towers, sizeof *t->summands);
    if (!t->towers || !t->arrived || !t->pushed || !t->share || !t->summands) {
        st = no_memory(cfg->n_towers);
        goto done;
    }
    while (t->lowest + 1 < cfg->model->n_layers && cfg->model->layers[t->lowest].n_params == 0)
        t->lowest++;
    TRY(towers_make(t));
    struct tower_spec eval = cfg->towers[0];
    eval.first = 0;
    eval.n = cfg->test->n < EVAL_BATCH ? (int)cfg->test->n : EVAL_BATCH;
    TRY(tower_create_inference(&t->cfg, &eval, &t->eval));
    TRY(data_place(t));
done:
    if (st == ST_OK)
        *out = t;
    else
        trainer_destroy(t);
    return st;
}

void trainer_destroy(struct trainer *t)
{
    if (!t)
        return;
    for (int i = t->cfg.n_towers - 1; t->towers && i >= 0; i--)
        tower_destroy(t->towers[i]);
    tower_group_destroy(t->group);
    tower_destroy(t->eval);
    device_data_destroy(t->data);
    pthread_cond_destroy(&t->handed_out);
    pthread_mutex_destroy(&t->lock);
    free(t->towers);
    free(t->arrived);
    free(t->pushed);
    free(t->share);
    free(t->summands);
    free(t);
}
