/* net/wire/evaluation.h - a worker's report on the validation data to ps 0, and the reply, as
 * plain values. Each report is complete, so the next one replaces a lost one.
 * Threads: plain values without a lock.
 * Errors:  none. */
#ifndef NET_WIRE_EVALUATION_H
#define NET_WIRE_EVALUATION_H
#include "net/wire/job_data.h"
#include <stdbool.h>
#include <stdint.h>

/* Evaluation of one step's parameters on one part of the validation set. */
struct net_evaluation {
    uint64_t generation, ps0; /* generation of the parameters, see struct net_plan */
    int64_t step;
    int part, n_parts;          /* index from 0 on; number of parts, 1 to JOB_MAX_WORKERS */
    int64_t n, right;           /* samples of the part; number of them classified correctly */
    double loss;                /* sum of the loss over the part; may be infinite or NaN */
    bool no_accuracy;           /* the set has targets, and `right` has no meaning */
    struct job_validation data; /* description of the whole set */
    /* every: steps between evaluations, 0: only one at the end; patience: number of evaluations
     * without a lower loss after which the job ends, 0: no limit */
    int64_t every, patience;
};

struct net_best {
    int64_t step;          /* step of `loss` and `accuracy`; -1: there is no evaluation */
    double loss, accuracy; /* accuracy: NaN if samples have regression targets */
};

struct net_evaluation_reply {
    bool again; /* the worker must repeat the report soon, and send no contribution until `again` is
                   false */
    /* sums of all parts; n 0: some parts are missing, or the sums are not known */
    int64_t n, right;
    double loss;
    struct net_best best;
};

#endif
