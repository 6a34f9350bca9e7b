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
#include "ps/store/handover.h"

struct store;
struct chunk_state;

/* Memory of answers to a member. While one answer is sent, or is lent to a member on this host, the
 * next one is made in the other. */
enum { CHUNK_ANSWERS = 2 };
struct chunk_answer {
    struct buf *buf; /* NULL: none; not used again while it has other references */
    size_t room;
};

/* The rows that the answer to a member's last request has. */
struct chunk_reads {
    size_t n, room;
    uint64_t *keys; /* [n] */
    bool is_local;  /* the member may read the answer in the store's segment */
    struct chunk_answer answer[CHUNK_ANSWERS];
};

/* A process that waits for the refusal of its contribution. */
struct chunk_refused {
    uint64_t incarnation; /* 0: none */
    uint64_t from;        /* stream of the push */
};

struct chunk_rows {
    struct shared_bucket *shared; /* NULL: the store was emptied */
    bool is_filled;               /* the bucket is complete, unless a part is missing (`part`) */
    struct handover_cursor part;
    /* first version of the store; the bucket may still have older ones of another generation */
    int64_t first;
    int64_t held; /* version that the stopped store has handed over, and holds; -1: none */
    const struct net_table *table;
    int number; /* number of the bucket in its table */
    struct merge *merge;
    float *weight; /* [n_members of struct aggregate] weight of each contribution */
    /* the contribution that arrived last, in the memory of the merge */
    struct merge_input last;
    int last_slot;
    size_t step_keys; /* keys of all contributions of the step, and read keys of their senders */
    struct chunk_reads *reads; /* [n_members] */
    /* The store's segment has CHUNK_ANSWERS areas for each member, from `area` on; area_bytes 0:
     * none. An area has a stamp and an answer. */
    size_t area, area_bytes;
    uint64_t n_keys;               /* keys in the requests to this store, for operators */
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
/* Returns the size of an area for the largest answer to one member. */
size_t chunk_rows_area_bytes(const struct chunk_state *c);
/* Provides memory for an answer to a member. */
enum status chunk_rows_take_answer(const struct store *s, struct chunk_rows *r, int member,
                                   size_t bytes, struct buf **out);
/* Returns true if the bucket can still read this version. */
bool chunk_rows_is_readable(const struct chunk_rows *r, uint64_t version);
/* Releases the bucket and all memory except for the struct. */
void chunk_rows_empty(const struct store *s, struct chunk_rows *r);
void chunk_rows_destroy(const struct store *s, struct chunk_rows *r); /* NULL is fine. */

#endif
