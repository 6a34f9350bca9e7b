/* net/wire/evaluation.h - what a worker tells ps 0 of the validation data, as plain values, and
 * what it is told. Each says the whole, so that one that is lost is made good by the next. Threads:
 * values. Errors: none. */
#ifndef NET_WIRE_EVALUATION_H
#define NET_WIRE_EVALUATION_H
#include "net/wire/job_data.h"
#include <stdint.h>

/* Of the parameters of one step, on one of the parts that the set is in. */
struct net_evaluation {
    uint64_t generation, ps0; /* as in struct net_plan */
    int64_t step;
    int part, n_parts;          /* from 0 on, 1 to JOB_MAX_WORKERS */
    int64_t n, right;           /* samples of the part; of these, classified right */
    double loss;                /* sum over them; may be infinite or not a number */
    int no_accuracy;            /* the set has targets: `right` says nothing */
    struct job_validation data; /* the whole set */
    int64_t every, patience;    /* steps from one to the next, 0: at the end alone; evaluations
                                   without a lower loss that end the job, 0: none do */
};

struct net_best {
    int64_t step;          /* -1: there is none */
    double loss, accuracy; /* accuracy NaN: of targets */
};

struct net_evaluation_reply {
    int again;        /* 1: the same is to be sent again soon, and no contribution before */
    int64_t n, right; /* of all parts; n 0: they are not there, or not known */
    double loss;
    struct net_best best;
};

#endif
