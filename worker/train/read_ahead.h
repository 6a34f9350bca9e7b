/* worker/train/read_ahead.h - a thread that reads the next batch while its tower computes or waits:
 * it calls one function, and only one call runs at a time.
 * Owns:    the thread. Threads: start and wait: one, the tower's.
 * Errors:  ST_NOMEM, logged; those of the function. */
#ifndef WORKER_TRAIN_READ_AHEAD_H
#define WORKER_TRAIN_READ_AHEAD_H
#include "base/status.h"

struct read_ahead;
/* Creates the thread, which calls read(ctx) once per start. index: index of the tower, for
 * traces. */
enum status read_ahead_create(enum status (*read)(void *ctx), void *ctx, int index,
                              struct read_ahead **out);
void read_ahead_destroy(struct read_ahead *r); /* waits until the call has ended; NULL is fine */
/* Starts a call. The previous call must have ended: see read_ahead_wait. */
void read_ahead_start(struct read_ahead *r);
/* Waits until the last call has ended, and returns its status; ST_OK if no call was started. */
enum status read_ahead_wait(struct read_ahead *r);

#endif
