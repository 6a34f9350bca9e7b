/* worker/trainer.h - the training loop: towers compute, layers' gradients leave as their backward
 * ends, the next forward waits layer by layer for the new versions.
 * Owns:    towers (threads, plans, gradients).
 * Threads: run blocks; stop may be called from another thread.
 * Errors:  the exchange's and the backend's; ST_CANCELLED after stop. */
#ifndef WORKER_TRAINER_H
#define WORKER_TRAINER_H
#include "worker/dataset.h"
#include "worker/exchange.h"
#include "worker/model.h"
#include "worker/progress.h"
#include "worker/record.h"
#include "worker/towers.h"

struct trainer_config {
    const struct model *model; /* all borrowed while the trainer lives */
    const struct chunks *chunks;
    const struct dataset *train, *test;
    struct exchange *exchange;
    float *params; /* flat block, kept up to date by the exchange, or by the trainer where training
                      stays on a device */
    int own_pace; /* async, ssp, backup workers: each chunk goes at its own pace; steps are local */
    const struct tower_spec *towers; /* [n_towers] which share the batch among them in their order;
                                        the test set is evaluated where the first one computes */
    int n_towers;
    int batch;                /* samples of one worker's step */
    enum dtype push_dtype;    /* of the contributions on the wire, */
    enum dtype version_dtype; /* and of the versions */
    int64_t train_steps;      /* global steps, where the start names none */
    int64_t eval_every;       /* steps; 0: only at the end */
    int64_t log_every;
    enum progress_style progress;
    uint64_t seed;
    struct record *record; /* NULL: none */
    int cuda_graphs;       /* 1: where training stays on a device, each step is one graph */
    int push_delay_ms;     /* fault injection: each push waits a random 0..this */
};

struct trainer_result {
    int64_t local_steps, global_step;
    int64_t images;         /* read by this worker */
    double elapsed_seconds; /* of training, without the final evaluation */
    float loss;             /* of the last step */
    int member;             /* this worker's index */
    int left;               /* 1: the job goes on without it, as it asked for (leave_soon) */
};

struct trainer;
enum status trainer_create(const struct trainer_config *cfg, struct trainer **out);
void trainer_destroy(struct trainer *t); /* NULL is fine */
/* Trains from `start` (as the exchange gave it) to the end. */
enum status trainer_run(struct trainer *t, const struct net_start *start,
                        struct trainer_result *out);
void trainer_stop(struct trainer *t); /* any thread; the caller also cancels the exchange */
/* Share of the test set classified right with the present parameters. Not during run. */
enum status trainer_evaluate(struct trainer *t, double *accuracy, double *loss);
size_t trainer_memory_bytes(const struct trainer *t); /* of all plans */

#endif
