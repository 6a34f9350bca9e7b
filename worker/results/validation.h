/* worker/results/validation.h - handles the evaluations on the validation data. If there are
 * servers, ps 0 receives them and decides (ps/coordinator/evaluation.c). A worker without servers
 * keeps the checkpoint of the best evaluation, and ends training after early_stopping evaluations
 * without a better one. Both decisions depend only on the best evaluation and the current step, so
 * a worker that was killed and restarted decides in the same way. An evaluation whose checkpoint
 * could not be written is ignored.
 * Owns:    nothing.
 * Threads: one at a time.
 * Errors:  the saver's. */
#ifndef WORKER_RESULTS_VALIDATION_H
#define WORKER_RESULTS_VALIDATION_H
#include "worker/checkpoint/alone_writer.h"
#include "worker/train/train_config.h"

struct validation_best {
    int known;
    int64_t step;
    double loss, accuracy; /* results of the best evaluation; loss is finite */
};

struct validation {
    struct alone_writer *saver; /* borrowed; NULL: none */
    const char *ps0;            /* borrowed; NULL: evaluations are not reported */
    _Atomic int64_t waits_ns; /* start of the current wait for ps 0; 0: this worker does not wait */
    bool is_last;             /* training has ended: the wait for ps 0 has a timeout */
    struct job_validation data;
    int64_t train_steps; /* steps of the job; early stopping is not applied at the last step */
    int64_t local_steps; /* steps of this worker per step of the servers; at least 1 */
    int64_t eval_every;  /* steps between evaluations; a multiple of local_steps */
    /* number of evaluations without a better one after which training ends; 0: never */
    int64_t early_stopping;
    int known; /* true: there was an evaluation, which has set the fields below */
    int64_t step;
    double loss, accuracy; /* results of the last evaluation */
    struct validation_best best;
    /* previous best evaluation, valid again if the checkpoint of `best` cannot be written */
    struct validation_best before;
    int unsettled; /* the checkpoint of `best` may not be on the disk yet */
    int stopped_early;
};

/* Reads the best evaluation from the saver's folder, if it was on the same validation data. ST_IO:
 * it cannot be read now (logged). */
enum status validation_resume(struct validation *v);
/* Handles an evaluation; ctx: the validation. *ends: becomes 1 if training ends at this step. */
enum status validation_note(void *ctx, struct trainer_evaluation *e, int *ends);
/* Reports the evaluation to ps 0, and waits until ps 0 allows this worker to continue: ps 0 may
 * need the parameters of this step for a checkpoint, and the worker that evaluates the first part
 * waits until all other parts were reported. *e receives the result of all parts, if it is known.
 * Returns ST_OK even if the report fails (logged). */
enum status validation_report(struct validation *v, struct trainer_evaluation *e);
/* Waits until the checkpoint of `best` is written. If that failed, the previous best evaluation
 * becomes `best` again. */
void validation_settle(struct validation *v);

#endif
