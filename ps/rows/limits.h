/* ps/rows/limits.h - admission, eviction and the bound of a bucket's rows. All decisions are pure
 * functions of the version, the keys of the step and the entries of the bucket: rows, and pending
 * entries of keys that have no row yet. They depend neither on memory nor on the time of a sweep.
 * - A key gets a row in the step that is the admit_after-th one to contribute to it.
 * - At version v, an entry is absent if its last step is below v - evict_after.
 * - A step that would leave more than max_rows entries first frees absent ones. If this is not
 *   enough, the step is refused (ROW_FULL_STOP), or the oldest entries that it does not change are
 *   evicted, by last step and then key, until 15/16 of max_rows are in use (ROW_FULL_EVICT).
 * Threads: one at a time; the caller has the bucket's lock.
 * Errors:  ST_RANGE (the bound refuses the step), ST_NOMEM; a failed call changes nothing. */
#ifndef PS_ROWS_LIMITS_H
#define PS_ROWS_LIMITS_H
#include "ps/rows/bucket.h"

enum { LIMITS_TEXT_BYTES = 256 };

struct limits_step {
    size_t n;
    const uint64_t *keys; /* keys with a gradient, ascending and unique */
    struct row **rows;    /* row of each key in memory, or NULL */
    struct row **pending; /* room for the pending entry of each key */
    uint64_t needed_rows; /* result of a refusal: entries after the step, without eviction */
};

/* Begins the next version (bucket_begin), and evicts entries. */
enum status limits_begin(struct bucket *b, struct limits_step *step);
/* Returns the row of key i, in order to change it, or NULL if the key has no row yet. */
struct row *limits_row(struct bucket *b, const struct limits_step *step, size_t i);
/* Frees entries that are absent in all readable versions, in a part of the bucket. Called after
 * each version. */
void limits_sweep(struct bucket *b);
/* Writes the error text of a refused step. max_rows: the setting of the whole table. */
void limits_text(const struct bucket *b, uint64_t needed_rows, const char *table, uint64_t max_rows,
                 char text[LIMITS_TEXT_BYTES]);

#endif
