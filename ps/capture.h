/* ps/capture.h - one version of every chunk of a store, with the optimizer's slots that belong to
 * it, taken while training goes on: both by reference (I1); the next version of a chunk whose slots
 * are held writes its own elsewhere.
 * Owns:    references to values and slots from begin to end.
 * Memory:  while a capture lasts, each chunk's value and slots.
 * Threads: one at a time calls these; `done` comes from whatever thread makes the last version,
 *          under its chunk's lock, or from begin, and may take no lock but one that is never held
 *          while these or a store's functions are called.
 * Errors:  ST_NOMEM; ST_RANGE: in lockstep, a chunk is past the step already (not logged). */
#ifndef PS_CAPTURE_H
#define PS_CAPTURE_H
#include "base/buf.h"
#include "ps/store.h"

struct ps_captured {
    int chunk;
    int64_t version;   /* the step; where chunks go each at its own pace, maybe a later one */
    struct buf *value; /* NULL: not there yet */
    struct buf *slots; /* the slots one after the other; NULL: there are none */
};

struct ps_capture;
/* The store: borrowed until destroy. */
enum status ps_capture_create(struct ps_store *store, void (*done)(void *ctx), void *ctx,
                              struct ps_capture **out);
void ps_capture_destroy(struct ps_capture *c); /* NULL is fine */
/* Every chunk is taken when it makes version `step`, at once where it is there. done is called once
 * when all have been, if it is not ended before. */
enum status ps_capture_begin(struct ps_capture *c, int64_t step);
/* Whether it is complete or not: nothing is held and nothing more is taken. */
void ps_capture_end(struct ps_capture *c);
/* Complete once done was called; valid until end. */
const struct ps_captured *ps_capture_chunks(const struct ps_capture *c, int *n);

#endif
