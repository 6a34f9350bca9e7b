/* worker/validation.h - what comes of the evaluations on the validation data: the best one, whose
 * checkpoint is kept, and whether training ends because there was none better for long. All of it
 * follows from the best one and the present step, so that a worker that was killed goes on with it;
 * so one whose checkpoint could not be written counts no more than if it had not been.
 * Owns:    nothing. Threads: one at a time. Errors: the saver's. */
#ifndef WORKER_VALIDATION_H
#define WORKER_VALIDATION_H
#include "worker/checkpoint/alone_saver.h"

struct validation_best {
    int known;
    int64_t step;
    double loss, accuracy; /* loss: finite */
};

struct validation {
    struct alone_saver *saver; /* borrowed; NULL: none */
    struct job_validation data;
    int64_t eval_every;     /* steps */
    int64_t early_stopping; /* evaluations without a better one that end training; 0: none do */
    int known;              /* there was an evaluation; then all below are set */
    int64_t step;
    double loss, accuracy; /* the last one */
    struct validation_best best;
    struct validation_best before; /* that, until its checkpoint is on the disk */
    int unsettled;                 /* it may not be there yet */
    int stopped_early;
};

/* Takes what the saver's folder says of the best one so far, on the same data. */
void validation_resume(struct validation *v);
/* An evaluation of the parameters of `step`; ctx: the validation. *ends: 1: training ends here. */
enum status validation_note(void *ctx, int64_t step, double accuracy, double loss, int *ends);
/* Waits for what is being written; then `best` is what is on the disk, where there is a saver. */
void validation_settle(struct validation *v);

#endif
