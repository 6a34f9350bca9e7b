/* ps/store/chunk_rows.h - a chunk that is a bucket of a table (ps/rows): the bucket, contributions
 * to its next version, and the rows that each member reads. A bucket begins empty, at version 0.
 * This header belongs to chunk_state.h, and is private to this folder. The caller holds the chunk's
 * lock; the bucket's own lock is locked after it.
 * Owns:    a reference to the bucket, which other stores may have, too; copies of contributions and
 *          of read keys, and memory for answers.
 * Errors:  ST_NOMEM. */
#ifndef PS_STORE_CHUNK_ROWS_H
#define PS_STORE_CHUNK_ROWS_H
#include "base/buf.h"
#include "net/wire/tables.h"
#include "ps/rows/limits.h"
#include "ps/rows/merge.h"
#include "ps/rows/shared_bucket.h"

struct store;
struct chunk_state;

/* The rows that the answer to a member's last request has. */
struct chunk_reads {
    size_t n, room;
    uint64_t *keys;     /* [n] */
    struct buf *answer; /* memory of an earlier answer, used again if it has one reference */
    size_t answer_room;
};

/* A process that waits for the refusal of its contribution. */
struct chunk_refused {
    uint64_t incarnation; /* 0: none */
    uint64_t from;        /* stream of the push */
};

struct chunk_rows {
    struct shared_bucket *shared; /* NULL: the store was emptied */
    const struct net_table *table;
    int number; /* number of the bucket in its table */
    struct merge *merge;
    float *weight;                 /* [n_members of struct aggregate] weight of each contribution */
    struct chunk_reads *reads;     /* [n_members] */
    bool has_refused;              /* `refused` has an entry */
    struct chunk_refused *refused; /* [n_members] */
    char why[LIMITS_TEXT_BYTES];   /* reason of the refusals */
};

/* Fills the settings of a bucket of the store. */
void chunk_rows_config(const struct store *s, int chunk, struct bucket_config *out);
/* Returns the bytes that the rows of a bucket may need. */
double chunk_rows_most_bytes(const struct chunks *chunks, int chunk);
/* Creates an empty bucket of version 0 for the chunk, whose other fields are set. */
enum status chunk_rows_create(const struct store *s, struct chunk_state *c);
/* Returns true if the bucket can still read this version. */
bool chunk_rows_is_readable(const struct chunk_rows *r, uint64_t version);
/* Releases the bucket and all memory except for the struct. */
void chunk_rows_empty(const struct store *s, struct chunk_rows *r);
void chunk_rows_destroy(const struct store *s, struct chunk_rows *r); /* NULL is fine. */

#endif
