/* worker/results/validation.h - handles the evaluations on the validation data. If there are
 * servers, ps 0 receives them and decides (ps/coordinator/evaluation.c). Alone: the checkpoint of
 * the best one is kept, and training ends when there was no better one for long. Both follow from
 * the best evaluation and the current step, so a worker that was killed continues with them. An
 * evaluation whose checkpoint could not be written is ignored.
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
    double loss, accuracy; /* loss: finite */
};

struct validation {
    struct alone_writer *saver; /* borrowed; NULL: none */
    const char *ps0;            /* borrowed; NULL: evaluations are not reported */
    _Atomic int64_t waits_ns;   /* time since which ps 0 makes this worker wait; 0: it does not */
    bool is_last;               /* training is over: the wait for ps 0 is limited */
    struct job_validation data;
    int64_t train_steps; /* steps of the job: the evaluation at the last one ends nothing */
    int64_t local_steps; /* steps of this worker per step of the servers; at least 1 */
    int64_t eval_every;  /* a multiple of local_steps */
    /* number of evaluations without a better one that ends training; 0: never */
    int64_t early_stopping;
    int known; /* there was an evaluation; then all fields below are set */
    int64_t step;
    double loss, accuracy; /* results of the last evaluation */
    struct validation_best best;
    /* the best one before, until the new one's checkpoint is on the disk */
    struct validation_best before;
    int unsettled; /* the best one's checkpoint may not be on the disk yet */
    int stopped_early;
};

/* Reads the best evaluation on the same data from the saver's folder. ST_IO: it cannot be read now
 * (logged). */
enum status validation_resume(struct validation *v);
/* Handles an evaluation; ctx: the validation. *ends: set to 1 if training ends here. */
enum status validation_note(void *ctx, struct trainer_evaluation *e, int *ends);
/* Reports the evaluation to ps 0, and waits until that allows to continue: it may need the
 * parameters of this step, and for the first part all others. *e becomes the result of all parts,
 * as far as known. ST_OK also if the report fails (logged). */
enum status validation_report(struct validation *v, struct trainer_evaluation *e);
/* Waits for the checkpoint in progress; then `best` is the one on the disk, if there is a saver. */
void validation_settle(struct validation *v);

#endif
