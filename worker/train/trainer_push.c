/* worker/train/trainer_push.c - the last tower to arrive at a layer adds all contributions, and
 * pushes the layer's chunks. See trainer_impl.h. Locks: the trainer's. */
#include "base/clock.h"
#include "base/rng.h"
#include "base/trace.h"
#include "kernels/vector/vector.h"
#include "worker/train/device_group.h"
#include "worker/train/trainer_finite.h"
#include "worker/train/trainer_observe.h"
#include <math.h>

void trainer_push_layer_chunks(const struct trainer *t, int layer, int *first, int *n)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    *first = *n = 0;
    if (trainer_rows_has(&t->rows, layer))
        table_step_buckets(t->rows.tables[layer], first, n);
    if (l->n_params == 0)
        return;
    const struct net_param *last = &t->cfg.chunks->params[l->param[l->n_params - 1]];
    *first = t->cfg.chunks->params[l->param[0]].first_chunk;
    *n = last->first_chunk + last->n_chunks - *first;
}

void trainer_push_list_contributions(struct trainer *t)
{
    for (int i = 0; i < t->cfg.n_towers; i++) {
        const struct tower *w = t->towers[i];
        int rank = device_group_rank(t->group, i);
        float weight = rank < 0 ? (float)w->spec.n / (float)t->cfg.batch : 1;
        if (rank <= 0)
            t->contributions[t->n_contributions++] = (struct contribution){w, weight};
    }
}

struct reduction {
    const struct trainer *t;
    int param;
};

static void reduce_range(void *ctx, size_t first, size_t n)
{
    const struct reduction *r = ctx;
    const struct contribution *s = r->t->contributions;
    float *sum = s[0].tower->grad_of[r->param] + first;
    if (s[0].weight != 1)
        vector_scale(sum, sum, s[0].weight, n);
    for (int i = 1; i < r->t->n_contributions; i++)
        vector_add_scaled(sum, s[i].tower->grad_of[r->param] + first, s[i].weight, n);
}

/* Adds the contributions to one parameter; the sum is in the first contribution's block. */
static void reduce_param(const struct trainer *t, int param)
{
    struct reduction r = {t, param};
    if (t->n_contributions > 1 || t->contributions[0].weight != 1)
        crew_run(&t->crew, (size_t)t->cfg.chunks->params[param].n_elems, reduce_range, &r);
}

static enum status push_chunk(struct trainer *t, int chunk, int64_t version, float weight)
{
    const struct updates *x = t->cfg.updates;
    const struct tower *w = t->contributions[0].tower;
    int64_t first = t->cfg.chunks->chunks[chunk].first;
    if (w->grads16)
        return x->ops->push_encoded(x->ctx, chunk, version, w->grads16 + first, weight, NULL);
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

static bool has_fault(const struct trainer *t, int layer, int64_t step)
{
    return t->cfg.fault_nonfinite > 0 && layer == t->lowest &&
           (step + 1) % t->cfg.fault_nonfinite == 0;
}

/* Waits for the device's check of a layer whose gradients arrive in parts. If the host will read
 * gradients of this layer, also waits for all their parts. */
static enum status check_parts(struct trainer *t, int layer, int64_t step, bool *suspect)
{
    enum status st = ST_OK;
    const struct layer *l = &t->cfg.model->layers[layer];
    int first, n;
    *suspect = false;
    if (l->n_params == 0)
        return ST_OK;
    for (int i = 0; i < l->n_params; i++)
        t->parts.fetched[l->param[i]] = 0;
    TRY(split_tower_check_grads(t->towers[0]->stages, layer, suspect));
    *suspect |= has_fault(t, layer, step);
    if (*suspect || t->cfg.clip_norm > 0 || trainer_observe_is_due(t, step)) {
        trainer_push_layer_chunks(t, layer, &first, &n);
        TRY(trainer_ahead_fetch(t, first, n, step));
        TRY(trainer_state_is_invalid(t, step) ? ST_OK : trainer_parts_fetch_layer(t, layer));
    }
done:
    return st;
}

static enum status push_chunks(struct trainer *t, int layer, int64_t step, float weight)
{
    enum status st = ST_OK;
    const struct layer *l = &t->cfg.model->layers[layer];
    struct updates *x = t->cfg.updates;
    int first, n;
    if (trainer_rows_has(&t->rows, layer)) {
        fault_delay(t, layer, step);
        return trainer_rows_push(t, layer, step, weight);
    }
    trainer_push_layer_chunks(t, layer, &first, &n);
    for (int c = first; c < first + n; c++) {
        if (t->cfg.chunks->chunks[c].param < l->param[0])
            /* the chunk is pushed with the layer in which it begins, whose backward runs later */
            continue;
        int64_t version = t->cfg.own_pace ? x->ops->version(x->ctx, c) : step;
        /* if own_pace is set: the chunk already has all its updates */
        if (version >= t->cfg.train_steps)
            continue;
        /* the next chunk is copied while this one is pushed */
        TRY(trainer_ahead_fetch(t, c, c + 1 < first + n ? 2 : 1, step));
        if (trainer_state_is_invalid(t, step))
            return ST_OK;
        if (t->parts.fetches)
            TRY(trainer_parts_fetch(t, c));
        fault_delay(t, c, step);
        /* -1 if own_pace is set and the generation ended after the step had begun */
        st = version < 0 ? ST_REBASED : push_chunk(t, c, version, weight);
        TRY(trainer_state_note_rebased(t, st, INT64_MAX));
    }
    x->ops->flush(x->ctx);
done:
    return st;
}

static void fault_nonfinite(const struct trainer *t, int layer, int64_t step)
{
    const struct tower *w = t->contributions[0].tower;
    int param = t->cfg.model->layers[layer].param[0];
    if (!has_fault(t, layer, step))
        return;
    if (trainer_rows_has(&t->rows, layer)) {
        if (t->rows.n_sums > 0)
            t->rows.sums[0] = NAN;
    } else if (w->grads16)
        w->grad16_of[param][0] = 0x7fc0; /* a NaN in bf16 and in fp16 */
    else
        w->grad_of[param][0] = NAN;
}

/* Adds and checks a layer's contributions, and pushes the layer. If the step must be pushed as a
 * whole, pushes nothing until the last layer is checked, and then all layers. */
static enum status push_layer(struct trainer *t, int layer, int64_t step)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    enum trainer_push_scope out;
    enum status st = ST_OK;
    bool suspect = true;
    if (trainer_state_is_invalid(t, step))
        return ST_OK;
    if (t->parts.fetches)
        TRY(check_parts(t, layer, step, &suspect));
    if (trainer_state_is_invalid(t, step))
        return ST_OK;
    for (int i = 0; i < l->n_params && !t->contributions[0].tower->grads16; i++)
        reduce_param(t, l->param[i]);
    if (trainer_rows_has(&t->rows, layer))
        TRY(trainer_rows_sum(t, layer));
    fault_nonfinite(t, layer, step);
    trainer_observe_gradients(t, layer, step);
    TRY(trainer_finite_check(t, layer, step, suspect, &out));
    int whole = out == TRAINER_PUSH_ALL || out == TRAINER_PUSH_SKIP;
    if (out == TRAINER_PUSH_ALL && t->cfg.clip_norm > 0)
        trainer_finite_clip(t, step);
    float weight = out == TRAINER_PUSH_SKIP ? 0 : (float)t->cfg.batch;
    for (int i = whole ? t->cfg.model->n_layers - 1 : layer;
         out != TRAINER_PUSH_NOTHING && i >= layer; i--)
        TRY(push_chunks(t, i, step, weight));
done:
    return st;
}

/* Counts this tower as arrived at the layer, after its backward. The last tower to arrive pushes
 * the layer. */
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
    int64_t begin = l->n_params > 0 || trainer_rows_has(&t->rows, layer) ? trace_begin() : 0;
    enum status st = push_layer(t, layer, step);
    trace_end(begin, TRACE_PUSH, "hand out", l->name, layer, step);
    pthread_mutex_lock(&t->lock);
    t->pushed[layer] = step + 1;
    pthread_cond_broadcast(&t->handed_out);
    pthread_mutex_unlock(&t->lock);
    return st;
}

int64_t trainer_push_lowest_version(struct trainer *t)
{
    return member_steps_lowest_version(t->cfg.updates, t->cfg.chunks->n_chunks);
}

int64_t trainer_push_global_step(struct trainer *t, int64_t local_step)
{
    return t->cfg.own_pace ? trainer_push_lowest_version(t) : local_step;
}

/* Records the figures of a step. The last tower that ends the step calls this function. The call
 * ends before any tower can be two steps further, because such a tower would overwrite the step's
 * entry in t->share. */
static void step_done(struct trainer *t, int64_t step)
{
    double loss = 0;
    int n_correct = 0;
    if (trainer_state_is_invalid(t, step))
        return;
    for (int i = 0; i < t->cfg.n_towers; i++) {
        loss += (double)t->share[i][step & 1].loss * t->towers[i]->spec.n / t->cfg.batch;
        n_correct += t->share[i][step & 1].n_correct;
    }
    struct trainer_result *r = &t->result;
    r->loss = (float)loss;
    r->local_steps = t->steps_before + step + 1 - t->first_step;
    r->images = r->local_steps * t->cfg.batch;
    /* if own_pace is set, this step's own update is still in flight, so the job will have at least
     * one step more than the servers have reported (local steps are counted when they begin) */
    int64_t more = t->cfg.local_steps > 1 ? 0 : 1;
    r->global_step = t->cfg.own_pace ? trainer_push_global_step(t, step) + more : step + 1;
    if (r->global_step > t->cfg.train_steps)
        r->global_step = t->cfg.train_steps;
    /* number of the step: the job's number, or with own_pace this process's own number */
    int64_t number = t->cfg.own_pace ? r->local_steps : step + 1;
    int64_t epoch = 1 + (int64_t)(t->share[0][step & 1].position / (uint64_t)t->cfg.train->n);
    struct progress_point at = {number, r->global_step, r->loss, r->images, epoch};
    progress_update(t->progress, &at);
    trainer_observe_step(t, number, n_correct);
}

enum status trainer_push_layer(struct trainer *t, struct tower *w, int layer, int64_t step)
{
    enum status st = ST_OK;
    int last;
    if (!t->parts.fetches)
        TRY(split_tower_wait_grads(w->stages, layer));
    if (trainer_rows_has(&t->rows, layer))
        TRY(trainer_rows_collect(t, w, layer));
    TRY(layer_arrive(t, layer, step, &last));
    if (layer == t->lowest && last)
        step_done(t, step);
done:
    return st;
}
