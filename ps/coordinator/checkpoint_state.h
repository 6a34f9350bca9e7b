/* ps/coordinator/checkpoint_state.h - what a coordinator knows of the checkpoint that is being
 * made, and of the last. Private to the coordinator. */
#ifndef PS_COORDINATOR_CHECKPOINT_STATE_H
#define PS_COORDINATOR_CHECKPOINT_STATE_H
#include <stdint.h>

enum checkpoint_schedule_phase { SCHEDULE_IDLE, SCHEDULE_ORDERED, SCHEDULE_MANIFEST };
enum checkpoint_schedule_why { WHY_STEPS, WHY_TIME, WHY_ASKED, WHY_BEST, WHY_LAST };

struct checkpoint_schedule {
    enum checkpoint_schedule_phase phase;
    enum checkpoint_schedule_why why;
    int taken; /* all servers have its chunks: it does not depend on the generation any more */
    uint64_t order, generation;
    int64_t step, last_step; /* being made; made last, -1: none */
    uint64_t unsaved;        /* generation whose last step is released without a checkpoint */
    uint64_t to_release;     /* generation to release after a check of the owner; 0: none */
    int64_t release_since, look_at; /* awake: of that request; of the next check */
    int looks;                      /* `op` is that check */
    int n_files, hold_last;         /* servers that take part; what ps 0's store was told */
    int factor; /* how far ahead an order has to be, grows with each that came late */
    int64_t ordered, taken_at, first_file; /* awake */
    int64_t past_since; /* awake: since when orders have come too late, or met a busy disk; 0 */
    int64_t save_at, not_before, line; /* awake */
    int64_t pace_at, pace_step, ahead; /* awake; steps that training makes in AHEAD_MS */
    uint64_t wanted, accepted, given;  /* by COMMAND */
    uint32_t op;                       /* MANIFEST, SWEEP or OWNER; 0: none */
    int64_t op_since;
    int no_last;         /* this process ends without the last one */
    int diverged;        /* the last one that failed did so as a parameter is not finite */
    int overdue;         /* one was due by steps while the last was being written */
    int failed;          /* the last order was given up: one more at once would do no better */
    int unmade, n_swept; /* the last order came to nothing; its files that a sweep saw, -1: none has
                            been made */
};

#endif
