/* worker/checkpoint/alone_writer.h - checkpoints of a worker without servers. Between two steps the
 * writer copies the parameters and the optimizer's slots. A thread with the lowest priority writes
 * the copy while training continues. A checkpoint that is due during a write is skipped, with a log
 * line. If a file cannot be written, this is logged, and training continues.
 * Owns:    a thread, a copy of parameters and slots, the folder.
 * Threads: alone_writer_at_step: the trainer's thread, while no update runs;
 *          alone_writer_stop_soon: any.
 * Errors:  those of alone_folder_open. */
#ifndef WORKER_CHECKPOINT_ALONE_WRITER_H
#define WORKER_CHECKPOINT_ALONE_WRITER_H
#include "checkpoint/best.h"
#include "worker/checkpoint/alone_folder.h"

struct alone_writer_config {
    struct alone_folder_config folder; /* its pointers are borrowed while the writer exists */
    int64_t save_steps;                /* steps between two checkpoints; 0: none by steps */
    int64_t save_ms;                   /* time between two checkpoints; 0: none by time */
    int keep;                          /* 0: all */
};

struct alone_writer;
/* Opens the folder, and creates a writer that continues from the folder's newest checkpoint. */
enum status alone_writer_create(const struct alone_writer_config *cfg, struct alone_writer **out);
/* Returns the rounding that the checkpoint contains; if there was no checkpoint, the rounding of
 * the configured job. */
const struct net_rounding *alone_writer_rounding(const struct alone_writer *s);
/* Waits until the write in progress has ended, and frees the writer. NULL is fine. */
void alone_writer_destroy(struct alone_writer *s);
/* Copies the state before step `step` if a checkpoint is due. ctx: the writer. ST_CANCELLED:
 * training ends at this step because of alone_writer_stop_soon, and the state is saved; ST_REFUSED:
 * another process has claimed the folder. */
enum status alone_writer_at_step(void *ctx, int64_t step);
/* Copies the state because the parameters are the best so far on the validation data. Called before
 * alone_writer_at_step of this step. The thread writes the checkpoint, and then records it as the
 * best one. best: all fields are set except its id. */
enum status alone_writer_best(struct alone_writer *s, int64_t step,
                              const struct checkpoint_best *best);
/* Waits for the write in progress. Returns true if the checkpoint of the last alone_writer_best was
 * written and recorded; false: a write failed. */
bool alone_writer_best_is_kept(struct alone_writer *s);
/* Reads the folder's record of the best checkpoint, if its step is not after the current step.
 * ST_NOT_FOUND: there is no such record; ST_IO: it cannot be read now (logged). */
enum status alone_writer_found_best(const struct alone_writer *s, struct checkpoint_best *out);
/* Makes the next alone_writer_at_step write the last checkpoint and end training. */
void alone_writer_stop_soon(struct alone_writer *s);
/* Ends training at `step`, and waits until its checkpoint is on the disk. ST_FULL, ST_IO: the
 * checkpoint could not be written, logged; ST_REFUSED: another process has claimed the folder. */
enum status alone_writer_finish(struct alone_writer *s, int64_t step);
/* Waits until no checkpoint is being written. NULL is fine. */
void alone_writer_settle(struct alone_writer *s);

#endif
