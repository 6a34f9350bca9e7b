/* ps/coordinator/evaluation_state.h - the coordinator's record of evaluations of the validation
 * data (evaluation.c). The awake clock: see coordinator_state.h. Private to the coordinator. */
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
    /* generation of the last evaluation, and incarnation of its ps 0; 0: none yet */
    uint64_t generation, ps0;
    int64_t step;
    int n_parts, n_heard;
    struct job_validation data;
    /* samples, and correctly classified ones, of all parts; valid once all were reported */
    int64_t n, right;
    double loss;
    struct best_evaluation best;
    /* evaluation that becomes the best once its checkpoint is written and recorded; known 0:
     * none */
    struct best_evaluation next;
    int taken;     /* all servers hold the chunks of `next` */
    int64_t since; /* awake clock: time at which the checkpoint of `next` was requested */
    uint32_t op;   /* number of the order DISK_BEST of `ordered`; 0: none. Until the order ends no
                      checkpoint begins, since the sweep after a checkpoint would delete files of
                      `ordered` */
    /* evaluation that the last DISK_BEST records; known 0: none, since training rolled back */
    struct best_evaluation ordered;
    int64_t from; /* evaluations are counted from this step if no best exists for these data */
    /* the job ends at `end_step`: `n_since` evaluations in a row brought no lower loss */
    int ends;
    int64_t end_step, n_since;
    int ended; /* the job has ended early, at train_steps, in all generations above `ended_in` */
    uint64_t ended_in;
};

#endif
