/* worker/checkpoint/alone_writer.h - checkpoints of a worker without servers. Between two steps the
 * parameters and the optimizer's slots are copied; a thread of the lowest priority writes the copy
 * while training continues. A checkpoint that falls due during a write is skipped with a log line.
 * A file that cannot be written is logged, and training continues.
 * Owns:    a thread, a copy of parameters and slots, the folder.
 * Threads: alone_writer_at_step: the trainer's thread, while no update runs;
 *          alone_writer_stop_soon: any.
 * Errors:  those of alone_folder_open. */
#ifndef WORKER_CHECKPOINT_ALONE_WRITER_H
#define WORKER_CHECKPOINT_ALONE_WRITER_H
#include "checkpoint/best.h"
#include "worker/checkpoint/alone_folder.h"

struct alone_writer_config {
    struct alone_folder_config folder; /* its pointers are borrowed while the writer lives */
    int64_t save_steps;                /* 0: not by steps */
    int64_t save_ms;                   /* 0: not by time */
    int keep;                          /* 0: all */
};

struct alone_writer;
/* Opens the folder, and creates a writer that continues from the folder's newest checkpoint. */
enum status alone_writer_create(const struct alone_writer_config *cfg, struct alone_writer **out);
/* Returns the rounding of the checkpoint that was found; without a checkpoint, the rounding of the
 * configured job. */
const struct net_rounding *alone_writer_rounding(const struct alone_writer *s);
/* Waits until the write in progress has ended, and frees the writer. NULL is fine. */
void alone_writer_destroy(struct alone_writer *s);
/* Copies the state before step `step` if a checkpoint is due. ctx: the writer. ST_CANCELLED:
 * training ends here by alone_writer_stop_soon, and its state is saved; ST_REFUSED: another process
 * has claimed the folder. */
enum status alone_writer_at_step(void *ctx, int64_t step);
/* Copies the state because the parameters are the best so far on the validation data. Called before
 * alone_writer_at_step of this step. The checkpoint is written, and then recorded as the best one.
 * best: complete except for its id. */
enum status alone_writer_best(struct alone_writer *s, int64_t step,
                              const struct checkpoint_best *best);
/* Waits for the write in progress. Returns true if the last checkpoint of alone_writer_best is on
 * the disk and recorded; false: a write failed. */
bool alone_writer_best_is_kept(struct alone_writer *s);
/* Reads the folder's record of the best checkpoint, of a step up to the current one. ST_NOT_FOUND:
 * none; ST_IO: it cannot be read now (logged). */
enum status alone_writer_found_best(const struct alone_writer *s, struct checkpoint_best *out);
/* Makes the next alone_writer_at_step write the last checkpoint and end training. */
void alone_writer_stop_soon(struct alone_writer *s);
/* Ends training at `step`, with its checkpoint on the disk. ST_FULL, ST_IO: the checkpoint could
 * not be written, logged; ST_REFUSED: as in alone_writer_at_step. */
enum status alone_writer_finish(struct alone_writer *s, int64_t step);
/* Waits until no checkpoint is being written. NULL is fine. */
void alone_writer_settle(struct alone_writer *s);

#endif
