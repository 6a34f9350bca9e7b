/* kernels/vector/optim_rows.c - see optim_rows.h. The loops of optim.c do the work where an update
 * is the same for each element. SparseAdam is OPTIM_ADAM with another epsilon: with the root
 * r = 1 / sqrt(1 - b2^t), m / (sqrt(v) r + eps r) = m / (r (sqrt(v) + eps)). */
#include "kernels/vector/optim_rows.h"
#include "base/float_text.h"
#include "base/log.h"
#include "kernels/vector/clones.h"
#include "kernels/vector/optim_check.h"
#include "kernels/vector/vector.h"
#include <math.h>

static const struct {
    const char *name;
    enum optim_kind loop; /* kind of the loop, or of the defaults */
} kinds[OPTIM_ROWS_N_KINDS] = {
    {"sgd", OPTIM_SGD},         {"momentum", OPTIM_MOMENTUM},
    {"adagrad", OPTIM_ADAGRAD}, {"rowwise_adagrad", OPTIM_ADAGRAD},
    {"adam", OPTIM_ADAM},       {"ftrl", OPTIM_SGD},
};

const char *optim_rows_name(enum optim_rows_kind kind)
{
    return (unsigned)kind < OPTIM_ROWS_N_KINDS ? kinds[kind].name : "unknown";
}

void optim_rows_defaults(enum optim_rows_kind kind, struct optim_rows_config *cfg)
{
    *cfg = (struct optim_rows_config){.kind = kind, .ftrl_beta = 1};
    optim_defaults(kinds[kind].loop, &cfg->common);
}

static enum status check_limit(const char *of, const char *name, float value, bool is_zero_only)
{
    char text[FLOAT_TEXT_BYTES];
    if (is_zero_only ? value == 0 : isfinite(value) && value >= 0)
        return ST_OK;
    LOG_E("%s: %s %s is not %s", of, name, float_text(value, text),
          is_zero_only ? "0: it would change rows without a gradient, or need all gradients"
                       : "0 or above");
    return ST_INVALID;
}

enum status optim_rows_check(const struct optim_rows_config *cfg, const char *of)
{
    enum status st = ST_OK;
    if ((unsigned)cfg->kind >= OPTIM_ROWS_N_KINDS) {
        LOG_E("%s: optimizer %d is unknown; there are %s", of, (int)cfg->kind, OPTIM_ROWS_NAMES);
        return ST_INVALID;
    }
    if (cfg->common.kind != kinds[cfg->kind].loop) {
        LOG_E("%s: optimizer %s does not have the loop %s", of, optim_rows_name(cfg->kind),
              optim_name(cfg->common.kind));
        return ST_INVALID;
    }
    TRY(optim_check_of(&cfg->common, of));
    TRY(check_limit(of, "weight_decay", cfg->common.weight_decay, true));
    TRY(check_limit(of, "ema_decay", cfg->common.ema_decay, true));
    TRY(check_limit(of, "clip_norm", cfg->common.clip_norm, true));
    TRY(check_limit(of, "ftrl_beta", cfg->ftrl_beta, false));
    TRY(check_limit(of, "l1", cfg->l1, false));
    TRY(check_limit(of, "l2", cfg->l2, false));
    if (cfg->kind == OPTIM_ROWS_FTRL &&
        (cfg->common.schedule != SCHEDULE_CONSTANT || cfg->common.warmup_steps > 0)) {
        LOG_E(
            "%s: ftrl needs a constant learning rate, since it computes a row from the sums of all steps; remove the schedule and the warm-up",
            of);
        return ST_INVALID;
    }
done:
    return st;
}

size_t optim_rows_slots(enum optim_rows_kind kind, size_t dim)
{
    static const size_t arrays[OPTIM_ROWS_N_KINDS] = {[OPTIM_ROWS_MOMENTUM] = 1,
                                                      [OPTIM_ROWS_ADAGRAD] = 1,
                                                      [OPTIM_ROWS_ADAM] = 2,
                                                      [OPTIM_ROWS_FTRL] = 2};
    return kind == OPTIM_ROWS_ROWWISE_ADAGRAD ? 1 : arrays[kind] * dim;
}

void optim_rows_begin(const struct optim_rows_config *cfg, uint64_t version, float factor,
                      struct optim_rows_step *out)
{
    const struct optim_factors factors = {.rate = factor, .decay = 1};
    *out = (struct optim_rows_step){
        .kind = cfg->kind, .beta = cfg->ftrl_beta, .l1 = cfg->l1, .l2 = cfg->l2};
    optim_begin_scaled(&cfg->common, version, 0, &factors, &out->common);
    if (cfg->kind == OPTIM_ROWS_ADAM)
        out->common.epsilon *= out->common.root;
}

/* z += g - (sqrt(n + g^2) - sqrt(n)) / lr p; n += g^2;
 * p = 0 if |z| <= l1, otherwise (sign(z) l1 - z) / ((beta + sqrt(n)) / lr + l2) */
VECTOR_CLONES static void run_ftrl(const struct optim_rows_step *step, const struct optim_run *run,
                                   const float *g)
{
    const struct optim_run r = *run;
    const float rate = step->common.rate, beta = step->beta, l1 = step->l1, l2 = step->l2;
    const float *z = r.slots, *n = r.slots + r.n;
    float *new_z = r.new_slots, *new_n = r.new_slots + r.n;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++) {
        float ni = n[i] + g[i] * g[i], root = sqrtf(ni);
        float zi = z[i] + (g[i] - (root - sqrtf(n[i])) / rate * r.old[i]);
        float p = (copysignf(l1, zi) - zi) / ((beta + root) / rate + l2);
        new_n[i] = ni;
        new_z[i] = zi;
        r.new_[i] = fabsf(zi) <= l1 ? 0.0f : p;
    }
}

VECTOR_CLONES static void subtract_scaled(const struct optim_run *run, const float *g, float factor)
{
    const struct optim_run r = *run;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < r.n; i++)
        r.new_[i] = r.old[i] - factor * g[i];
}

/* s += mean of g^2; p -= lr / (sqrt(s) + eps) g */
static void run_rowwise(const struct optim_rows_step *step, const struct optim_run *run,
                        const float *g)
{
    float s = run->slots[0] + (float)(vector_sum_squares(g, 1, run->n) / (double)run->n);
    run->new_slots[0] = s;
    subtract_scaled(run, g, step->common.rate / (sqrtf(s) + step->common.epsilon));
}

/* Sets mean[i] to the gradient of element i, with limited size. */
static void find_mean(const struct optim_rows_step *step, const struct optim_run *run, float *mean)
{
    float clip = step->common.clip;
    if (run->others)
        vector_sum_scaled(mean, run->others, run->sum, run->weight, run->n);
    else
        vector_scale(mean, run->sum, run->weight, run->n);
    if (clip > 0)
        vector_clip(mean, mean, 1, run->scale, clip, run->n);
    else
        vector_scale(mean, mean, run->scale, run->n);
}

/* Updates a row by a gradient that is in an array. It is a function of its own, because the array
 * would cost time in updates that do not need it. */
static __attribute__((noinline)) void run_by_mean(const struct optim_rows_step *step,
                                                  const struct optim_run *run)
{
    float mean[OPTIM_ROWS_MAX_DIM];
    struct optim_run r = *run;
    find_mean(step, run, mean);
    if (step->kind == OPTIM_ROWS_ROWWISE_ADAGRAD) {
        run_rowwise(step, run, mean);
    } else if (step->kind == OPTIM_ROWS_FTRL) {
        run_ftrl(step, run, mean);
    } else {
        r.sum = mean;
        r.others = NULL;
        r.weight = r.scale = 1;
        optim_run(&step->common, &r);
    }
}

void optim_rows_run(const struct optim_rows_step *step, const struct optim_run *run)
{
    bool is_own_loop = step->kind == OPTIM_ROWS_ROWWISE_ADAGRAD || step->kind == OPTIM_ROWS_FTRL;
    if (is_own_loop || step->common.clip > 0)
        run_by_mean(step, run);
    else
        optim_run(&step->common, run);
}
