/* worker/results/validation.h - what comes of the evaluations on the validation data. With servers,
 * ps 0 is told, and decides (ps/coordinator/evaluation.c). Alone: the best one, whose checkpoint is
 * kept, and whether training ends because there was none better for long. All of it follows from
 * the best one and the present step, so that a worker that was killed goes on with it; so one whose
 * checkpoint could not be written counts no more than if it had not been. Owns:    nothing.
 * Threads: one at a time. Errors: the saver's. */
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
    const char *ps0;            /* likewise; NULL: nobody is told */
    _Atomic int64_t waits_ns;   /* since when ps 0 has this worker wait; 0: it does not */
    int is_last;                /* training is over: ps 0 is not waited for without end */
    struct job_validation data;
    int64_t train_steps;    /* of the job: the evaluation there ends nothing */
    int64_t local_steps;    /* steps of this worker that are one of the servers; at least 1 */
    int64_t eval_every;     /* steps, a multiple of that */
    int64_t early_stopping; /* evaluations without a better one that end training; 0: none do */
    int known;              /* there was an evaluation; then all below are set */
    int64_t step;
    double loss, accuracy; /* the last one */
    struct validation_best best;
    struct validation_best before; /* that, until its checkpoint is on the disk */
    int unsettled;                 /* it may not be there yet */
    int stopped_early;
};

/* Takes what the saver's folder says of the best one so far, on the same data. ST_IO: that cannot
 * be read now (logged). */
enum status validation_resume(struct validation *v);
/* An evaluation; ctx: the validation. *ends: 1: training ends here. */
enum status validation_note(void *ctx, struct trainer_evaluation *e, int *ends);
/* Tells ps 0, and waits until it lets this worker go on: it may need the parameters of this step,
 * and for the first part all others. *e becomes what all parts come to, as far as is known. ST_OK
 * also where it cannot be told (logged). */
enum status validation_report(struct validation *v, struct trainer_evaluation *e);
/* Waits for what is being written; then `best` is what is on the disk, where there is a saver. */
void validation_settle(struct validation *v);

#endif
