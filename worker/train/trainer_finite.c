/* worker/train/trainer_finite.c - checks that a step's contribution is finite, and otherwise ends
 * the run or sets its weight to 0. See trainer_impl.h. Locks: none. Only the thread that pushes a
 * layer uses the state of these checks: the next layer is pushed when all towers have arrived at
 * that layer, and this thread's tower arrives there only after its push.
 *
 * The servers count a contribution as a whole, so a worker can skip only whole contributions, and a
 * contribution's norm is that of all its layers. So if contributions may be skipped or clipped, no
 * layer of a step is pushed before all layers are checked. */
#include "worker/train/trainer_finite.h"
#include "base/log.h"
#include "kernels/vector/clip.h"
#include "kernels/vector/finite.h"
#include "kernels/vector/vector.h"
#include "worker/train/largest_grad.h"
#include "worker/train/trainer_impl.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the dtype in which the parameter's gradient is pushed, for this check. If gradients will
 * be clipped, this is fp32, because clipping reduces values that are too large for the dtype. */
static enum dtype pushed_as(const struct trainer *t, const struct net_param *p)
{
    if (p->rule == PARAM_TRAINED && t->cfg.clip_norm > 0 && t->cfg.clip_norm <= 65504)
        return DTYPE_F32;
    return t->cfg.updates->ops->push_encoded ? t->cfg.push_dtype : DTYPE_F32;
}

/* Searches like finite_first_misfit, and also finds values above the largest accepted magnitude. */
static size_t first_misfit(const struct trainer *t, const struct net_param *p, const float *src,
                           size_t n)
{
    int clipped = p->rule == PARAM_TRAINED && t->cfg.clip_norm > 0;
    enum dtype d = pushed_as(t, p);
    if (d == DTYPE_F16 || clipped)
        return finite_first_misfit(d, src, n);
    return finite_first_above(DTYPE_F32, src, n, largest_grad_to_sum(&t->cfg));
}

struct search {
    const struct trainer *t;
    int param;
    _Atomic size_t bad; /* index of the first bad element that was found */
};

static void search_range(void *ctx, size_t first, size_t n)
{
    struct search *s = ctx;
    const struct tower *w = s->t->contributions[0].tower;
    const struct net_param *p = &s->t->cfg.chunks->params[s->param];
    size_t at = w->grads16
                    ? finite_first_above(s->t->cfg.push_dtype, w->grad16_of[s->param] + first, n,
                                         largest_grad_to_sum(&s->t->cfg))
                    : first_misfit(s->t, p, w->grad_of[s->param] + first, n);
    if (at == n)
        return;
    size_t bad = atomic_load(&s->bad);
    while (first + at < bad && !atomic_compare_exchange_weak(&s->bad, &bad, first + at))
        ;
}

/* Returns the index of the first element that is not finite, or that is in full precision and would
 * not be finite after rounding to the dtype; n_elems: none. */
static size_t bad_element(const struct trainer *t, int param)
{
    size_t n = (size_t)t->cfg.chunks->params[param].n_elems;
    struct search s = {.t = t, .param = param};
    atomic_init(&s.bad, n);
    crew_run(&t->crew, n, search_range, &s);
    return atomic_load(&s.bad);
}

static bool is_finite(const struct trainer *t, int param)
{
    const struct net_param *p = &t->cfg.chunks->params[param];
    size_t n = (size_t)p->n_elems;
    return finite_first_bad(DTYPE_F32, t->cfg.params + p->first, n) == n;
}

const struct net_param *trainer_bad_param(const struct trainer *t)
{
    for (int i = 0; i < t->cfg.chunks->n_params; i++)
        if (!is_finite(t, i))
            return &t->cfg.chunks->params[i];
    return NULL;
}

static float value_of(const struct trainer *t, int param, size_t at)
{
    const struct tower *w = t->contributions[0].tower;
    float value;
    if (!w->grads16)
        return w->grad_of[param][at];
    dtype_decode(t->cfg.push_dtype, &value, w->grad16_of[param] + at, 1);
    return value;
}

/* Returns true and describes the problem if the gradients of a layer's rows are not finite. */
static bool rows_problem(const struct trainer *t, const struct layer *l,
                         char what[TRAINER_WHAT_BYTES])
{
    const float *sums = t->rows.sums;
    size_t n = t->rows.n_sums;
    bool is_half = t->cfg.push_dtype == DTYPE_F16;
    size_t at = is_half ? finite_first_misfit(DTYPE_F16, sums, n)
                        : finite_first_above(DTYPE_F32, sums, n, largest_grad_to_sum(&t->cfg));
    if (at == n)
        return false;
    if (isfinite(sums[at]))
        snprintf(what, TRAINER_WHAT_BYTES, "a gradient of table '%s' is too large %s %s: %g",
                 l->name, is_half ? "for" : "to be added up in",
                 dtype_name(is_half ? DTYPE_F16 : DTYPE_F32), (double)sums[at]);
    else
        snprintf(what, TRAINER_WHAT_BYTES, "a gradient of table '%s' is not finite", l->name);
    return true;
}

/* Returns true and describes the problem if a layer's gradients are not finite. The layer's
 * parameters do not change during the call, because none of its chunks is in flight. */
static bool layer_problem(const struct trainer *t, const struct layer *l,
                          char what[TRAINER_WHAT_BYTES])
{
    for (int i = 0; i < l->n_params; i++) {
        int param = l->param[i];
        const struct net_param *p = &t->cfg.chunks->params[param];
        size_t at = bad_element(t, param);
        if (at == (size_t)p->n_elems)
            continue;
        if (!is_finite(t, param))
            snprintf(what, TRAINER_WHAT_BYTES,
                     "parameter '%s' is not finite itself: training has diverged", p->name);
        else if (isfinite(value_of(t, param, at)))
            snprintf(what, TRAINER_WHAT_BYTES,
                     "the gradient of '%s' (layer '%s') is too large %s %s: %g", p->name, l->name,
                     pushed_as(t, p) == DTYPE_F16 ? "for" : "to be added up in",
                     dtype_name(pushed_as(t, p) == DTYPE_F16 ? DTYPE_F16 : DTYPE_F32),
                     (double)value_of(t, param, at));
        else
            snprintf(what, TRAINER_WHAT_BYTES, "the gradient of '%s' (layer '%s') is not finite",
                     p->name, l->name);
        return true;
    }
    return false;
}

static bool loss_problem(const struct trainer *t, int64_t step, char what[TRAINER_WHAT_BYTES])
{
    for (int i = 0; i < t->cfg.n_towers; i++) {
        float loss = t->share[i][step & 1].loss;
        if (isfinite(loss))
            continue;
        snprintf(what, TRAINER_WHAT_BYTES, "the loss of tower %d is %g", i, (double)loss);
        return true;
    }
    return false;
}

static enum status refuse_step(const struct trainer *t, int64_t step, const char *what)
{
    LOG_E(
        "worker %d, step %" PRId64
        ": %s; training stops. A lower --learning_rate may help, or --on_nonfinite=skip if single batches are the cause",
        t->result.member, step, what);
    return ST_INVALID;
}

/* Skips the step's contribution and logs a line, or returns an error if too many were skipped. */
static enum status skip_step(struct trainer *t, int64_t step, const char *what)
{
    const struct net_param *diverged = trainer_bad_param(t);
    if (diverged) {
        LOG_E(
            "worker %d, step %" PRId64
            ": parameter '%s' is not finite: training has diverged, which no skipped contribution fixes; continue from a checkpoint, with a lower --learning_rate",
            t->result.member, step, diverged->name);
        return ST_INVALID;
    }
    if (t->result.skipped >= t->cfg.max_nonfinite) {
        LOG_E("worker %d, step %" PRId64 ": %s; %" PRId64
              " contributions were skipped before, and --max_nonfinite allows no more",
              t->result.member, step, what, t->result.skipped);
        return ST_INVALID;
    }
    t->result.skipped++;
    LOG_W("worker %d, step %" PRId64
          ": %s; the contribution is skipped: it counts with weight 0 (%" PRId64 " so far)",
          t->result.member, step, what, t->result.skipped);
    return ST_OK;
}

enum status trainer_finite_check(struct trainer *t, int layer, int64_t step, bool suspect,
                                 enum trainer_push_scope *out)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    char what[TRAINER_WHAT_BYTES];
    enum status st = ST_OK;
    int bad = trainer_rows_has(&t->rows, layer) ? rows_problem(t, l, what)
                                                : suspect && layer_problem(t, l, what);
    if (!bad && layer == t->lowest)
        bad = loss_problem(t, step, what);
    if (bad && !t->cfg.skip_nonfinite)
        return refuse_step(t, step, what);
    if (bad && !t->skipping)
        memcpy(t->skipped_for, what, sizeof what);
    t->skipping |= bad;
    /* the step is skipped only after its last layer was checked, because until then it may be
     * redone */
    if (t->skipping && layer == t->lowest)
        st = skip_step(t, step, t->skipped_for);
    *out = TRAINER_PUSH_LAYER;
    if (t->cfg.skip_nonfinite || t->cfg.clip_norm > 0)
        *out = layer != t->lowest ? TRAINER_PUSH_NOTHING
               : t->skipping      ? TRAINER_PUSH_SKIP
                                  : TRAINER_PUSH_ALL;
    if (layer == t->lowest)
        t->skipping = 0;
    return st;
}

/* Clips the step's gradients. The squares of their norm are added chunk by chunk, in the order of
 * the chunks. So the norm's bits do not depend on the speed of the towers, and in a worker without
 * servers they equal those that the servers of a job would compute. */
void trainer_finite_clip(struct trainer *t, int64_t step)
{
    const struct chunks *c = t->cfg.chunks;
    const struct tower *w = t->contributions[0].tower;
    struct updates_state state;
    double sum = 0;
    float weight = updates_state(t->cfg.updates, &state) ? (float)t->cfg.batch : 1;
    for (int i = 0; i < c->n_chunks; i++) {
        const struct net_chunk *chunk = &c->chunks[i];
        if (c->params[chunk->param].rule == PARAM_TRAINED)
            sum += vector_sum_squares(w->grads + chunk->first, weight, (size_t)chunk->n_elems) /
                   (double)weight / (double)weight;
    }
    double factor = clip_factor(sum, t->cfg.clip_norm);
    if (factor == 0)
        LOG_W(
            "worker %d, step %" PRId64
            ": each gradient is finite, but their norm is not: the step changes nothing; a lower --learning_rate may help",
            t->result.member, step);
    if (updates_clip(t->cfg.updates, factor) || factor == 1)
        return;
    for (int i = 0; i < c->n_params; i++)
        if (c->params[i].rule == PARAM_TRAINED)
            vector_scale(w->grad_of[i], w->grad_of[i], (float)factor, (size_t)c->params[i].n_elems);
}
