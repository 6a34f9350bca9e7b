/* ps/store/snapshot.h - one version of every chunk of a store with its optimizer slots, held while
 * training continues. Both are held by reference (I1); the next version of a chunk whose slots are
 * held writes its slots elsewhere. The version of a bucket stays readable while the snapshot holds
 * it, by undo logs (ps/rows/undo.h).
 * Owns:    references to values and slots from begin to end.
 * Memory:  while a snapshot lasts, each chunk's value and slots, and the old contents of rows that
 *          change.
 * Threads: one at a time calls these. `done` is called by the thread that makes the last version,
 *          under its chunk's lock, or by begin. `done` may lock only locks that no thread holds
 *          while it calls one of these functions or one of the store.
 * Errors:  ST_NOMEM; ST_RANGE: a chunk is past the step, or ends before it. */
#ifndef PS_STORE_SNAPSHOT_H
#define PS_STORE_SNAPSHOT_H
#include "base/buf.h"
#include "ps/store/store.h"

struct shared_bucket;
struct snapshot_chunk {
    int chunk;
    /* version that is held: the step, or a later one if chunks advance independently */
    int64_t version;
    struct buf *value; /* value of that version; NULL: not held yet, or a bucket */
    struct buf *slots; /* slots, one after the other; NULL: none */
    struct buf *idle;  /* counts of idle updates, as in struct chunk_version; NULL: none */
    /* list of samples, held with the model's first chunk (samples.h); otherwise NULL */
    uint64_t *samples;
    size_t n_samples;
    struct shared_bucket *bucket; /* bucket whose version is held; NULL: parameters, or not held */
};

struct snapshot;
/* Borrows the store until destroy. */
enum status snapshot_create(struct store *store, void (*done)(void *ctx), void *ctx,
                            struct snapshot **out);
void snapshot_destroy(struct snapshot *s); /* NULL is fine. */
/* Holds version `step` of every chunk. In lockstep a chunk's version is held at once if it is the
 * present version or the one before, both of which are kept (I4), and otherwise when it is made. If
 * chunks advance independently, the present version is held at once if it is `step` or a later one.
 * `done` is called when all chunks are held, unless the snapshot ends before. ST_RANGE: a chunk no
 * longer keeps version `step`, or will never make it, as the job or the store ends before; then
 * nothing is held. A chunk that is stopped later, before the step, never reaches it: the caller
 * ends the snapshot. */
enum status snapshot_begin(struct snapshot *s, int64_t step);
/* Ends the hold of chunk number i, a bucket whose rows were copied: its undo logs become shorter.
 */
void snapshot_release_bucket(struct snapshot *s, int i);
/* Ends a snapshot, complete or not: releases all versions, and holds no more. */
void snapshot_end(struct snapshot *s);
/* Returns the chunks, complete once `done` was called; valid until end. */
const struct snapshot_chunk *snapshot_chunks(const struct snapshot *s, int *n);

#endif
