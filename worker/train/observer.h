/* worker/train/observer.h - who looks at training while it goes on, and what he is told: figures of
 * steps, parameters and gradients, what evaluations found. Training waits for each call, so that
 * none may wait for anything itself.
 * Owns:    nothing. Threads: calls of one kind come one after the other, of different kinds at
 *          once, from any of the trainer's threads.
 * Errors:  none: what an observer cannot do is its own affair. */
#ifndef WORKER_TRAIN_OBSERVER_H
#define WORKER_TRAIN_OBSERVER_H
#include "member/crew.h"
#include "net/exchange/exchange.h"
#include "worker/data/dataset.h"

struct evaluate_visitor;

/* Of a step that is done. */
struct trainer_figures {
    int64_t number; /* as steps are counted: in lockstep the job's, else this process' own */
    int64_t global_step, local_steps, images; /* as in struct trainer_result, so far */
    int is_last;                              /* of the job; more may follow at their own pace */
    float loss;
    float accuracy;  /* on the step's samples; NaN: they have no classes */
    int64_t wait_ns; /* since training began: that the first tower waited for parameters */
    int64_t skipped; /* contributions that were not finite, so far */
};

/* One parameter, or what this worker contributes to it (before it is clipped). */
struct trainer_values {
    int64_t global_step; /* that the parameters are of */
    int is_gradient;
    const struct net_param *param;
    const float *f;      /* [param->n_elems], or: */
    const uint16_t *f16; /* as `dtype` has them */
    enum dtype dtype;
    const struct crew *crew; /* for loops over them */
};

struct trainer_observer {
    void *ctx; /* of all */
    /* Training begins, or, after the end of a generation, does so again: what was told of steps
     * after start->step does not count any more. */
    void (*start)(void *ctx, const struct net_start *start);
    void (*step)(void *ctx, const struct trainer_figures *f);
    /* Before a step, by its number: are its parameters and gradients wanted? is_last: it is not
     * taken any more, and parameters are all that there is. */
    int (*wants_values)(void *ctx, int64_t number, int is_last);
    void (*values)(void *ctx, const struct trainer_values *v);
    /* Where training stays on a device: the next number after this one that it is to be told of, or
     * whose values may be wanted. */
    int64_t (*next)(void *ctx, int64_t number);
    /* Told of each batch that is evaluated. */
    const struct evaluate_visitor *visitor;
    /* After that. what: "test", "validation"; loss, accuracy NaN: not known. */
    void (*evaluated)(void *ctx, int64_t global_step, const char *what, double accuracy,
                      double loss);
};

#endif
