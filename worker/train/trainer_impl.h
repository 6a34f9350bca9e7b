/* worker/train/trainer_impl.h - the trainer, shared by its files. Private to them.
 *
 *   trainer.c        creation, a run from its start to its end, the test set
 *   trainer_state.c  whether the towers stop, and which steps are invalid
 *   trainer_step.c   a tower's steps
 *   trainer_push.c   what all towers of a step contribute, handed out
 *   trainer_finite.c whether it is finite, and what becomes of it if not
 *   trainer_observe.c what an observer is told
 *
 * DESIGN. Each tower is a thread that takes the same steps. Before a layer's forward it waits until
 * all towers' gradients of that layer's last step have been handed out and the new version is in
 * params. After a layer's backward it arrives at that layer; the last tower to arrive adds the
 * contributions in their order, whoever came last, and pushes the layer's chunks. A contribution is
 * one block of gradients on the host, with its weight in the sum: a tower's, or the sum of all
 * towers of a group (device_group.h), which is weighted already. The only one may be rounded to the
 * wire's dtype already, too; then it is handed out as it is. A layer's gradients and parameters are
 * touched again only after the exchange's answer, so one copy of each suffices and nothing else is
 * locked. When the servers' generation ends, a wait says so: the step whose parameters are not to
 * be had is invalid, and with it all later ones: nothing of them is handed out. What is to be
 * handed out of the steps before still is, for it may count. Towers of a group, which wait for each
 * other in the middle of a step, first end the newest step that any has begun, with what they have.
 * Then all begin again at the step that the servers give, and at this worker's place among the
 * others. */
#ifndef WORKER_TRAIN_TRAINER_IMPL_H
#define WORKER_TRAIN_TRAINER_IMPL_H
#include "worker/train/tower.h"
#include "worker/train/trainer.h"
#include <pthread.h>
#include <stdatomic.h>

enum { TRAINER_WHAT_BYTES = 400 };

struct step_share {
    float loss;
    int n_correct;
    uint64_t position; /* of its first sample, in the order of all passes */
};

struct contribution {
    const struct tower *tower; /* in whose gradients it lies */
    float weight;
};

struct trainer {
    struct trainer_config cfg;
    struct tower **towers;
    struct device_group *group;         /* NULL: none */
    struct contribution *contributions; /* the first one's block becomes the sum */
    int n_contributions;
    int follows;      /* the job has said, or not, what is rounded: */
    uint8_t *rounded; /* this; NULL: by the backend's rule */
    struct crew crew; /* for what is done with these */
    struct tower *eval;
    struct trainer_config validation_cfg; /* cfg, whose test set is the validation data */
    struct tower *validate;               /* NULL: there are none */
    _Atomic int ended;                    /* by `validated` */
    struct device_data *data;
    pthread_mutex_t progress_lock; /* guards the next against trainer_wait of another thread */
    struct progress *progress;
    int64_t first_step; /* global and local step that run starts from */
    uint64_t generation, ps0;
    int64_t start_ns;
    int64_t n_evaluated; /* the last step that was, or need not be, in units of eval_every */
    int64_t observed_step, observed_global_step; /* whose values are looked at; -1: none */
    _Atomic int64_t wait_ns;                     /* that the first tower waited for parameters */
    _Atomic int stopped, stops_soon;
    _Atomic int failed; /* enum status of the first tower that failed */

    int lowest; /* the first layer with parameters: nobody passes it before all were there */

    pthread_mutex_t lock; /* guards the six below */
    pthread_cond_t handed_out;
    int64_t newest_step;  /* that a tower has begun */
    int64_t last_step;    /* the generation has ended: the towers' last one; else INT64_MAX */
    int64_t invalid_from; /* the first step without its parameters; else INT64_MAX */
    int *arrived;         /* [n_layers] towers whose backward of the step is done */
    int64_t *pushed;      /* [n_layers] steps whose gradients were handed out */

    struct step_share (*share)[2]; /* [n_towers][step & 1] */
    struct trainer_result result;  /* written by the last tower of a step, read after run */
    int64_t steps_before;          /* local ones, in generations before */
    int skipping; /* a layer of the step under way was not finite; of whoever hands one out */
    char skipped_for[TRAINER_WHAT_BYTES]; /* which, and why */
};

/* trainer_state.c */

/* By trainer_stop, or because a tower failed. */
int trainer_state_is_stopped(struct trainer *t);
/* All towers end; the first status is the run's. */
void trainer_state_fail(struct trainer *t, enum status st);
/* Towers take no further step before the next start. */
int trainer_state_generation_ended(struct trainer *t);
/* Its parameters are not to be had: nothing of it counts. */
int trainer_state_is_invalid(struct trainer *t, int64_t step);
/* Whether a tower need not end the step: nobody waits for it in its middle. */
int trainer_state_may_skip(struct trainer *t, int64_t step);
/* Takes ST_REBASED off an exchange's answer; `invalid`: the step that it makes invalid, or
 * INT64_MAX. */
enum status trainer_state_note_rebased(struct trainer *t, enum status st, int64_t invalid);
/* 0: the tower has taken its last step before all begin again. */
int trainer_state_begin_step(struct trainer *t, int64_t step);

/* trainer_step.c: a tower's steps from t->first_step on, until none is left to be done. */
enum status trainer_step_run(struct trainer *t, struct tower *w);

/* trainer_push.c */

/* Each tower's gradients, weighted by its samples; a group's once, as they are. */
void trainer_push_list_contributions(struct trainer *t);
/* The chunks that hold a layer's parameters are neighbours: parameters are numbered in layer order.
 * The first and the last may hold parameters of other layers, too. */
void trainer_push_layer_chunks(const struct trainer *t, int layer, int *first, int *n);
/* The gradients of a layer whose backward was called, to the host and onwards. */
enum status trainer_push_layer(struct trainer *t, struct tower *w, int layer, int64_t step);
int64_t trainer_push_lowest_version(struct trainer *t); /* of all chunks; -1: some have none */
/* What the job has reached: at their own pace, the chunk that is behind all others. */
int64_t trainer_push_global_step(struct trainer *t, int64_t local_step);

/* trainer_finite.c */

enum trainer_push_scope {
    TRAINER_PUSH_LAYER,   /* this layer */
    TRAINER_PUSH_NOTHING, /* yet: the layers below were not looked at */
    TRAINER_PUSH_ALL,     /* all layers of the step */
    TRAINER_PUSH_SKIP,    /* likewise, with weight 0 */
};
/* After a layer's contributions were added; from the last layer to t->lowest. ST_INVALID, logged:
 * it is not finite, or (lowest) the loss is not, and that ends the run. */
enum status trainer_finite_check(struct trainer *t, int layer, int64_t step,
                                 enum trainer_push_scope *out);
/* TRAINER_PUSH_ALL: all gradients of the step are scaled down to cfg.clip_norm, if they are above
 * it: at once, or, alone, as the pushes that follow use them. */
void trainer_finite_clip(struct trainer *t, int64_t step);

/* trainer.c: a line with the accuracy on the test set, or on the validation data, at the step.
 * ST_CANCELLED: also where training ends with it. */
enum status trainer_log_accuracy(struct trainer *t, int64_t step);

#endif
