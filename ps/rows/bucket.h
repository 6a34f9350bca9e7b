/* ps/rows/bucket.h - the rows of one bucket of a table, at the present version and at older ones
 * that are needed (undo.h). A row that does not exist has initial values (row_init.h). So reads
 * create nothing.
 * Owns:    the rows, and their undo logs.
 * Threads: one at a time; the caller has a lock for each bucket.
 * Errors:  ST_NOMEM, ST_RANGE; a failed call changes nothing. */
#ifndef PS_ROWS_BUCKET_H
#define PS_ROWS_BUCKET_H
#include "kernels/vector/dtype.h"
#include "kernels/vector/optim_rows.h"
#include "kernels/vector/row_init.h"
#include "ps/rows/row_table.h"
#include "ps/rows/undo.h"
#include <stdbool.h>

enum { BUCKET_MAX_HOLDS = 8 };

struct bucket_config {
    int dim;          /* 1 to OPTIM_ROWS_MAX_DIM */
    enum dtype dtype; /* memory of values: DTYPE_F32 or DTYPE_BF16; slots are floats */
    struct optim_rows_config optimizer;
    struct row_init_config init;
    uint32_t number; /* number of the bucket in its table */
    uint32_t n_buckets;
    bool keeps_previous; /* the version before the present one stays readable (sync) */
    /* limits (limits.h) */
    uint64_t max_rows;    /* rows and pending entries of this bucket, above 0 (tables_share) */
    uint64_t admit_after; /* steps that contribute to a key before it has a row; 0 and 1: one */
    uint64_t evict_after; /* steps without a gradient after which a row is absent; 0: never */
    enum row_full when_full;
};

struct bucket {
    struct bucket_config config;
    uint64_t first;           /* version with which the bucket began */
    uint64_t version;         /* version of the rows */
    size_t value_floats;      /* memory of a row's values, in floats */
    size_t n_slots;           /* floats of a row besides its values */
    struct row_table rows;    /* data: values, then slots */
    struct undo undo;         /* older versions of rows */
    struct row_table pending; /* keys that were not admitted yet; data: number of steps */
    struct undo undo_pending;
    uint64_t n_removed; /* rows that were evicted, or freed after they had expired */
    uint32_t sweep_rows, sweep_pending; /* places at which the next sweep continues */
    uint64_t holds[BUCKET_MAX_HOLDS];   /* held versions, ascending */
    int n_holds;
};

/* Writes the initial values of the row of `key`, as numbers of the bucket's dtype. */
void bucket_initial(const struct bucket_config *config, uint64_t key, float *values);
/* Returns the values of a row: in its memory or, if they are not floats there, in `room`, which has
 * room for them. */
static inline const float *bucket_values(const struct bucket *b, const struct row *row, float *room)
{
    if (b->config.dtype == DTYPE_F32)
        return row->data;
    dtype_decode(b->config.dtype, room, row->data, (size_t)b->config.dim);
    return room;
}
/* Sets the values of a row. They must be numbers of the bucket's dtype. */
void bucket_set_values(const struct bucket *b, struct row *row, const float *values);
static inline float *bucket_slots(const struct bucket *b, struct row *row)
{
    return row->data + b->value_floats;
}

/* Returns the bytes that the rows of a bucket may need, with their index. */
double bucket_most_bytes(size_t dim, enum dtype dtype, enum optim_rows_kind kind, int64_t max_rows);

/* Creates an empty bucket of version 0. The settings are valid, as tables_add has checked them. */
enum status bucket_create(const struct bucket_config *config, struct bucket **out);
void bucket_destroy(struct bucket *b); /* NULL is fine. */

/* Checks keys that a message contains: they must be ascending and unique, and belong to the bucket.
 * Returns NULL, or the reason of a refusal, and then sets *at to the place of the key. */
const char *bucket_check_keys(const struct bucket *b, const void *keys, size_t n, size_t *at);
/* Sets rows[i] to the row of key i in a readable version, or to NULL. The rows must not be changed,
 * and are valid until the next change. keys: ascending, of any alignment. */
enum status bucket_find(const struct bucket *b, uint64_t version, const void *keys, size_t n,
                        struct row **rows);
/* Does the same for the rows or for the pending entries. */
enum status bucket_find_entries(const struct bucket *b, bool is_pending, uint64_t version,
                                const void *keys, size_t n, struct row **rows);
/* Sets values (n * dim) to the rows of the keys in a readable version. keys: ascending, of any
 * alignment. ST_NOT_FOUND: the version is not readable. */
enum status bucket_read(const struct bucket *b, uint64_t version, const void *keys, size_t n,
                        float *values);
/* Does the same, but encodes the rows one after the other in a dtype without blocks. */
enum status bucket_encode(const struct bucket *b, uint64_t version, const void *keys, size_t n,
                          enum dtype dtype, void *out);
/* Sets counts[i] to the number of steps that have contributed to key i without making a row. keys:
 * ascending, of any alignment. */
enum status bucket_find_pending(const struct bucket *b, uint64_t version, const void *keys,
                                size_t n, uint64_t *counts);
/* Allocates *keys, and fills it with the keys of all rows of a readable version, ascending. */
enum status bucket_list_keys(const struct bucket *b, uint64_t version, uint64_t **keys, size_t *n);
/* Returns true if an entry with this last step is absent at `version`. */
bool bucket_is_expired(const struct bucket_config *config, uint64_t step, uint64_t version);
/* Returns the bytes that the bucket has allocated. */
size_t bucket_bytes(const struct bucket *b);

/* Functions below are in bucket_versions.c. */

/* Returns true if the version is the present one, the previous one if it is kept, or held. */
bool bucket_is_readable(const struct bucket *b, uint64_t version);
/* Keeps a readable version readable until it is released as often as it was held. ST_NOT_FOUND: it
 * is not readable; ST_BUSY: there are BUCKET_MAX_HOLDS holds. */
enum status bucket_hold(struct bucket *b, uint64_t version);
void bucket_release(struct bucket *b, uint64_t version);
/* Returns the oldest readable version. */
uint64_t bucket_oldest(const struct bucket *b);

/* Makes a readable version the present one, and forgets all later versions. ST_NOT_FOUND: it is not
 * readable; ST_BUSY: a later version is held. */
enum status bucket_rewind(struct bucket *b, uint64_t version);

/* Begins a new version: allocates memory for n_changes changed or removed rows, and for n_new new
 * ones. Then each key changes at most once, and bucket_end makes the version. */
enum status bucket_begin(struct bucket *b, size_t n_changes, size_t n_new);
/* Allocates memory for changes of pending entries. If this fails, the version has not begun. */
enum status bucket_begin_pending(struct bucket *b, size_t n_changes, size_t n_new);
/* Returns the row of a key in order to change it. row: the row in memory, or NULL. If it is NULL or
 * expired, the row gets initial values and slots of zero. Sets its step to the new version. */
struct row *bucket_change(struct bucket *b, uint64_t key, struct row *row);
void bucket_remove(struct bucket *b, struct row *row);
/* Counts the step for a key without a row. entry: the pending entry in memory, or NULL; the count
 * of an expired one begins again. */
void bucket_count_pending(struct bucket *b, uint64_t key, struct row *entry);
/* Returns the number of steps that an entry has counted. */
uint64_t bucket_pending_count(const struct row *entry);
void bucket_remove_pending(struct bucket *b, struct row *entry);
void bucket_end(struct bucket *b);

#endif
