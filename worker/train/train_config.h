/* worker/train/train_config.h - what a trainer and its towers are made of.
 * Owns: nothing. Threads: values. Errors: none. */
#ifndef WORKER_TRAIN_TRAIN_CONFIG_H
#define WORKER_TRAIN_TRAIN_CONFIG_H
#include "member/updates.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_log.h"
#include "worker/model/model.h"
#include "worker/place/tower_plan.h"
#include "worker/train/observer.h"
#include "worker/train/progress.h"

/* What the parameters of a step come to on the validation data. */
struct trainer_evaluation {
    int64_t step;
    uint64_t generation; /* of the servers; 0: there are none */
    uint64_t ps0;        /* who made its plan */
    int part, n_parts;   /* of the whole set, one for each worker that has any: which this is */
    int64_t n, right;    /* samples of the part; of these, classified right */
    double loss;         /* sum over them */
    int no_accuracy;     /* they have targets, of which none is right or wrong */
    /* Has training been ended from outside? ctx: the next. */
    int (*is_stopped)(void *ctx);
    void *ctx;
};

struct trainer_config {
    const struct model *model; /* all borrowed while the trainer lives */
    const struct chunks *chunks;
    const struct dataset *train, *test; /* test: NULL: none */
    const struct dataset *validation; /* what the first of the workers that there are looks at every
                                         eval_every steps, instead of all at the test set; NULL */
    struct updates *updates;
    struct thread_pool *threads; /* for loops over parameters where the towers' backend has none */
    float *params; /* flat block, kept up to date by the exchange, or by the trainer where training
                      stays on a device */
    int own_pace; /* async, ssp, backup workers: each chunk goes at its own pace; steps are local */
    const struct tower_spec *towers; /* [n_towers] which share the batch among them in their order;
                                        the test set is evaluated where the first one computes */
    int n_towers;
    int batch;             /* samples of one worker's step */
    int local_steps;       /* of which so many make one step of the servers; 0: each does */
    enum dtype push_dtype; /* of the contributions on the wire */
    int64_t train_steps;   /* global steps (of the workers), where the start names none */
    int64_t eval_every;    /* steps; 0: only at the end */
    int64_t log_every;
    enum progress_style progress;
    struct figures *figures; /* of each step; NULL: none are taken */
    uint64_t seed;
    struct job_augment augment; /* of training samples, by the seed */
    int params_on_host;         /* they are updated there, though a device could */
    const uint8_t *rounded;     /* [n_layers] as the backend's plan has it; NULL: by its own rule */
    float clip_norm;    /* of all gradients of a step together, at most; 0: as they are, here */
    int skip_nonfinite; /* 1: a contribution that is not finite counts with weight 0, else it ends
                           the run; */
    int64_t max_nonfinite;                   /* of so many at most */
    struct sample_log *sample_log;           /* NULL: none */
    const struct trainer_observer *observer; /* NULL: nobody looks */
    int cuda_graphs; /* 1: where training stays on a device, each step is one graph */
    /* Asked by one tower before it computes `step`, while the updates stand at it; any status but
     * ST_OK ends training. NULL: nobody is. */
    enum status (*at_step)(void *ctx, int64_t step);
    void *at_step_ctx;
    /* Told of each evaluation on the validation data, before at_step; of a part, it makes it that
     * of the whole, with n 0 where that is not known. *ends: set to 1: training ends before this
     * step; for a worker alone. NULL: nobody is. */
    enum status (*validated)(void *ctx, struct trainer_evaluation *e, int *ends);
    void *validated_ctx;
    int push_delay_ms;       /* fault injection: each push waits a random 0..this */
    int64_t fault_nonfinite; /* likewise: every so many steps a gradient is NaN; 0: never */
};

#endif
