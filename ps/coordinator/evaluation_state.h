/* ps/coordinator/evaluation_state.h - the coordinator's record of evaluations of the validation
 * data (evaluation.c). Private to the coordinator. */
#ifndef PS_COORDINATOR_EVALUATION_STATE_H
#define PS_COORDINATOR_EVALUATION_STATE_H
#include "ps/coordinator/coordinator_values.h"

/* Result of one part of an evaluation. */
struct evaluation_part {
    int heard;
    int64_t n, right;
    double loss;
};

struct evaluation_state {
    uint64_t generation, ps0; /* generation and ps 0 of the last evaluation; 0: none yet */
    int64_t step;
    int n_parts, n_heard;
    struct job_validation data;
    int64_t n, right; /* sums over all parts, valid once all were reported */
    double loss;
    struct best_evaluation best;
    /* evaluation that is the best once its checkpoint is written and recorded; known 0: none */
    struct best_evaluation next;
    int taken;     /* all servers hold the chunks of `next` */
    int64_t since; /* awake clock: time at which the checkpoint of `next` was requested */
    uint32_t op;   /* DISK_BEST of `ordered`; until it ends no checkpoint is begun, since its sweep
                      would delete files of `ordered`; 0: none */
    struct best_evaluation ordered; /* known 0: training rolled back to an earlier step */
    int64_t from; /* evaluations are counted from this step if no best exists for these data */
    int ends;     /* the job ends at `end_step`: n_since evaluations brought no lower loss */
    int64_t end_step, n_since;
    int ended; /* the job has ended early, at train_steps; generations above `ended_in` have this
                  end */
    uint64_t ended_in;
};

#endif
