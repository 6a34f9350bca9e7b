/* ps/coordinator/checkpoint_state.h - the coordinator's record of the checkpoint that is being made
 * and of the last one. The awake clock does not advance while this process is paused
 * (coordinator_state.h). Private to the coordinator. */
#ifndef PS_COORDINATOR_CHECKPOINT_STATE_H
#define PS_COORDINATOR_CHECKPOINT_STATE_H
#include <stdint.h>

enum checkpoint_schedule_phase { SCHEDULE_IDLE, SCHEDULE_ORDERED, SCHEDULE_MANIFEST };
enum checkpoint_schedule_why { WHY_STEPS, WHY_TIME, WHY_ASKED, WHY_BEST, WHY_LAST };

struct checkpoint_schedule {
    enum checkpoint_schedule_phase phase;
    enum checkpoint_schedule_why why;
    int taken; /* all servers hold the checkpoint's chunks, so it no longer depends on the
                  generation */
    uint64_t order, generation;
    int64_t step, last_step; /* step of the checkpoint being made; step of the last one; -1: none */
    /* generation whose last step the workers receive although no checkpoint has it */
    uint64_t unsaved;
    uint64_t to_release; /* generation to release once the owner is checked; 0: none */
    /* awake clock: time at which `to_release` was set; time of the next check of the owner */
    int64_t release_since, look_at;
    int looks; /* the disk order `op` is a check of the folder's owner */
    /* n_files: number of servers in the order; hold_last: arg of the last action HOLD_LAST */
    int n_files, hold_last;
    /* factor on the distance from training's step to the step of the next order; each order that
     * arrives too late doubles it */
    int factor;
    /* awake clock: time when the order was made; when all servers held their chunks (taken_at);
     * when the first file was written */
    int64_t ordered, taken_at, first_file;
    /* awake clock: time of the first of several orders in a row that arrived too late, or met a
     * busy disk; 0: none */
    int64_t past_since;
    /* awake clock: time of the next checkpoint by time (save_at); of the earliest next order; of
     * the next log line */
    int64_t save_at, not_before, line;
    /* pace_at (awake clock), pace_step: time and step of the last measurement of the pace;
     * ahead: steps that training makes in AHEAD_MS */
    int64_t pace_at, pace_step, ahead;
    /* counts of COMMANDs that request a checkpoint: all, accepted, and answered (given) ones */
    uint64_t wanted, accepted, given;
    uint32_t op; /* disk order MANIFEST, SWEEP or OWNER under way; 0: none */
    int64_t op_since;
    int no_last;  /* this process ends without the last checkpoint */
    int diverged; /* the last failed checkpoint had a parameter that is not finite */
    /* a checkpoint became due after save_steps steps while the last one was being written */
    int overdue;
    /* the last order was given up, and a new order at this moment would probably fail, too */
    int failed;
    /* unmade: the last order made no checkpoint; n_swept: number of files of that order that the
     * last sweep found, -1: no sweep yet */
    int unmade, n_swept;
};

#endif
