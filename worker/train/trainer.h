/* worker/train/trainer.h - the training loop: towers compute, layers' gradients leave as their
 * backward ends, the next forward waits layer by layer for the new versions.
 * Owns:    towers (threads, plans, gradients).
 * Threads: run blocks; stop may be called from another thread.
 * Errors:  the exchange's and the backend's; ST_CANCELLED after stop. */
#ifndef WORKER_TRAIN_TRAINER_H
#define WORKER_TRAIN_TRAINER_H
#include "worker/train/train_config.h"

struct trainer_result {
    int64_t local_steps, global_step;
    int64_t images;         /* read by this worker */
    double elapsed_seconds; /* of training, without the final evaluation */
    double images_per_second;
    int64_t warm_up_images; /* first ones, on a card, that images_per_second leaves out */
    float loss;             /* of the last step */
    int64_t skipped;        /* contributions that were not finite and counted with weight 0 */
    int member;             /* this worker's index */
    int64_t train_steps;    /* where the job ends: the servers may have said so */
    int64_t asked_steps;    /* that the job was to take; 0: the servers have not said */
    int left;               /* 1: the job goes on without it, as it asked for (leave_soon) */
};

struct trainer;
enum status trainer_create(const struct trainer_config *cfg, struct trainer **out);
void trainer_destroy(struct trainer *t); /* NULL is fine */
/* Trains from `start` (as the exchange gave it) to the end. *out: also where it was stopped. */
enum status trainer_run(struct trainer *t, const struct net_start *start,
                        struct trainer_result *out);
/* Shows for whom training waits (progress_wait); any thread. */
void trainer_wait(struct trainer *t, const char *whom, int64_t ms);
/* Of the local kind of updates, training ends before the next step, with all parameters of one
 * step; any thread. */
void trainer_stop_soon(struct trainer *t);
void trainer_stop(struct trainer *t); /* any thread; the caller also cancels the exchange */
/* Evaluates the test set, if there is one, with the present parameters: the share of samples that
 * are classified right, the mean loss, and the AUC (NaN: not of two classes). Not during run. */
enum status trainer_evaluate(struct trainer *t, double *accuracy, double *loss, double *auc);
/* A parameter that is not finite, after run; NULL: all are. */
const struct net_param *trainer_bad_param(const struct trainer *t);
/* Likewise on the validation data, or this worker's part of them, and tells of it as at any other
 * step; without any: nothing. is_last: after run: if what all parts come to cannot be had, the
 * first worker evaluates all of them. */
enum status trainer_validate(struct trainer *t, int64_t step, int is_last);
size_t trainer_memory_bytes(const struct trainer *t); /* of all plans */

#endif
