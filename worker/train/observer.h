/* worker/train/observer.h - callbacks that observe training: figures of steps, parameters and
 * gradients, results of evaluations. Training waits for each call, so no callback may wait.
 * Owns:    nothing. Threads: calls of one kind are made one after the other, those of different
 *          kinds in parallel, on any of the trainer's threads.
 * Errors:  none: an observer handles its own failures. */
#ifndef WORKER_TRAIN_OBSERVER_H
#define WORKER_TRAIN_OBSERVER_H
#include "member/crew.h"
#include "net/exchange/exchange.h"
#include "worker/data/dataset.h"

struct evaluate_visitor;

/* Figures of a completed step. */
struct trainer_figures {
    /* number of the step: the job's number, or with own_pace this process's own number */
    int64_t number;
    int64_t global_step, local_steps, images; /* totals as in struct trainer_result */
    bool is_last; /* last step of the job; if own_pace is set, further steps may follow */
    float loss;
    float accuracy; /* accuracy on the step's samples; NaN: the samples have no classes */
    /* time that the first tower has waited for parameters since training began */
    int64_t wait_ns;
    int64_t skipped; /* contributions so far that were not finite */
};

/* One parameter, or this worker's contribution to it (before clipping). */
struct trainer_values {
    int64_t global_step; /* step at which the parameters had these values */
    bool is_gradient;
    const struct net_param *param;
    const float *f;      /* [param->n_elems], or */
    const uint16_t *f16; /* values, encoded as `dtype` */
    enum dtype dtype;
    const struct crew *crew; /* threads for loops over the values */
};

struct trainer_observer {
    void *ctx; /* argument of all callbacks */
    /* Called when training begins, and again after each change of generation. Reports about steps
     * after start->step that were made before this call are then invalid. */
    void (*start)(void *ctx, const struct net_start *start);
    void (*step)(void *ctx, const struct trainer_figures *f);
    /* Called before each step, with the step's number. Returns 1 to receive the step's parameters
     * and gradients. is_last: no step follows, so there are only parameters to report. */
    int (*wants_values)(void *ctx, int64_t number, int is_last);
    void (*values)(void *ctx, const struct trainer_values *v);
    /* Called if the device trains without copies to the host. Returns the number of the next step
     * after `number` for which the observer needs figures or values. */
    int64_t (*next)(void *ctx, int64_t number);
    /* Called for each evaluated batch. */
    const struct evaluate_visitor *visitor;
    /* Called after an evaluation. what: "test", "validation"; loss, accuracy NaN: unknown. */
    void (*evaluated)(void *ctx, int64_t global_step, const char *what, double accuracy,
                      double loss);
};

#endif
