/* worker/train/read_ahead.h - a thread that reads the next batch while its tower computes or waits:
 * one call of one function at a time.
 * Owns:    the thread.
 * Threads: start and wait: one, the tower's.
 * Errors:  ST_NOMEM, logged; those of the function. */
#ifndef WORKER_TRAIN_READ_AHEAD_H
#define WORKER_TRAIN_READ_AHEAD_H
#include "base/status.h"

struct read_ahead;
/* read(ctx): called by the thread, once for each start. index: the tower's, for the trace. */
enum status read_ahead_create(enum status (*read)(void *ctx), void *ctx, int index,
                              struct read_ahead **out);
void read_ahead_destroy(struct read_ahead *r); /* waits; NULL is fine */
/* What was started before has ended: see wait. */
void read_ahead_start(struct read_ahead *r);
/* Until what was started has ended, and how; ST_OK if nothing ever was. */
enum status read_ahead_wait(struct read_ahead *r);

#endif
