/* worker/train/trainer_impl.h - the trainer, shared by its files and private to them.
 *
 *   trainer.c        creation, a run from its start to its end
 *   trainer_evaluate.c evaluations of the test set and of the validation data
 *   trainer_state.c  whether the towers stop, and which steps are invalid
 *   trainer_step.c   a tower's steps
 *   trainer_push.c   sum and push of all towers' contributions
 *   trainer_parts.c  copies in parts
 *   trainer_ahead.c  updates on the card
 *   trainer_finite.c the check that contributions are finite
 *   trainer_rows.c   layers on the host, and rows of tables
 *   trainer_observe.c reports to the observer
 * DESIGN. Each tower is a thread; all towers run the same steps. Before a layer's forward, a tower
 * waits until the layer's gradients of the last step are pushed and the layer's new version is in
 * params (but see trainer_ahead.h). After a layer's backward, the tower arrives at that layer. The
 * last tower to arrive at a layer adds the contributions in their fixed order, and pushes the
 * layer's chunks. A contribution is a block of gradients on the host with its weight in the sum:
 * the gradients of one tower, or the sum of the weighted gradients of a group's towers
 * (device_group.h). A single contribution may already be rounded to the wire's dtype; then it is
 * pushed unchanged. If the only tower copies in parts, see trainer_parts.h. Gradients and
 * parameters of a layer are used again only after the exchange's answer, so one copy of each is
 * enough, and no further lock is needed. When the servers' generation ends, a wait returns
 * ST_REBASED: the step whose parameters did not arrive and all later steps are invalid and not
 * pushed. Earlier steps are still pushed, because they may count. Towers of a group wait for each
 * other within a step, so they first end the newest step that any of them has begun, with the
 * parameters that they have. Then all begin again at the step and place that the servers' answer
 * contains. */
#ifndef WORKER_TRAIN_TRAINER_IMPL_H
#define WORKER_TRAIN_TRAINER_IMPL_H
#include "worker/train/tower.h"
#include "worker/train/trainer.h"
#include "worker/train/trainer_ahead.h"
#include "worker/train/trainer_parts.h"
#include "worker/train/trainer_rows.h"
#include <pthread.h>
#include <stdatomic.h>
enum { TRAINER_WHAT_BYTES = 400 };

struct step_share {
    float loss;
    int n_correct;
    uint64_t position; /* position of the step's first sample in the order of all passes */
};

struct contribution {
    const struct tower *tower; /* tower whose block of gradients contains the contribution */
    float weight;
};

struct trainer {
    struct trainer_config cfg;
    struct tower **towers;
    struct device_group *group;         /* NULL: none */
    struct contribution *contributions; /* the block of the first one receives the sum */
    int n_contributions;
    struct trainer_parts parts;
    struct trainer_ahead ahead;
    struct trainer_rows rows;
    int follows;      /* true: `rounded` is the job's choice */
    uint8_t *rounded; /* layers that the job chose to round; NULL: the backend decides */
    struct crew crew; /* threads for loops over contributions */
    struct tower *eval;
    struct trainer_config eval_cfg, validation_cfg; /* copies of cfg for evaluations */
    struct tower *validate; /* tower that evaluates the validation data; NULL: there are none */
    _Atomic int ended;      /* the callback `validated` ended training */
    struct device_data *data;
    pthread_mutex_t progress_lock; /* guards `progress`: trainer_wait runs in another thread */
    struct progress *progress;
    int64_t first_step; /* step from which training last began or began again */
    uint64_t generation, ps0;
    int64_t start_ns;
    int64_t n_evaluated; /* last evaluated (or skipped) step, in units of eval_every */
    int64_t observed_step, observed_global_step; /* step whose values are observed; -1: none */
    _Atomic int64_t wait_ns; /* time that the first tower waited for parameters */
    _Atomic int stopped, stops_soon;
    _Atomic int failed; /* enum status of the first tower that failed */

    /* first layer with parameters, or on the host: no tower passes it before all have arrived */
    int lowest;

    pthread_mutex_t lock; /* guards the eight fields below */
    pthread_cond_t handed_out;
    int64_t newest_step; /* newest step that a tower has begun */
    /* last step that the towers run, if the generation has ended; otherwise INT64_MAX */
    int64_t last_step;
    int64_t invalid_from; /* first step whose parameters did not arrive; otherwise INT64_MAX */
    int *arrived;         /* [n_layers] number of towers that have arrived in this step */
    int64_t *pushed;      /* [n_layers] number of steps whose gradients were pushed */
    int64_t judged_step;  /* last step for which a tower has set is_over */
    bool is_over;         /* the job already has all its updates before that step */
    struct step_share (*share)[2]; /* [n_towers][step & 1] data of each tower's step */
    struct trainer_result result;  /* written by the last tower of a step, read after run */
    int64_t steps_before;          /* number of local steps in earlier generations */
    int skipping; /* a layer of the current step was not finite; used by the pushing thread */
    char skipped_for[TRAINER_WHAT_BYTES]; /* name of that layer, and the reason */
};

/* trainer_state.c */

/* Returns true after trainer_stop, or if a tower failed. */
bool trainer_state_is_stopped(struct trainer *t);
/* Ends all towers. The status of the first call becomes the result of training. */
void trainer_state_fail(struct trainer *t, enum status st);
/* Returns true if the generation has ended. Then towers begin no new step until the next start. */
bool trainer_state_generation_ended(struct trainer *t);
/* Returns true if the step's parameters are not available; then the step does not count. */
bool trainer_state_is_invalid(struct trainer *t, int64_t step);
/* Returns true if the step is invalid and the tower may abandon it, because no other tower waits
 * for this tower within the step. */
bool trainer_state_may_skip(struct trainer *t, int64_t step);
/* Records that the generation has ended if st is ST_REBASED, and then returns ST_OK; returns any
 * other st unchanged. invalid: first step that becomes invalid; INT64_MAX: no step does. */
enum status trainer_state_note_rebased(struct trainer *t, enum status st, int64_t invalid);
/* Begins a step. Returns false if the generation has ended and the tower must not begin the
 * step. */
bool trainer_state_begin_step(struct trainer *t, int64_t step);

/* Joins the generation that the servers begin after the job's last step, and trains the steps that
 * they have rolled back. ST_CANCELLED: training was stopped, or the worker has left
 * (trainer.c). */
enum status trainer_run_again(struct trainer *t);

/* Runs a tower's steps from t->first_step to the last one (trainer_step.c). */
enum status trainer_step_run(struct trainer *t, struct tower *w);

/* trainer_push.c */

/* Lists the gradients of each tower, weighted by its samples. The gradients of a group are listed
 * once, because the group has already computed their weighted sum. */
void trainer_push_list_contributions(struct trainer *t);
/* Finds the chunks that hold a layer's parameters, or the buckets of its table. These are adjacent,
 * because parameters are numbered in layer order. The first and the last one may also hold
 * parameters of other layers. */
void trainer_push_layer_chunks(const struct trainer *t, int layer, int *first, int *n);
/* Fetches the tower's gradients of a layer whose backward was called. The last tower that calls
 * this function for the layer pushes the sum. */
enum status trainer_push_layer(struct trainer *t, struct tower *w, int layer, int64_t step);
int64_t trainer_push_lowest_version(struct trainer *t); /* -1: some chunks have none */
/* Returns the step that the job has reached; with own_pace, the version of the slowest chunk. */
int64_t trainer_push_global_step(struct trainer *t, int64_t local_step);

/* trainer_evaluate.c */

/* Updates the averages of the parameters, if there are any. */
enum status trainer_fetch_averages(struct trainer *t);
/* Logs the accuracy on the test set, or on the validation data, at the step.
 * ST_CANCELLED: training was stopped, or this evaluation ends it. */
enum status trainer_log_accuracy(struct trainer *t, int64_t step);

#endif
