/* ps/store/handover.h - fills a store's chunks from the store before, from another server, or from
 * a checkpoint.
 * Owns:    nothing; a struct handover_chunk holds references, which its user releases.
 * Threads: any may call handover_take; one thread fills a store before its first piece.
 * Errors:  not logged. */
#ifndef PS_STORE_HANDOVER_H
#define PS_STORE_HANDOVER_H
#include "ps/rows/bucket_copy.h"
#include "ps/store/store.h"

/* Releases the versions, slots and contributions of a stopped store. The chunks' version numbers
 * stay, and members are still directed to the next generation. */
void handover_empty(struct store *s);

/* State of a bucket that arrives in parts. */
struct handover_cursor {
    bool is_partial; /* entries with higher keys are missing */
    bool has_after;  /* entries up to the key `after` are here */
    uint64_t after;
};

/* A chunk's version; the holder releases the references. slots is NULL if there are none. If chunks
 * advance independently, the model's first chunk also has a copy of the list of samples
 * (samples.h). */
struct handover_chunk {
    int64_t version;
    struct buf *value, *slots, *idle; /* idle: see struct chunk_version */
    uint64_t *samples;
    size_t n_samples; /* length of the list of samples; 0: no list */
    /* The bucket of a table, which has the version at least until the store is emptied; NULL: the
     * chunk has parameters. */
    struct shared_bucket *bucket;
    struct handover_cursor part;
};
/* Returns true if the struct has a version, or a part of a bucket. */
static inline bool handover_has(const struct handover_chunk *t)
{
    return t->value || t->bucket;
}
void handover_drop(struct handover_chunk *t);
/* Adds references to a version of a chunk: in lockstep to version `step` (one of the last two; -1:
 * the present version), in other modes to the present version. A stopped store keeps the version
 * of a bucket that it has handed over, and hands over no other version of it. ST_NOT_FOUND: the
 * chunk is not owned; ST_RANGE: no such version; ST_BUSY: the bucket has too many holds; ST_NOMEM.
 * Not logged. */
enum status handover_take(struct store *s, int chunk, int64_t step, struct handover_chunk *out);
/* Sets a chunk to a version of another store, by reference if possible. Called before the first
 * piece. ST_NOMEM, ST_RANGE. */
enum status handover_give(struct store *s, int chunk, const struct handover_chunk *t);

/* A chunk that another server has sent, and that handover_copy copies. ST_PROTOCOL: it does not
 * fit this server's chunk. */
struct handover_copied {
    int64_t version;
    const float *value, *slots; /* slots: all slots, one after the other */
    size_t n_value, n_slots;    /* number of floats in each */
    const uint64_t *samples;    /* see handover_chunk */
    size_t n_samples;
    const uint64_t *idle; /* counts of struct chunk_version */
    size_t n_idle;        /* number of counts; 0: all counts are 0 */
};
enum status handover_copy(struct store *s, int chunk, const struct handover_copied *c);

/* The next part of a bucket, from another server or from a checkpoint. */
struct handover_part {
    int64_t version; /* the same in all parts */
    struct bucket_entries entries;
    size_t n_value, n_slots; /* number of floats of all rows */
    bool has_more;           /* the bucket has further parts */
};
/* Adds a part to a bucket that is empty, or lacks this part. ST_PROTOCOL: it does not fit the
 * bucket, for the reason *why; the bucket is unchanged. ST_NOMEM, ST_RANGE. */
enum status handover_add(struct store *s, int chunk, const struct handover_part *part,
                         const char **why);
/* Adds a reference to a bucket of which a part is missing, for another store of this server.
 * ST_NOT_FOUND: the chunk is no such bucket. */
enum status handover_take_part(struct store *s, int chunk, struct handover_chunk *out);
/* Returns how much of an owned bucket is here. */
struct handover_cursor handover_cursor(struct store *s, int chunk);

/* Sets the version, value and slots of each chunk with parameters by `load`, which logs its errors;
 * slots is NULL if there are none. Called before the first piece. */
enum status handover_load(struct store *s,
                          enum status (*load)(void *ctx, int chunk, float *value, float *slots,
                                              int64_t *version),
                          void *ctx);

/* Sets the counts of the idle updates of an owned chunk that has a version, one for each of its n
 * parameters; n 0: none. Called before the first piece. ST_PROTOCOL: they do not fit the chunk;
 * ST_NOMEM. */
enum status handover_set_idle(struct store *s, int chunk, const uint64_t *idle, size_t n);

/* Sets the list of samples from a checkpoint; n 0: no list. Called before the first piece.
 * ST_PROTOCOL, ST_NOMEM. */
enum status handover_set_samples(struct store *s, const uint64_t *list, size_t n);

#endif
