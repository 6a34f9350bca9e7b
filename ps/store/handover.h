/* ps/store/handover.h - what a store's chunks begin with: from the store before, from another
 * server, from a checkpoint.
 * Owns:    what was taken has references, which the holder gives back.
 * Threads: any takes; a store is filled before its first piece, by one.
 * Errors:  not logged. */
#ifndef PS_STORE_HANDOVER_H
#define PS_STORE_HANDOVER_H
#include "ps/store/store.h"

/* Releases what the chunks of a stopped store hold: versions, slots,
 * contributions. Their numbers stay, and members are sent to the next generation as before. */
void handover_empty(struct store *s);

/* A chunk's version, references that the holder gives back; slots: NULL: it has none. Where chunks
 * go each at its own pace the model's first one has a list of samples (samples.h), a copy. */
struct handover_chunk {
    int64_t version;
    struct buf *value, *slots;
    uint64_t *samples;
    size_t n_samples; /* 0: there is no list */
};
void handover_drop(struct handover_chunk *t);
/* In lockstep version `step`, one of the last two; -1, and in other modes: the present one.
 * ST_NOT_FOUND: not owned; ST_RANGE: not there; ST_NOMEM. Not logged. */
enum status handover_take(struct store *s, int chunk, int64_t step, struct handover_chunk *out);
/* Before the first piece, to a store whose chunk it is: what another one had, by reference where
 * that can be. ST_NOMEM. */
enum status handover_give(struct store *s, int chunk, const struct handover_chunk *t);

/* Likewise, what another server had, as copies. ST_PROTOCOL: it does not fit the chunk. */
struct handover_copied {
    int64_t version;
    const float *value, *slots; /* slots: one after the other */
    size_t n_value, n_slots;    /* numbers in each */
    const uint64_t *samples;    /* as in handover_chunk */
    size_t n_samples;
};
enum status handover_copy(struct store *s, int chunk, const struct handover_copied *c);

/* Before the first piece: each chunk's version, value and slots (NULL: it has none) as `load` gives
 * them; it logs what it fails for. */
enum status handover_load(struct store *s,
                          enum status (*load)(void *ctx, int chunk, float *value, float *slots,
                                              int64_t *version),
                          void *ctx);

/* Likewise, of a checkpoint. n 0: there is no list. ST_PROTOCOL, ST_NOMEM. */
enum status handover_set_samples(struct store *s, const uint64_t *list, size_t n);

#endif
