/* ps/rows/bucket_copy.h - copies a bucket to arrays, and back, for files and for moves to another
 * server. The entries of a bucket are its rows and its pending keys. A copy may consist of parts:
 * each part has the lowest keys above the cursor, which is the last key of the part before.
 * Owns:    a part owns its blocks.
 * Threads: bucket_copy locks the bucket; callers of all other functions have its lock.
 * Errors:  ST_NOT_FOUND (the version is not readable), ST_INVALID (not logged), ST_NOMEM,
 *          ST_RANGE; a failed call changes nothing. */
#ifndef PS_ROWS_BUCKET_COPY_H
#define PS_ROWS_BUCKET_COPY_H
#include "base/buf.h"
#include "ps/rows/shared_bucket.h"

struct bucket_entries { /* both in ascending order of keys */
    size_t n;
    const uint64_t *keys, *steps; /* [n] */
    const float *values;          /* [n * dim] */
    const float *slots;           /* the first slot of all rows, then their second slot */
    size_t n_pending;
    const uint64_t *pending_keys, *pending_steps, *pending_counts; /* [n_pending] */
};

struct bucket_part {
    struct bucket_entries entries; /* point into the blocks */
    /* NULL: no rows, no slots, or no pending keys. pending: keys, then steps, then counts */
    struct buf *keys, *steps, *values, *slots, *pending;
    bool has_more; /* entries with higher keys may follow */
};

/* Returns the bytes of a row in a part. */
size_t bucket_row_bytes(const struct bucket *b);
/* Copies at most `most` entries of a version that the caller holds, or after which no further one
 * is made. after: cursor; NULL: the copy begins with the lowest key. If a part has no entries, no
 * further ones follow. Locks the bucket again and again, for a short time each. */
enum status bucket_copy(struct shared_bucket *s, uint64_t version, const uint64_t *after,
                        size_t most, struct bucket_part *out);
void bucket_part_free(struct bucket_part *p); /* zeros are fine */

/* Sets the version of an empty bucket that has made no version, before bucket_add fills it. */
void bucket_begin_fill(struct bucket *b, uint64_t version);
/* Adds entries whose keys are above the cursor of the part before. They must be ascending and
 * unique, belong to the bucket, fit its bound, and have no step above its version. ST_INVALID:
 * `*why` is the reason. */
enum status bucket_add(struct bucket *b, const uint64_t *after, const struct bucket_entries *from,
                       const char **why);

#endif
