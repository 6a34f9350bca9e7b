/* worker/train/train_config.h - the configuration of a trainer and its towers. Owns: nothing.
 * Threads: plain values without a lock. Errors: none. */
#ifndef WORKER_TRAIN_TRAIN_CONFIG_H
#define WORKER_TRAIN_TRAIN_CONFIG_H
#include "member/updates.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_log.h"
#include "worker/model/model.h"
#include "worker/place/tower_plan.h"
#include "worker/train/observer.h"
#include "worker/train/progress.h"
#include "worker/train/table_reader.h"
#include <stdbool.h>

/* Result of evaluating the parameters of a step on the validation data. */
struct trainer_evaluation {
    int64_t step;
    uint64_t generation; /* number of the servers' generation; 0: no servers */
    uint64_t ps0;        /* incarnation of the ps 0 that planned this generation */
    /* index of the part that this worker evaluates, and number of parts of the set */
    int part, n_parts;
    /* n: samples of the part; right: samples of the part that are classified correctly */
    int64_t n, right;
    double loss;     /* sum of the losses of the part's samples */
    int no_accuracy; /* true: the samples have targets, so there is no accuracy */
    /* Returns 1 if training was stopped from outside. Its argument is the field ctx. */
    int (*is_stopped)(void *ctx);
    void *ctx;
};

struct trainer_config {
    const struct model *model; /* all pointers below are borrowed while the trainer exists */
    const struct chunks *chunks;
    const struct dataset *train, *test; /* training set and test set; `test` may be NULL */
    /* validation set, evaluated every eval_every steps: each worker evaluates a part, or the first
     * worker the whole set; NULL: each worker evaluates the test set instead */
    const struct dataset *validation;
    struct updates *updates;
    /* inference without `updates`: reader of the rows of the model's tables; NULL: none */
    const struct table_reader *reader;
    /* optimizer of the servers; NULL: no servers, or the trainer never updates ahead of them */
    const struct optim_config *server_optim;
    /* threads for loops over parameters, if the towers' backend has no threads for them */
    struct thread_pool *threads;
    /* flat block, updated by the exchange, or by the trainer if a device trains without copying to
     * the host after each step */
    float *params;
    /* flat block for the averages of params (optim_config.ema_decay), which is filled before each
     * evaluation and at the end; NULL: there are no averages, and params are evaluated */
    float *averages;
    /* true in async, ssp and with backup workers: each chunk advances independently, and steps are
     * those of this worker */
    bool own_pace;
    /* [n_towers] towers, among which the batch is divided in their order. The first tower's device
     * also evaluates the test set */
    const struct tower_spec *towers;
    int n_towers;
    int batch;             /* number of samples in a step of this worker */
    int local_steps;       /* steps of this worker for each step of the servers; 0: one */
    enum dtype push_dtype; /* format of contributions on the wire */
    int64_t train_steps; /* number of global steps (of all workers), unless net_start contains it */
    int64_t eval_every;  /* steps between evaluations; 0: only at the end */
    int64_t log_every;
    enum progress_style progress;
    struct figures *figures; /* object that receives the figures of each step; NULL: none */
    uint64_t seed;
    struct job_augment augment; /* random changes to training samples, which depend on the seed */
    /* true: parameters are updated on the host, although a device could update them */
    bool params_on_host;
    bool params_move; /* a start of `updates` may replace the pages of params */
    /* [n_layers] layers that multiply in bf16, as in the backend's plan; NULL: the backend
     * decides */
    const uint8_t *rounded;
    /* limit on the norm of all gradients of a step; 0: the trainer does not clip */
    float clip_norm;
    /* true: a contribution that is not finite counts with weight 0; false: it ends the run */
    bool skip_nonfinite;
    int64_t max_nonfinite;         /* highest number of contributions that may be skipped */
    struct sample_log *sample_log; /* NULL: none */
    const struct trainer_observer *observer; /* NULL: none */
    /* if a device trains without copying to the host after each step, it runs each step as one CUDA
     * graph */
    bool cuda_graphs;
    /* Called by one tower before it computes `step`, when the updates have reached that step. A
     * status other than ST_OK ends training. May be NULL. */
    enum status (*at_step)(void *ctx, int64_t step);
    void *at_step_ctx;
    /* Called for each evaluation on the validation data, before at_step. If this worker evaluated a
     * part, the callback sets *e to the result of all parts; n 0: the result is unknown. A worker
     * without servers sets *ends to 1 to end training before this step. May be NULL. */
    enum status (*validated)(void *ctx, struct trainer_evaluation *e, int *ends);
    void *validated_ctx;
    int push_delay_ms; /* fault injection: highest random delay of each push */
    /* fault injection: number of steps between two NaN gradients; 0: no faults */
    int64_t fault_nonfinite;
};

#endif
