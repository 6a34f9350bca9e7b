/* kernels/vector/optim_rows.h - optimizers for the rows of a sparse table. Only rows that have a
 * gradient in a step are updated; a caller updates one row per call. sgd, momentum, adagrad and
 * adam are the loops of optim.h over the row, rowwise_adagrad and ftrl have loops of their own. No
 * call allocates memory. Equal input yields equal bits with every instruction set. Threads: any.
 * Errors: ST_INVALID for a bad config, logged with the field. */
#ifndef KERNELS_VECTOR_OPTIM_ROWS_H
#define KERNELS_VECTOR_OPTIM_ROWS_H
#include "kernels/vector/optim.h"

enum optim_rows_kind {
    OPTIM_ROWS_SGD,
    OPTIM_ROWS_MOMENTUM, /* v = m v + g; p -= lr v */
    OPTIM_ROWS_ADAGRAD,
    OPTIM_ROWS_ROWWISE_ADAGRAD, /* s += mean of g^2; p -= lr g / (sqrt(s) + eps); s is one number */
    /* torch.optim.SparseAdam: its step number is the number of the version that the update makes,
     * and epsilon is added to the root before the correction of the bias */
    OPTIM_ROWS_ADAM,
    /* FTRL-Proximal of McMahan et al. 2013; its values should begin with zeros, and its learning
     * rate is constant */
    OPTIM_ROWS_FTRL,
    OPTIM_ROWS_N_KINDS
};
/* order of the enum */
#define OPTIM_ROWS_NAMES "sgd|momentum|adagrad|rowwise_adagrad|adam|ftrl"

enum { OPTIM_ROWS_MAX_DIM = 1024 };

struct optim_rows_config {
    enum optim_rows_kind kind;
    /* learning rate (ftrl: alpha) and its schedule, momentum, betas, epsilon, clip_value; the kind
     * is that of the loop, and weight_decay, ema_decay and clip_norm must be 0 */
    struct optim_config common;
    float ftrl_beta; /* 0 or above; default 1 */
    float l1, l2;    /* ftrl: 0 or above; default 0 */
};

const char *optim_rows_name(enum optim_rows_kind kind);
/* Fills *cfg with the defaults of `kind`; the learning rate is 0.01, of adam 0.001. */
void optim_rows_defaults(enum optim_rows_kind kind, struct optim_rows_config *cfg);
/* Checks the settings. of: beginning of the log line, as "table 'ads'". */
enum status optim_rows_check(const struct optim_rows_config *cfg, const char *of);
/* Returns the number of floats of a row besides its values. They are zero when the row is made. */
size_t optim_rows_slots(enum optim_rows_kind kind, size_t dim);

struct optim_rows_step { /* scalars of one update, for optim_rows_run only */
    enum optim_rows_kind kind;
    struct optim_step common;
    float beta, l1, l2;
};
/* Fills *out for the update that makes version `version`, from 1. The learning rate is multiplied
 * by `factor`, which must be 1 for ftrl. */
void optim_rows_begin(const struct optim_rows_config *cfg, uint64_t version, float factor,
                      struct optim_rows_step *out);
/* Updates one row of run->n elements, at most OPTIM_ROWS_MAX_DIM. The gradient is that of
 * struct optim_run, limited by clip_value. `slots` has the floats of the row (optim_rows_slots),
 * and slot_stride is n. new_ may be old, and new_slots may be slots. */
void optim_rows_run(const struct optim_rows_step *step, const struct optim_run *run);

#endif
