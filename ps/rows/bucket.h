/* ps/rows/bucket.h - the rows of one bucket of a table, at one version. A row that does not exist
 * has initial values, which are a pure function of the job's seed, the table's name, the key and
 * the element. So reads create nothing. Owns:    the rows. Threads: one at a time; the caller has a
 * lock for each bucket. Errors:  ST_INVALID (logged), ST_NOMEM, ST_RANGE; a failed call changes
 * nothing. */
#ifndef PS_ROWS_BUCKET_H
#define PS_ROWS_BUCKET_H
#include "kernels/vector/optim_rows.h"
#include "ps/rows/row_table.h"

enum bucket_init { BUCKET_ZEROS, BUCKET_UNIFORM, BUCKET_NORMAL, BUCKET_N_INITS };

struct bucket_config {
    int dim; /* 1 to OPTIM_ROWS_MAX_DIM */
    struct optim_rows_config optimizer;
    enum bucket_init init;
    float init_scale;  /* uniform: limit of the absolute value; normal: standard deviation */
    uint64_t init_key; /* result of bucket_init_key */
    uint32_t number;   /* number of the bucket in its table */
    uint32_t n_buckets;
};

struct bucket {
    struct bucket_config config;
    uint64_t version;      /* version of the rows, from 0 */
    size_t n_slots;        /* floats of a row besides its values */
    struct row_table rows; /* data: values, then slots */
};

/* Returns the key of the initial values of a table. */
uint64_t bucket_init_key(uint64_t seed, const char *table);
/* Writes the initial values of the row of `key`. */
void bucket_initial(const struct bucket_config *config, uint64_t key, float *values);

/* Creates an empty bucket of version 0. */
enum status bucket_create(const struct bucket_config *config, struct bucket **out);
void bucket_destroy(struct bucket *b); /* NULL is fine. */

/* Checks keys that a message contains: they must be ascending and unique, and belong to the bucket.
 * Returns NULL, or the reason of a refusal, and then sets *at to the place of the key. */
const char *bucket_check_keys(const struct bucket *b, const void *keys, size_t n, size_t *at);
/* Sets values (n * dim) to the rows of the keys, in their order. keys: any alignment and order. */
void bucket_read(const struct bucket *b, const void *keys, size_t n, float *values);
/* Adds the row of a key that has none, with initial values and slots of zero; `step` is not set.
 * row_table_reserve precedes it. */
struct row *bucket_add_row(struct bucket *b, uint64_t key);
/* Returns the bytes that the bucket has allocated. */
size_t bucket_bytes(const struct bucket *b);

#endif
