/* kernels/vector/optim.h - the optimizers that servers (and a worker without servers) apply to one
 * chunk. One fused pass reads the gradient sum, the parameters and the slots, and writes the new
 * parameters and slots, in place or elsewhere. It allocates no memory and runs on any thread. Equal
 * input yields equal bits with every instruction set (no fused multiply-add, no reordering). The
 * formulas are those of PyTorch 2's torch.optim, or of TensorFlow 1 if PyTorch does not have the
 * optimizer. Each formula is in the comment above its loop. Errors: ST_INVALID for a bad config,
 * logged with the field. */
#ifndef KERNELS_VECTOR_OPTIM_H
#define KERNELS_VECTOR_OPTIM_H
#include "base/status.h"
#include "kernels/vector/optim_schedule.h"
#include <stdbool.h>
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
#define OPTIM_NAMES "sgd|momentum|nesterov|adagrad|rmsprop|adam|adamw" /* order of the enum */

enum { OPTIM_MAX_BOUNDARIES = 16 };

struct optim_config {
    enum optim_kind kind;
    float learning_rate; /* > 0 */
    float momentum; /* momentum of momentum, nesterov and rmsprop, 0..1; default 0.9 (rmsprop: 0) */
    float decay;    /* rmsprop: smoothing of g^2, default 0.99 */
    float beta1, beta2; /* adam: default 0.9 and 0.999 */
    float epsilon;      /* added outside the root; adam 1e-8, adagrad 1e-10, rmsprop 1e-8 */
    /* adamw: decoupled weight decay, default 0.01; other kinds: weight_decay * p is added to g,
     * default 0 */
    float weight_decay;
    /* limits each element of the mean gradient to -clip_value .. clip_value; 0: no limit */
    float clip_value;
    /* limits the norm of all gradients of a step; 0: no limit. The caller applies it (clip.h),
     * because only the caller has all gradients */
    float clip_norm;
    /* decay of the average of the parameters over the updates (EMA), below 1; 0: no average */
    float ema_decay;
    enum optim_schedule schedule; /* default constant */
    uint64_t warmup_steps;        /* 0: none */
    float lr_decay;               /* step, exponential: above 0, at most 1; default 0.1 */
    /* exponential: steps in which the rate decays by lr_decay; 0: it never decays */
    uint64_t lr_decay_steps;
    int n_boundaries;                        /* step */
    uint64_t boundary[OPTIM_MAX_BOUNDARIES]; /* steps of changes, ascending, above 0 */
    /* number of updates of the whole job; after these the rate does not change any more; 0:
     * unknown, so linear and cosine do not decay, and one_cycle neither rises nor decays */
    uint64_t total_steps;
};

const char *optim_name(enum optim_kind kind);
/* Fills *cfg with the defaults of `kind` (learning_rate 0.01 for sgd to nesterov, 0.001 for
 * adam*). */
void optim_defaults(enum optim_kind kind, struct optim_config *cfg);
/* Fills *cfg with the defaults of a server whose gradients are the changes of several local steps
 * (sgd to nesterov), for a model of n_params parameters. sgd averages the members' parameters. For
 * models of 10 million parameters and more, the defaults of the other kinds are those of Douillard
 * et al. 2023; for smaller models they are based on Weir's own measurements. */
void optim_outer_defaults(enum optim_kind kind, int64_t n_params, struct optim_config *cfg);
enum status optim_check(const struct optim_config *cfg);
/* Returns the learning rate that optim_apply uses for update `step`. */
float optim_rate(const struct optim_config *cfg, uint64_t step);
/* Returns the number of slots for each parameter element: 0 (sgd), 1 or 2, and one more, the last,
 * if there is an average of the parameters. The average begins with the initial values, not with
 * zeros. */
int optim_n_slots(const struct optim_config *cfg);

/* Sets new[i] to the update of old[i] with the gradient sum[i] * scale (scale = 1 / total weight).
 * slots: n_slots arrays of n elements, one after the other; zero before the first step. step:
 * number of the update, from 1 (for Adam's bias correction). new may be old. */
void optim_apply(const struct optim_config *cfg, uint64_t step, size_t n, const float *sum,
                 float scale, const float *old, float *slots, float *new_);

/* These functions update a chunk in runs of elements, so that a version can be computed run by run
 * while each run is in the cache. The result has the same bits as that of one optim_apply for the
 * whole chunk, whatever the lengths of the runs. */
struct optim_step { /* scalars of one update, for optim_run only */
    enum optim_kind kind;
    float rate;         /* learning rate; adam: divided by 1 - beta1^step */
    float added_decay;  /* weight_decay that is added to the gradient */
    float momentum;     /* momentum; rmsprop: may be 0 */
    float keep1, rest1; /* adam: beta1 and 1 - beta1 */
    float keep2, rest2; /* adam: beta2, 1 - beta2; rmsprop: decay, 1 - decay */
    float root;         /* adam: 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float clip;     /* limit of elements, by vector_clip before the update; 0: none */
    float keep;     /* adamw: 1 - rate weight_decay, the fraction of p that remains; adam: 1 */
    int ema_slot;   /* 1 + index of the slot with the average; 0: none */
    float ema_keep; /* fraction of the average that remains; 0 in the first update */
};
struct optim_run {
    size_t n;
    const void *sum; /* floats of any alignment. The gradient is (others + weight * sum) * scale */
    float weight, scale;
    const float *others; /* sum of other contributions; NULL: none; NULL for averages */
    const float *old;
    /* the elements of this run in the first slot; may be NULL if there are no slots */
    const float *slots;
    float *new_slots;   /* destination of the slot; may be slots */
    size_t slot_stride; /* distance from the first to the second slot in elements, in both arrays */
    float *new_;        /* may be old */
};
void optim_begin(const struct optim_config *cfg, uint64_t step, struct optim_step *out);
/* Fills *out for update `step`, with slots that were zero after update `since`, an earlier
 * update. */
void optim_begin_since(const struct optim_config *cfg, uint64_t step, uint64_t since,
                       struct optim_step *out);
/* Factors of a parameter: of its learning rate and of its weight decay. */
struct optim_factors {
    float rate, decay;
};
/* Returns true if a factor is finite and not negative. */
bool optim_factor_ok(float factor);
/* Fills *out like optim_begin_since, with the rate and the weight decay multiplied by their
 * factors. Factors of 1 do not change a bit. */
void optim_begin_scaled(const struct optim_config *cfg, uint64_t step, uint64_t since,
                        const struct optim_factors *factors, struct optim_step *out);
void optim_run(const struct optim_step *step, const struct optim_run *run);
/* Updates only the average of the parameters, with run->new_: e = d e + (1 - d) p, as PyTorch's
 * get_ema_multi_avg_fn. optim_run includes this; it is called separately only for a parameter that
 * the update does not change. */
void optim_run_ema(const struct optim_step *step, const struct optim_run *run);

/* Updates parameters that are statistics (batch norm's running mean and variance) by an exponential
 * average: new[i] = keep * old[i] + (1 - keep) * sum[i] * scale. If keep is 1, new has the bits of
 * old. */
void optim_average(float keep, size_t n, const float *sum, float scale, const float *old,
                   float *new_);

/* Computes the contribution of local steps that changed the parameters from base to now: base -
 * now. If keep >= 0, the parameters are an average, and the contribution is (now - keep * base) /
 * (1 - keep), from which optim_average computes now. out may be base or now. */
void optim_change(float keep, size_t n, const float *base, const float *now, float *out);

#ifdef __cplusplus
}
#endif
#endif
