/* kernels/vector/optim.c - the update loops of optim.h. Scalars that depend on the step are
 * computed in double and then rounded once. Only products are used for powers, because libm's
 * results may differ between machines. */
#include "kernels/vector/optim.h"
#include "base/float_text.h"
#include "base/log.h"
#include "kernels/vector/clones.h"
#include "kernels/vector/optim_check.h"
#include "kernels/vector/packed.h"
#include "kernels/vector/vector.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CLIP_BLOCK = 1024 }; /* number of elements that are clipped at once */

const char *optim_name(enum optim_kind kind)
{
    static const char *const names[OPTIM_N_KINDS] = {"sgd",     "momentum", "nesterov", "adagrad",
                                                     "rmsprop", "adam",     "adamw"};
    return (unsigned)kind < OPTIM_N_KINDS ? names[kind] : "unknown";
}

void optim_defaults(enum optim_kind kind, struct optim_config *cfg)
{
    int adam = kind == OPTIM_ADAM || kind == OPTIM_ADAMW;
    *cfg = (struct optim_config){
        .kind = kind,
        .learning_rate = adam ? 0.001f : 0.01f,
        .momentum = kind == OPTIM_RMSPROP ? 0.0f : 0.9f,
        .decay = 0.99f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .epsilon = kind == OPTIM_ADAGRAD ? 1e-10f : 1e-8f,
        .weight_decay = kind == OPTIM_ADAMW ? 0.01f : 0.0f,
        .lr_decay = 0.1f,
    };
}

static enum status check_field(const char *of, const char *name, float value, int ok,
                               const char *wanted)
{
    char text[FLOAT_TEXT_BYTES];
    if (ok && isfinite(value))
        return ST_OK;
    LOG_E("%s: %s %s is not %s", of, name, float_text(value, text), wanted);
    return ST_INVALID;
}

void optim_outer_defaults(enum optim_kind kind, int64_t n_params, struct optim_config *cfg)
{
    int moves = kind != OPTIM_SGD, large = n_params >= 10000000;
    optim_defaults(kind, cfg);
    cfg->learning_rate = moves && large ? 0.7f : 1.0f;
    if (moves)
        cfg->momentum = large ? 0.9f : 0.5f;
}

enum status optim_check_of(const struct optim_config *cfg, const char *of)
{
    enum status st = ST_OK;
    if ((unsigned)cfg->kind >= OPTIM_N_KINDS) {
        LOG_E("%s: optimizer %d is unknown; there are %s", of, (int)cfg->kind, OPTIM_NAMES);
        return ST_INVALID;
    }
    if ((unsigned)cfg->schedule >= SCHEDULE_N_KINDS) {
        LOG_E("%s: lr_schedule %d is unknown; there are %s", of, (int)cfg->schedule,
              SCHEDULE_NAMES);
        return ST_INVALID;
    }
    TRY(check_field(of, "learning_rate", cfg->learning_rate, cfg->learning_rate > 0, "above 0"));
    TRY(check_field(of, "momentum", cfg->momentum, cfg->momentum >= 0 && cfg->momentum <= 1,
                    "between 0 and 1"));
    TRY(check_field(of, "decay", cfg->decay, cfg->decay >= 0 && cfg->decay <= 1,
                    "between 0 and 1"));
    TRY(check_field(of, "beta1", cfg->beta1, cfg->beta1 >= 0 && cfg->beta1 < 1, "between 0 and 1"));
    TRY(check_field(of, "beta2", cfg->beta2, cfg->beta2 >= 0 && cfg->beta2 < 1, "between 0 and 1"));
    TRY(check_field(of, "epsilon", cfg->epsilon, cfg->epsilon > 0, "above 0"));
    TRY(check_field(of, "weight_decay", cfg->weight_decay, cfg->weight_decay >= 0, "0 or above"));
    TRY(check_field(of, "clip_value", cfg->clip_value, cfg->clip_value >= 0, "0 or above"));
    TRY(check_field(of, "clip_norm", cfg->clip_norm, cfg->clip_norm >= 0, "0 or above"));
    TRY(check_field(of, "ema_decay", cfg->ema_decay, cfg->ema_decay >= 0 && cfg->ema_decay < 1,
                    "at least 0 and below 1"));
    TRY(check_field(of, "lr_decay", cfg->lr_decay, cfg->lr_decay > 0 && cfg->lr_decay <= 1,
                    "above 0 and at most 1"));
    if (cfg->warmup_steps > INT64_MAX || cfg->lr_decay_steps > INT64_MAX) {
        LOG_E("%s: lr_warmup_steps or lr_decay_steps is out of bounds", of);
        return ST_INVALID;
    }
    for (int i = 0; i < cfg->n_boundaries; i++) {
        uint64_t least = i > 0 ? cfg->boundary[i - 1] : 0;
        if (cfg->boundary[i] > least && cfg->boundary[i] <= INT64_MAX)
            continue;
        LOG_E("%s: lr_boundaries: %" PRIu64 " must be above 0 and above the previous boundary", of,
              cfg->boundary[i]);
        return ST_INVALID;
    }
done:
    return st;
}

enum status optim_check(const struct optim_config *cfg)
{
    return optim_check_of(cfg, "optimizer");
}

/* Returns the number of slots of the update itself, which are before the slot of the average. */
static int own_slots(const struct optim_config *cfg)
{
    switch (cfg->kind) {
    case OPTIM_MOMENTUM:
    case OPTIM_NESTEROV:
    case OPTIM_ADAGRAD:
        return 1;
    case OPTIM_RMSPROP:
        return cfg->momentum > 0 ? 2 : 1;
    case OPTIM_ADAM:
    case OPTIM_ADAMW:
        return 2;
    default:
        return 0;
    }
}

int optim_n_slots(const struct optim_config *cfg)
{
    return own_slots(cfg) + (cfg->ema_decay > 0);
}

/* The update loops, one per optimizer. Arrays and scalars are copied to locals: otherwise the
 * compiler would have to assume that a store through a float pointer changes them. Each loop is
 * compiled twice, with and without r.others, so that the loop does not test r.others for each
 * element. */
#define INLINE static inline __attribute__((always_inline))
#define TWO_FORMS(loop)                                                                            \
    VECTOR_CLONES static void run_##loop(const struct optim_step *step,                            \
                                         const struct optim_run *run)                              \
    {                                                                                              \
        if (run->others)                                                                           \
            loop(step, run, 1);                                                                    \
        else                                                                                       \
            loop(step, run, 0);                                                                    \
    }

/* Returns the gradient of element i, without weight decay. */
INLINE float gradient(const struct optim_run *r, size_t i, int has_others)
{
    const struct packed_float *x = r->sum;
    float g = r->weight * x[i].v;
    if (has_others)
        g = r->others[i] + g;
    return g * r->scale;
}

/* g = sum scale + wd p; p -= lr g */
INLINE void sgd(const struct optim_step *step, const struct optim_run *run, int has_others)
{
    const struct optim_step k = *step;
    const struct optim_run r = *run;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++) {
        float g = gradient(&r, i, has_others) + k.added_decay * r.old[i];
        r.new_[i] = r.old[i] - k.rate * g;
    }
}
TWO_FORMS(sgd)

/* v = m v + g; p -= lr v */
INLINE void momentum(const struct optim_step *step, const struct optim_run *run, int has_others)
{
    const struct optim_step k = *step;
    const struct optim_run r = *run;
    const float *v = r.slots;
    float *new_v = r.new_slots;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++) {
        float g = gradient(&r, i, has_others) + k.added_decay * r.old[i];
        float vi = k.momentum * v[i] + g;
        new_v[i] = vi;
        r.new_[i] = r.old[i] - k.rate * vi;
    }
}
TWO_FORMS(momentum)

/* v = m v + g; p -= lr (g + m v) */
INLINE void nesterov(const struct optim_step *step, const struct optim_run *run, int has_others)
{
    const struct optim_step k = *step;
    const struct optim_run r = *run;
    const float *v = r.slots;
    float *new_v = r.new_slots;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++) {
        float g = gradient(&r, i, has_others) + k.added_decay * r.old[i];
        float vi = k.momentum * v[i] + g;
        new_v[i] = vi;
        r.new_[i] = r.old[i] - k.rate * (g + k.momentum * vi);
    }
}
TWO_FORMS(nesterov)

/* s += g^2; p -= lr g / (sqrt(s) + eps) */
INLINE void adagrad(const struct optim_step *step, const struct optim_run *run, int has_others)
{
    const struct optim_step k = *step;
    const struct optim_run r = *run;
    const float *s = r.slots;
    float *new_s = r.new_slots;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++) {
        float g = gradient(&r, i, has_others) + k.added_decay * r.old[i];
        float si = s[i] + g * g;
        new_s[i] = si;
        r.new_[i] = r.old[i] - k.rate * (g / (sqrtf(si) + k.epsilon));
    }
}
TWO_FORMS(adagrad)

/* s = d s + (1 - d) g^2; p -= lr g / (sqrt(s) + eps) */
INLINE void rmsprop(const struct optim_step *step, const struct optim_run *run, int has_others)
{
    const struct optim_step k = *step;
    const struct optim_run r = *run;
    const float *s = r.slots;
    float *new_s = r.new_slots;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++) {
        float g = gradient(&r, i, has_others) + k.added_decay * r.old[i];
        float si = k.keep2 * s[i] + k.rest2 * (g * g);
        new_s[i] = si;
        r.new_[i] = r.old[i] - k.rate * (g / (sqrtf(si) + k.epsilon));
    }
}
TWO_FORMS(rmsprop)

/* s as in rmsprop; v = m v + g / (sqrt(s) + eps); p -= lr v */
INLINE void rmsprop_momentum(const struct optim_step *step, const struct optim_run *run,
                             int has_others)
{
    const struct optim_step k = *step;
    const struct optim_run r = *run;
    const float *s = r.slots, *v = r.slots + r.slot_stride;
    float *new_s = r.new_slots, *new_v = r.new_slots + r.slot_stride;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++) {
        float g = gradient(&r, i, has_others) + k.added_decay * r.old[i];
        float si = k.keep2 * s[i] + k.rest2 * (g * g);
        float vi = k.momentum * v[i] + g / (sqrtf(si) + k.epsilon);
        new_s[i] = si;
        new_v[i] = vi;
        r.new_[i] = r.old[i] - k.rate * vi;
    }
}
TWO_FORMS(rmsprop_momentum)

/* m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
 * p = keep p - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps) */
INLINE void adam(const struct optim_step *step, const struct optim_run *run, int has_others)
{
    const struct optim_step k = *step;
    const struct optim_run r = *run;
    const float *m = r.slots, *v = r.slots + r.slot_stride;
    float *new_m = r.new_slots, *new_v = r.new_slots + r.slot_stride;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++) {
        float g = gradient(&r, i, has_others) + k.added_decay * r.old[i];
        float mi = k.keep1 * m[i] + k.rest1 * g;
        float vi = k.keep2 * v[i] + k.rest2 * (g * g);
        new_m[i] = mi;
        new_v[i] = vi;
        r.new_[i] = k.keep * r.old[i] - k.rate * (mi / (sqrtf(vi) * k.root + k.epsilon));
    }
}
TWO_FORMS(adam)

static double power_of(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

void optim_begin(const struct optim_config *cfg, uint64_t step, struct optim_step *out)
{
    optim_begin_since(cfg, step, 0, out);
}

void optim_begin_since(const struct optim_config *cfg, uint64_t step, uint64_t since,
                       struct optim_step *out)
{
    const struct optim_factors none = {1, 1};
    optim_begin_scaled(cfg, step, since, &none, out);
}

bool optim_factor_ok(float factor)
{
    return isfinite(factor) && factor >= 0;
}

void optim_begin_scaled(const struct optim_config *cfg, uint64_t step, uint64_t since,
                        const struct optim_factors *factors, struct optim_step *out)
{
    int adam = cfg->kind == OPTIM_ADAM || cfg->kind == OPTIM_ADAMW;
    double second = adam ? (double)cfg->beta2 : (double)cfg->decay;
    double rate = (double)optim_rate(cfg, step) * (double)factors->rate;
    double weight_decay = (double)cfg->weight_decay * (double)factors->decay;
    *out = (struct optim_step){
        .kind = cfg->kind,
        .rate = (float)rate,
        .added_decay = cfg->kind == OPTIM_ADAMW ? 0.0f : (float)weight_decay,
        .momentum = cfg->momentum,
        .keep1 = cfg->beta1,
        .rest1 = (float)(1.0 - (double)cfg->beta1),
        .keep2 = (float)second,
        .rest2 = (float)(1.0 - second),
        .root = 1,
        .epsilon = cfg->epsilon,
        .clip = cfg->clip_value,
        .keep = 1,
        .ema_slot = cfg->ema_decay > 0 ? optim_n_slots(cfg) : 0,
        .ema_keep = step > 1 ? cfg->ema_decay : 0,
    };
    if (!adam)
        return;
    out->rate = (float)(rate / (1.0 - power_of((double)cfg->beta1, step - since)));
    out->root = (float)(1.0 / sqrt(1.0 - power_of((double)cfg->beta2, step - since)));
    if (cfg->kind == OPTIM_ADAMW)
        out->keep = (float)(1.0 - rate * weight_decay);
}

void optim_run(const struct optim_step *step, const struct optim_run *run)
{
    switch (step->kind) {
    case OPTIM_MOMENTUM:
        run_momentum(step, run);
        break;
    case OPTIM_NESTEROV:
        run_nesterov(step, run);
        break;
    case OPTIM_ADAGRAD:
        run_adagrad(step, run);
        break;
    case OPTIM_RMSPROP:
        if (step->momentum > 0)
            run_rmsprop_momentum(step, run);
        else
            run_rmsprop(step, run);
        break;
    case OPTIM_ADAM:
    case OPTIM_ADAMW:
        run_adam(step, run);
        break;
    default:
        run_sgd(step, run);
        break;
    }
    optim_run_ema(step, run);
}

void optim_run_ema(const struct optim_step *step, const struct optim_run *run)
{
    if (step->ema_slot == 0)
        return;
    size_t at = (size_t)(step->ema_slot - 1) * run->slot_stride;
    optim_average(step->ema_keep, run->n, run->new_, 1, run->slots + at, run->new_slots + at);
}

void optim_apply(const struct optim_config *cfg, uint64_t step, size_t n, const float *sum,
                 float scale, const float *old, float *slots, float *new_)
{
    struct optim_step scalars;
    float clipped[CLIP_BLOCK];
    optim_begin(cfg, step, &scalars);
    size_t part = scalars.clip > 0 ? CLIP_BLOCK : n;
    for (size_t at = 0; at < n; at += part) {
        struct optim_run run = {.n = n - at < part ? n - at : part,
                                .sum = sum + at,
                                .weight = 1,
                                .scale = scale,
                                .old = old + at,
                                .slots = slots ? slots + at : NULL,
                                .new_slots = slots ? slots + at : NULL,
                                .slot_stride = n,
                                .new_ = new_ + at};
        if (scalars.clip > 0) {
            vector_clip(clipped, run.sum, 1, scale, scalars.clip, run.n);
            run.sum = clipped;
            run.scale = 1;
        }
        optim_run(&scalars, &run);
    }
}

VECTOR_CLONES static void run_average(const struct optim_run *run, float keep, float rest)
{
    const struct optim_run r = *run;
    const struct packed_float *x = r.sum;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++)
        r.new_[i] = keep * r.old[i] + rest * (r.weight * x[i].v * r.scale);
}

void optim_average(float keep, size_t n, const float *sum, float scale, const float *old,
                   float *new_)
{
    struct optim_run r = {
        .n = n, .sum = sum, .weight = 1, .scale = scale, .old = old, .new_ = new_};
    if (keep >= 1) { /* `sum` is not read, because zero times infinity would be NaN */
        if (old != new_)
            memcpy(new_, old, n * sizeof *new_);
        return;
    }
    run_average(&r, keep, (float)(1.0 - (double)keep));
}

VECTOR_CLONES static void run_difference(size_t n, const float *base, const float *now, float *out)
{
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        out[i] = base[i] - now[i];
}

VECTOR_CLONES static void run_average_change(const struct optim_run *r, float keep, float scale)
{
    const struct packed_float *now = r->sum;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r->n; i++)
        r->new_[i] = (now[i].v - keep * r->old[i]) * scale;
}

void optim_change(float keep, size_t n, const float *base, const float *now, float *out)
{
    const struct optim_run r = {.n = n, .sum = now, .old = base, .new_ = out};
    if (keep < 0)
        run_difference(n, base, now, out);
    else
        run_average_change(&r, keep, keep < 1 ? 1 / (1 - keep) : 1);
}
