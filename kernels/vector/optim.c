/* kernels/vector/optim.c - see optim.h. Scalars that depend on the step are worked out in double,
 * with products alone (no libm, whose results may differ between machines), then rounded once. */
#include "kernels/vector/optim.h"
#include "base/log.h"
#include "kernels/vector/clones.h"
#include <math.h>

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
    };
}

static enum status check_field(const char *name, float value, int ok, const char *wanted)
{
    if (ok && isfinite(value))
        return ST_OK;
    LOG_E("optimizer: %s %g is not %s", name, (double)value, wanted);
    return ST_INVALID;
}

enum status optim_check(const struct optim_config *cfg)
{
    enum status st = ST_OK;
    if ((unsigned)cfg->kind >= OPTIM_N_KINDS) {
        LOG_E("optimizer: kind %d is unknown; there are %s", (int)cfg->kind, OPTIM_NAMES);
        return ST_INVALID;
    }
    if ((unsigned)cfg->schedule >= SCHEDULE_N_KINDS) {
        LOG_E("lr_schedule: kind %d is unknown; there are %s", (int)cfg->schedule, SCHEDULE_NAMES);
        return ST_INVALID;
    }
    TRY(check_field("learning_rate", cfg->learning_rate, cfg->learning_rate > 0, "above 0"));
    TRY(check_field("momentum", cfg->momentum, cfg->momentum >= 0 && cfg->momentum <= 1,
                    "within 0 and 1"));
    TRY(check_field("decay", cfg->decay, cfg->decay >= 0 && cfg->decay <= 1, "within 0 and 1"));
    TRY(check_field("beta1", cfg->beta1, cfg->beta1 >= 0 && cfg->beta1 < 1, "within 0 and 1"));
    TRY(check_field("beta2", cfg->beta2, cfg->beta2 >= 0 && cfg->beta2 < 1, "within 0 and 1"));
    TRY(check_field("epsilon", cfg->epsilon, cfg->epsilon > 0, "above 0"));
    TRY(check_field("weight_decay", cfg->weight_decay, cfg->weight_decay >= 0, "0 or above"));
done:
    return st;
}

const char *optim_schedule_name(enum optim_schedule schedule)
{
    static const char *const names[SCHEDULE_N_KINDS] = {"constant", "linear", "cosine"};
    return (unsigned)schedule < SCHEDULE_N_KINDS ? names[schedule] : "?";
}

float optim_rate(const struct optim_config *cfg, uint64_t step)
{
    uint64_t before = step > 0 ? step - 1 : 0;
    if (cfg->schedule == SCHEDULE_CONSTANT || cfg->total_steps == 0)
        return cfg->learning_rate;
    if (before >= cfg->total_steps)
        before = cfg->total_steps - 1;
    double part = (double)before / (double)cfg->total_steps;
    double factor = cfg->schedule == SCHEDULE_LINEAR ? 1.0 - part : 0.5 * (1.0 + cos(M_PI * part));
    return (float)((double)cfg->learning_rate * factor);
}

int optim_n_slots(const struct optim_config *cfg)
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

/* What every loop reads; new and old are the same array or apart. */
struct pass {
    size_t n;
    const float *sum, *old;
    float *a, *b; /* slots */
    float *new_;
    float scale, lr, wd; /* wd: weight_decay that is added to the gradient */
};

/* g = sum scale + wd p; p -= lr g */
VECTOR_CLONES static void pass_sgd(const struct pass *t)
{
    const float *sum = t->sum, *old = t->old;
    float *new_ = t->new_, scale = t->scale, lr = t->lr, wd = t->wd;
    size_t n = t->n;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float g = sum[i] * scale + wd * old[i];
        new_[i] = old[i] - lr * g;
    }
}

/* v = m v + g; p -= lr v */
VECTOR_CLONES static void pass_momentum(const struct pass *t, float m)
{
    const float *sum = t->sum, *old = t->old;
    float *new_ = t->new_, *v = t->a, scale = t->scale, lr = t->lr, wd = t->wd;
    size_t n = t->n;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float g = sum[i] * scale + wd * old[i];
        float vi = m * v[i] + g;
        v[i] = vi;
        new_[i] = old[i] - lr * vi;
    }
}

/* v = m v + g; p -= lr (g + m v) */
VECTOR_CLONES static void pass_nesterov(const struct pass *t, float m)
{
    const float *sum = t->sum, *old = t->old;
    float *new_ = t->new_, *v = t->a, scale = t->scale, lr = t->lr, wd = t->wd;
    size_t n = t->n;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float g = sum[i] * scale + wd * old[i];
        float vi = m * v[i] + g;
        v[i] = vi;
        new_[i] = old[i] - lr * (g + m * vi);
    }
}

/* s += g^2; p -= lr g / (sqrt(s) + eps) */
VECTOR_CLONES static void pass_adagrad(const struct pass *t, float eps)
{
    const float *sum = t->sum, *old = t->old;
    float *new_ = t->new_, *s = t->a, scale = t->scale, lr = t->lr, wd = t->wd;
    size_t n = t->n;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float g = sum[i] * scale + wd * old[i];
        float si = s[i] + g * g;
        s[i] = si;
        new_[i] = old[i] - lr * (g / (sqrtf(si) + eps));
    }
}

/* s = d s + (1 - d) g^2; p -= lr g / (sqrt(s) + eps) */
VECTOR_CLONES static void pass_rmsprop(const struct pass *t, float d, float eps)
{
    const float *sum = t->sum, *old = t->old;
    float *new_ = t->new_, *s = t->a, scale = t->scale, lr = t->lr, wd = t->wd;
    float rest = (float)(1.0 - (double)d);
    size_t n = t->n;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float g = sum[i] * scale + wd * old[i];
        float si = d * s[i] + rest * (g * g);
        s[i] = si;
        new_[i] = old[i] - lr * (g / (sqrtf(si) + eps));
    }
}

/* s as above; v = m v + g / (sqrt(s) + eps); p -= lr v */
VECTOR_CLONES static void pass_rmsprop_momentum(const struct pass *t, float d, float eps, float m)
{
    const float *sum = t->sum, *old = t->old;
    float *new_ = t->new_, *s = t->a, *v = t->b, scale = t->scale, lr = t->lr, wd = t->wd;
    float rest = (float)(1.0 - (double)d);
    size_t n = t->n;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float g = sum[i] * scale + wd * old[i];
        float si = d * s[i] + rest * (g * g);
        float vi = m * v[i] + g / (sqrtf(si) + eps);
        s[i] = si;
        v[i] = vi;
        new_[i] = old[i] - lr * vi;
    }
}

struct adam {
    float b1, b2, rest1, rest2; /* rest = 1 - b */
    float lr;                   /* lr / (1 - b1^step) */
    float root;                 /* 1 / sqrt(1 - b2^step) */
    float eps;
    float keep; /* adamw: 1 - lr wd, the share of p that decay leaves; adam: 1 */
};

/* m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
 * p = keep p - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps) */
VECTOR_CLONES static void pass_adam(const struct pass *t, const struct adam *adam)
{
    const float *sum = t->sum, *old = t->old;
    float *new_ = t->new_, *m = t->a, *v = t->b, scale = t->scale, wd = t->wd;
    const struct adam k = *adam;
    size_t n = t->n;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float g = sum[i] * scale + wd * old[i];
        float mi = k.b1 * m[i] + k.rest1 * g;
        float vi = k.b2 * v[i] + k.rest2 * (g * g);
        m[i] = mi;
        v[i] = vi;
        new_[i] = k.keep * old[i] - k.lr * (mi / (sqrtf(vi) * k.root + k.eps));
    }
}

static double power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

static struct adam adam_scalars(const struct optim_config *cfg, uint64_t step)
{
    double lr = (double)optim_rate(cfg, step);
    double decay = cfg->kind == OPTIM_ADAMW ? (double)cfg->weight_decay : 0.0;
    return (struct adam){
        .b1 = cfg->beta1,
        .b2 = cfg->beta2,
        .rest1 = (float)(1.0 - (double)cfg->beta1),
        .rest2 = (float)(1.0 - (double)cfg->beta2),
        .lr = (float)(lr / (1.0 - power((double)cfg->beta1, step))),
        .root = (float)(1.0 / sqrt(1.0 - power((double)cfg->beta2, step))),
        .eps = cfg->epsilon,
        .keep = (float)(1.0 - lr * decay),
    };
}

void optim_apply(const struct optim_config *cfg, uint64_t step, size_t n, const float *sum,
                 float scale, const float *old, float *slots, float *new_)
{
    int n_slots = optim_n_slots(cfg);
    struct pass t = {
        .n = n,
        .sum = sum,
        .old = old,
        .a = n_slots > 0 ? slots : NULL,
        .b = n_slots > 1 ? slots + n : NULL,
        .new_ = new_,
        .scale = scale,
        .lr = optim_rate(cfg, step),
        .wd = cfg->kind == OPTIM_ADAMW ? 0.0f : cfg->weight_decay,
    };
    struct adam adam;
    switch (cfg->kind) {
    case OPTIM_MOMENTUM:
        pass_momentum(&t, cfg->momentum);
        break;
    case OPTIM_NESTEROV:
        pass_nesterov(&t, cfg->momentum);
        break;
    case OPTIM_ADAGRAD:
        pass_adagrad(&t, cfg->epsilon);
        break;
    case OPTIM_RMSPROP:
        if (n_slots > 1)
            pass_rmsprop_momentum(&t, cfg->decay, cfg->epsilon, cfg->momentum);
        else
            pass_rmsprop(&t, cfg->decay, cfg->epsilon);
        break;
    case OPTIM_ADAM:
    case OPTIM_ADAMW:
        adam = adam_scalars(cfg, step);
        pass_adam(&t, &adam);
        break;
    default:
        pass_sgd(&t);
        break;
    }
}

VECTOR_CLONES static void pass_average(const struct pass *t, float keep, float rest)
{
    const float *sum = t->sum, *old = t->old;
    float *new_ = t->new_, scale = t->scale;
    size_t n = t->n;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        new_[i] = keep * old[i] + rest * (sum[i] * scale);
}

void optim_average(float keep, size_t n, const float *sum, float scale, const float *old,
                   float *new_)
{
    struct pass t = {.n = n, .sum = sum, .old = old, .new_ = new_, .scale = scale};
    pass_average(&t, keep, (float)(1.0 - (double)keep));
}
