/* worker/train/train_config.h - the configuration of a trainer and its towers. Owns: nothing.
 * Threads: values. Errors: none. */
#ifndef WORKER_TRAIN_TRAIN_CONFIG_H
#define WORKER_TRAIN_TRAIN_CONFIG_H
#include "member/updates.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_log.h"
#include "worker/model/model.h"
#include "worker/place/tower_plan.h"
#include "worker/train/observer.h"
#include "worker/train/progress.h"
#include <stdbool.h>

/* Result of evaluating the parameters of a step on the validation data. */
struct trainer_evaluation {
    int64_t step;
    uint64_t generation; /* number of the servers' generation; 0: no servers */
    uint64_t ps0;        /* incarnation of the ps 0 that planned this generation */
    /* index of the part that this worker evaluates; number of parts of the set */
    int part, n_parts;
    int64_t n, right; /* samples of the part; number of those classified correctly */
    double loss;      /* sum over the part */
    int no_accuracy;  /* the samples have targets, so there is no accuracy */
    /* Returns 1 if training was stopped from outside. Its argument is the field ctx. */
    int (*is_stopped)(void *ctx);
    void *ctx;
};

struct trainer_config {
    const struct model *model; /* all borrowed while the trainer lives */
    const struct chunks *chunks;
    const struct dataset *train, *test; /* test: NULL: none */
    /* set that is evaluated every eval_every steps, in parts by all workers or as a whole by the
     * first; NULL: each worker evaluates the test set instead */
    const struct dataset *validation;
    struct updates *updates;
    /* threads for loops over parameters if the towers' backend has no threads for them */
    struct thread_pool *threads;
    /* flat block, updated by the exchange, or by the trainer if a device trains without copies to
     * the host */
    float *params;
    /* flat block that receives the averages of params (optim_config.ema_decay) for evaluations, and
     * at the end; NULL: there are none, and params are evaluated */
    float *averages;
    /* async, ssp, backup workers: each chunk advances independently; steps are local */
    bool own_pace;
    /* [n_towers]; the batch is divided among them in their order. The device of the first tower
     * evaluates the test set */
    const struct tower_spec *towers;
    int n_towers;
    int batch;             /* samples of a worker's step */
    int local_steps;       /* steps of the worker per step of the servers; 0: one */
    enum dtype push_dtype; /* format of contributions on the wire */
    int64_t train_steps;   /* global steps (of the workers), unless net_start names them */
    int64_t eval_every;    /* steps; 0: only at the end */
    int64_t log_every;
    enum progress_style progress;
    struct figures *figures; /* receive figures of each step; NULL: none */
    uint64_t seed;
    struct job_augment augment; /* changes of training samples, which the seed determines */
    bool params_on_host;    /* parameters are updated on the host, although a device could do it */
    const uint8_t *rounded; /* [n_layers] as in the backend's plan; NULL: by its own rule */
    float clip_norm;        /* limit of the norm of all gradients of a step; 0: no limit here */
    /* true: a contribution that is not finite counts with weight 0; false: it ends the run */
    bool skip_nonfinite;
    int64_t max_nonfinite;                   /* largest number of skipped contributions */
    struct sample_log *sample_log;           /* NULL: none */
    const struct trainer_observer *observer; /* NULL: none */
    bool cuda_graphs; /* if a device trains without copies to the host, each step is one CUDA
                       * graph */
    /* Called by one tower before it computes `step`, when the updates have reached that step. Any
     * status but ST_OK ends training. NULL: none. */
    enum status (*at_step)(void *ctx, int64_t step);
    void *at_step_ctx;
    /* Called for each evaluation on the validation data, before at_step. If this worker evaluated a
     * part, the callback sets *e to the result of all parts; n 0: unknown. A worker alone sets
     * *ends to 1 to end training before this step. NULL: none. */
    enum status (*validated)(void *ctx, struct trainer_evaluation *e, int *ends);
    void *validated_ctx;
    int push_delay_ms;       /* fault injection: each push waits a random time up to this */
    int64_t fault_nonfinite; /* fault injection: steps between NaN gradients; 0: no faults */
};

#endif
