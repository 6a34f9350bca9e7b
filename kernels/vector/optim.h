/* kernels/vector/optim.h - the optimizers that servers (and a worker alone) apply to one chunk.
 * One fused pass reads the gradient sum, the parameters and the slots, and writes the new
 * parameters and slots, in place or elsewhere: no other memory, any thread, bit-identical for
 * equal input whatever instructions the machine has (no fused multiply-add, no reordering).
 * Formulas are those of PyTorch 2's torch.optim (TensorFlow 1's where PyTorch has no such thing);
 * each stands above its loop.
 * Errors: ST_INVALID for a bad config, logged with the field. */
#ifndef KERNELS_VECTOR_OPTIM_H
#define KERNELS_VECTOR_OPTIM_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum optim_kind {
    OPTIM_SGD,
    OPTIM_MOMENTUM, /* v = m v + g; p -= lr v */
    OPTIM_NESTEROV, /* v = m v + g; p -= lr (g + m v) */
    OPTIM_ADAGRAD,
    OPTIM_RMSPROP,
    OPTIM_ADAM,
    OPTIM_ADAMW,
    OPTIM_N_KINDS
};
#define OPTIM_NAMES "sgd|momentum|nesterov|adagrad|rmsprop|adam|adamw" /* in the order above */

/* The learning rate of update `step` (from 1), with b = step - 1 updates before it, is
 * learning_rate times the following, and in warm-up (b < warmup_steps) times (b + 1) / warmup_steps
 * besides. part = (b - warmup_steps) / (total_steps - warmup_steps), 0 in warm-up. */
enum optim_schedule {
    SCHEDULE_CONSTANT,    /* 1 */
    SCHEDULE_LINEAR,      /* 1 - part */
    SCHEDULE_COSINE,      /* (1 + cos(pi part)) / 2 */
    SCHEDULE_STEP,        /* lr_decay, once for each boundary <= b */
    SCHEDULE_EXPONENTIAL, /* lr_decay ^ (b / lr_decay_steps) */
    SCHEDULE_N_KINDS
};
#define SCHEDULE_NAMES "constant|linear|cosine|step|exponential" /* in the order above */
enum { OPTIM_MAX_BOUNDARIES = 16 };

struct optim_config {
    enum optim_kind kind;
    float learning_rate; /* > 0 */
    float momentum;     /* momentum, nesterov, rmsprop's momentum; 0..1; default 0.9 (rmsprop: 0) */
    float decay;        /* rmsprop: smoothing of g^2, default 0.99 */
    float beta1, beta2; /* adam: 0.9, 0.999 */
    float epsilon;      /* added outside the root; adam 1e-8, adagrad 1e-10, rmsprop 1e-8 */
    float
        weight_decay; /* adamw: decoupled, default 0.01; others: added to g as wd * p, default 0 */
    float clip_value; /* each element of the mean gradient is kept within -it and it; 0: as it is */
    float clip_norm;  /* all gradients of a step are scaled down to this norm, for the caller, who
                         knows them all (clip.h); 0: as they are */
    enum optim_schedule schedule; /* default constant */
    uint64_t warmup_steps;        /* 0: none */
    float lr_decay;               /* step, exponential: above 0, at most 1; default 0.1 */
    uint64_t lr_decay_steps;      /* exponential; 0: never */
    int n_boundaries;             /* step */
    uint64_t boundary[OPTIM_MAX_BOUNDARIES]; /* ascending, above 0 */
    uint64_t total_steps; /* updates of the whole job; 0 and beyond the end: the last one's rate */
};

const char *optim_name(enum optim_kind kind);
const char *optim_schedule_name(enum optim_schedule schedule);
/* Fills *cfg with the defaults of `kind` (learning_rate 0.01 for sgd-like ones, 0.001 for adam*).
 */
void optim_defaults(enum optim_kind kind, struct optim_config *cfg);
/* Likewise of a server's whose gradients are what several steps changed (sgd to nesterov), for a
 * model of so many parameters: sgd averages; the others by Douillard et al. 2023 from 10 million
 * parameters on, below that by our own runs. */
void optim_outer_defaults(enum optim_kind kind, int64_t n_params, struct optim_config *cfg);
enum status optim_check(const struct optim_config *cfg);
/* The rate of one update; optim_apply uses it. */
float optim_rate(const struct optim_config *cfg, uint64_t step);
/* Slots per parameter element: 0 (sgd), 1 or 2. */
int optim_n_slots(const struct optim_config *cfg);

/* new[i] = update of old[i] with the gradient sum[i] * scale (scale = 1 / total weight).
 * slots: n_slots arrays of n, laid one after the other with a stride of n; zero before the first
 * step. step: 1 at the first update (Adam's bias correction). new may be old. */
void optim_apply(const struct optim_config *cfg, uint64_t step, size_t n, const float *sum,
                 float scale, const float *old, float *slots, float *new_);

/* The same for a chunk in runs of any lengths, so that a version can be made block by block while
 * it lies in cache; however it is cut, the bits are those of one optim_apply. */
struct optim_step { /* the scalars of one update, for optim_run alone */
    enum optim_kind kind;
    float rate;         /* adam: over 1 - beta1^step */
    float added_decay;  /* weight_decay that is added to the gradient */
    float momentum;     /* rmsprop: 0 for none */
    float keep1, rest1; /* adam: beta1 and 1 - beta1 */
    float keep2, rest2; /* adam: beta2, rmsprop: decay; and 1 less that */
    float root;         /* adam: 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float clip; /* for the caller, who gives a gradient that is clipped: vector_clip; 0: none */
    float keep; /* adamw: 1 - rate weight_decay, the share of p that decay leaves; adam: 1 */
};
struct optim_run {
    size_t n;
    const void *sum; /* floats of any alignment; the gradient is weight * sum * scale, */
    float weight, scale;
    const float *others; /* or (others + weight * sum) * scale; NULL: not that; not for averages */
    const float *old;
    const float *slots; /* this run's part of the first slot; NULL is fine if there are no slots */
    float *new_slots;   /* where it goes; may be slots */
    size_t slot_stride; /* its part of the second slot lies so many elements further, in both */
    float *new_;        /* may be old */
};
void optim_begin(const struct optim_config *cfg, uint64_t step, struct optim_step *out);
/* The same where the slots were zero after update `since`, below `step`. */
void optim_begin_since(const struct optim_config *cfg, uint64_t step, uint64_t since,
                       struct optim_step *out);
void optim_run(const struct optim_step *step, const struct optim_run *run);

/* For parameters that are statistics (batch norm's running mean and variance): an exponential
 * average, new[i] = keep * old[i] + (1 - keep) * sum[i] * scale; keep 1: old, bit for bit. */
void optim_average(float keep, size_t n, const float *sum, float scale, const float *old,
                   float *new_);

/* What several steps have made of base, now, as one contribution: base - now; of an average (keep,
 * >= 0; < 0: it is none) what has optim_average end at now: (now - keep * base) / (1 - keep). */
void optim_change(float keep, size_t n, const float *base, const float *now, float *out);

#ifdef __cplusplus
}
#endif
#endif
