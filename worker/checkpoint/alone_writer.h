/* worker/checkpoint/alone_writer.h - checkpoints of a worker without servers. Between two steps the
 * parameters and the optimizer's slots are copied; a thread of the lowest priority writes the copy
 * while training goes on. One that falls due meanwhile is left out, with a line. A file that
 * cannot be written costs a line, and training goes on.
 * Owns:    a thread, a copy of parameters and slots, the folder.
 * Threads: at_step from the trainer's, with no update under way; stop_soon from any.
 * Errors:  those of alone_folder_open. */
#ifndef WORKER_CHECKPOINT_ALONE_WRITER_H
#define WORKER_CHECKPOINT_ALONE_WRITER_H
#include "checkpoint/best.h"
#include "worker/checkpoint/alone_folder.h"

struct alone_writer_config {
    struct alone_folder_config folder; /* what it points to: borrowed while the saver lives */
    int64_t save_steps;                /* 0: not by steps */
    int64_t save_ms;                   /* 0: not by time */
    int keep;                          /* 0: all */
};

struct alone_writer;
/* Goes on from what the folder has. */
enum status alone_writer_create(const struct alone_writer_config *cfg, struct alone_writer **out);
/* Of what was found, or else of the configuration's job. */
const struct net_rounding *alone_writer_rounding(const struct alone_writer *s);
/* Waits for what is being written. NULL is fine. */
void alone_writer_destroy(struct alone_writer *s);
/* Before step `step` is computed; ctx: the saver. ST_CANCELLED: training ends here, as it was to,
 * and what it has is saved; ST_REFUSED: another process has claimed the folder. */
enum status alone_writer_at_step(void *ctx, int64_t step);
/* Likewise, before at_step of that step: the parameters did better on the validation data than all
 * before. Their checkpoint is made, and named as the best one when it is there. best: all but its
 * id. */
enum status alone_writer_best(struct alone_writer *s, int64_t step,
                              const struct checkpoint_best *best);
/* Waits for what is being written. 1: what alone_writer_best was given last is on the disk, and
 * named; 0: it could not be. */
int alone_writer_best_is_kept(struct alone_writer *s);
/* What the folder says of the best checkpoint, at a step that training has come to.
 * ST_NOT_FOUND: nothing; ST_IO: it cannot be read now (logged). */
enum status alone_writer_found_best(const struct alone_writer *s, struct checkpoint_best *out);
/* The next at_step makes the last checkpoint and ends training. */
void alone_writer_stop_soon(struct alone_writer *s);
/* Training is done at `step`, and its checkpoint is on the disk. ST_FULL, ST_IO: it could not be
 * written, as a line says; ST_REFUSED: as above. */
enum status alone_writer_finish(struct alone_writer *s, int64_t step);
/* Waits until no checkpoint is being written. NULL is fine. */
void alone_writer_settle(struct alone_writer *s);

#endif
