/* ps/store/snapshot.h - one version of every chunk of a store, with the optimizer's slots that
 * belong to it, taken while training goes on: both by reference (I1); the next version of a chunk
 * whose slots are held writes its own elsewhere.
 * Owns:    references to values and slots from begin to end.
 * Memory:  while a snapshot lasts, each chunk's value and slots.
 * Threads: one at a time calls these; `done` comes from whatever thread makes the last version,
 *          under its chunk's lock, or from begin, and may take no lock but one that is never held
 *          while these or a store's functions are called.
 * Errors:  ST_NOMEM; ST_RANGE: a chunk is past the step, or ends before it. */
#ifndef PS_STORE_SNAPSHOT_H
#define PS_STORE_SNAPSHOT_H
#include "base/buf.h"
#include "ps/store/store.h"

struct snapshot_chunk {
    int chunk;
    int64_t version;   /* the step; where chunks go each at its own pace, maybe a later one */
    struct buf *value; /* NULL: not there yet */
    struct buf *slots; /* the slots one after the other; NULL: there are none */
    uint64_t *samples; /* the model's first chunk: of that moment (samples.h); else NULL */
    size_t n_samples;
};

struct snapshot;
/* The store: borrowed until destroy. */
enum status snapshot_create(struct store *store, void (*done)(void *ctx), void *ctx,
                            struct snapshot **out);
void snapshot_destroy(struct snapshot *s); /* NULL is fine */
/* Version `step` of every chunk: in lockstep at once where it is the present one or the one before,
 * both of which are kept (I4), else when it is made. Where chunks go each at its own pace, the
 * present version at once if it is `step` or a later one. done is called once when all are there,
 * if the snapshot is not ended before. ST_RANGE: the step is past at a chunk, or no version `step`
 * will be made, as the job or the store ends before; then nothing is held. A chunk that is stopped
 * later, before it comes to the step, never does: the caller ends the snapshot. */
enum status snapshot_begin(struct snapshot *s, int64_t step);
/* Whether it is complete or not: nothing is held and nothing more is taken. */
void snapshot_end(struct snapshot *s);
/* Complete once done was called; valid until end. */
const struct snapshot_chunk *snapshot_chunks(const struct snapshot *s, int *n);

#endif
