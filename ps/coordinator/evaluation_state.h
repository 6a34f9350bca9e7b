/* ps/coordinator/evaluation_state.h - what a coordinator knows of evaluations of the validation
 * data (evaluation.c). Private to the coordinator. */
#ifndef PS_COORDINATOR_EVALUATION_STATE_H
#define PS_COORDINATOR_EVALUATION_STATE_H
#include "ps/coordinator/coordinator_values.h"

/* What one part of an evaluation came to. */
struct evaluation_part {
    int heard;
    int64_t n, right;
    double loss;
};

struct evaluation_state {
    uint64_t generation, ps0; /* of the one heard of last, as what follows; 0: none yet */
    int64_t step;
    int n_parts, n_heard;
    struct job_validation data;
    int64_t n, right; /* of all parts, once they are there */
    double loss;
    struct best_evaluation best;
    struct best_evaluation
        next;      /* is the best, once its checkpoint is there and named; known 0: none */
    int taken;     /* all servers have that one's chunks */
    int64_t since; /* awake: it is to be made */
    uint32_t op;   /* DISK_BEST of `ordered`, beside which no checkpoint is begun, since its
                      sweep would take that one's files; 0: none is under way */
    struct best_evaluation ordered; /* known 0: training went back behind it */
    int64_t from; /* evaluations count from here, where none is the best on these data */
    int ends;     /* the job ends at `end_step`, without a lower loss since that of best */
    int64_t end_step, n_since;
    int ended; /* it does: train_steps is where; said of generations above `ended_in` */
    uint64_t ended_in;
};

#endif
