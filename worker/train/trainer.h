/* worker/train/trainer.h - the training loop: towers compute. Each layer's gradients are pushed
 * when the layer's backward ends. The next forward waits, before each layer, for that layer's new
 * version.
 * Owns:    towers (threads, plans, gradients). Threads: trainer_run blocks; trainer_stop may be
 *          called from another thread.
 * Errors:  the exchange's and the backend's; ST_CANCELLED after trainer_stop. */
#ifndef WORKER_TRAIN_TRAINER_H
#define WORKER_TRAIN_TRAINER_H
#include "worker/train/train_config.h"

struct trainer_result {
    int64_t local_steps, global_step;
    int64_t images;         /* number of samples read by this worker */
    double elapsed_seconds; /* duration of training, without the final evaluation */
    double waited_seconds;  /* part of it that does not count for images_per_second */
    double images_per_second;
    /* number of images at the start that do not count for images_per_second (GPU) */
    int64_t warm_up_images;
    float loss;          /* loss of the last step */
    int64_t skipped;     /* contributions that were not finite and counted with weight 0 */
    int member;          /* index of this worker */
    int64_t train_steps; /* number of the job's last step, which the servers may have set */
    /* steps that the job was configured for; 0: the servers did not report it */
    int64_t asked_steps;
    bool left; /* the worker left the job as requested (leave_soon), and the job continues */
};

struct trainer;
enum status trainer_create(const struct trainer_config *cfg, struct trainer **out);
void trainer_destroy(struct trainer *t); /* NULL is fine */
/* Joins the servers of a generation (`start` of cfg.updates), which may replace the pages of
 * params. */
enum status trainer_join(struct trainer *t, struct net_start *start);
/* Trains from `start`, which the exchange has returned, to the end. *out is set even if training
 * was stopped. */
enum status trainer_run(struct trainer *t, const struct net_start *start,
                        struct trainer_result *out);
/* Shows the name of the program that training waits for, see progress_wait. May be called from any
 * thread. */
void trainer_wait(struct trainer *t, const char *whom, int64_t ms);
/* Ends the training of a worker without servers before its next step, so that all parameters are of
 * one step. May be called from any thread. */
void trainer_stop_soon(struct trainer *t);
/* stops training, from any thread; the caller also cancels the exchange */
void trainer_stop(struct trainer *t);
/* Evaluates the test set, if there is one, after trainer_run has ended. Results: fraction of
 * samples that are classified correctly, mean loss, and AUC (NaN if there are not two classes). If
 * the servers, which have the rows of tables, begin another generation, joins it and begins
 * again. */
enum status trainer_evaluate(struct trainer *t, double *accuracy, double *loss, double *auc);
/* Returns a parameter that has a value that is not finite; NULL: all values are finite. May be
 * called after trainer_run. */
const struct net_param *trainer_bad_param(const struct trainer *t);
/* Evaluates the validation data, or this worker's part of them, after trainer_run has ended, and
 * reports the result as during training. If the result of all parts is not available, the first
 * worker evaluates all parts. Does nothing if there are no validation data. Begins again like
 * trainer_evaluate. */
enum status trainer_validate(struct trainer *t, int64_t step);
size_t trainer_memory_bytes(const struct trainer *t); /* returns the memory of all plans */

#endif
