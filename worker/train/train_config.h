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

/* Result of the parameters of a step on the validation data. */
struct trainer_evaluation {
    int64_t step;
    uint64_t generation; /* number of the servers' generation; 0: no servers */
    uint64_t ps0;        /* incarnation of the ps 0 that planned this generation */
    /* index and number of the parts of the set, one for each worker that evaluates */
    int part, n_parts;
    int64_t n, right; /* samples of the part; number of those classified correctly */
    double loss;      /* sum over the part */
    int no_accuracy;  /* the samples have targets, so there is no accuracy */
    /* Returns 1 if training was stopped from outside; ctx: the field below. */
    int (*is_stopped)(void *ctx);
    void *ctx;
};

struct trainer_config {
    const struct model *model; /* all borrowed while the trainer lives */
    const struct chunks *chunks;
    const struct dataset *train, *test; /* test: NULL: none */
    /* set that the first of the present workers evaluates every eval_every steps; NULL: all workers
     * evaluate the test set then */
    const struct dataset *validation;
    struct updates *updates;
    /* threads for loops over parameters if the towers' backend has none for them */
    struct thread_pool *threads;
    /* flat block, updated by the exchange, or by the trainer if a device trains without copies to
     * the host */
    float *params;
    /* async, ssp, backup workers: each chunk advances independently; steps are local */
    bool own_pace;
    /* [n_towers] which share the batch in their order; the first one's device evaluates the test
     * set */
    const struct tower_spec *towers;
    int n_towers;
    int batch;             /* samples of a worker's step */
    int local_steps;       /* steps of the worker per step of the servers; 0: one */
    enum dtype push_dtype; /* format of contributions on the wire */
    int64_t train_steps;   /* global steps (of the workers), if the start does not name them */
    int64_t eval_every;    /* steps; 0: only at the end */
    int64_t log_every;
    enum progress_style progress;
    struct figures *figures; /* receive figures of each step; NULL: none */
    uint64_t seed;
    struct job_augment augment; /* changes of training samples, drawn by the seed */
    bool params_on_host;    /* parameters are updated on the host, although a device could do it */
    const uint8_t *rounded; /* [n_layers] as in the backend's plan; NULL: by its own rule */
    float clip_norm;        /* limit of the norm of all gradients of a step; 0: no limit here */
    /* a contribution that is not finite counts with weight 0; otherwise it ends the run */
    bool skip_nonfinite;
    int64_t max_nonfinite;                   /* limit on the number of such contributions */
    struct sample_log *sample_log;           /* NULL: none */
    const struct trainer_observer *observer; /* NULL: none */
    bool cuda_graphs; /* if a device trains without copies to the host, each step is one CUDA
                       * graph */
    /* Called by one tower before it computes `step`, while the updates are at that step; any status
     * but ST_OK ends training. NULL: none. */
    enum status (*at_step)(void *ctx, int64_t step);
    void *at_step_ctx;
    /* Called for each evaluation on the validation data, before at_step. For a part, it sets *e to
     * the result of the whole, with n 0 if unknown. *ends: set to 1 to end training before this
     * step, for a worker alone. NULL: none. */
    enum status (*validated)(void *ctx, struct trainer_evaluation *e, int *ends);
    void *validated_ctx;
    int push_delay_ms;       /* fault injection: each push waits a random 0..this */
    int64_t fault_nonfinite; /* fault injection: a NaN gradient every so many steps; 0: never */
};

#endif
