/* checkpoint/tables_file.h - the rows of sparse tables in the files of a checkpoint. A bucket is in
 * one server's file, and has these tensors, in this order:
 *
 *   - `TABLE keys [17/64]`, I64 [n]: the keys, ascending as unsigned numbers;
 *   - `TABLE steps [17/64]`, I64 [n]: the version that changed the row last;
 *   - `TABLE rows [17/64]`, F32 [n, dim]: the values; BF16 if the table's row_dtype is bf16;
 *   - `TABLE slot 0 [17/64]`, F32 [n, dim] or [n, 1]: the optimizer's first slot; `slot 1` the
 *     second;
 *   - `TABLE pending keys [17/64]`, I64 [m]: the keys that have no row yet, ascending;
 *   - `TABLE pending steps [17/64]`, I64 [m]: the last version that counted a step of the key;
 *   - `TABLE pending counts [17/64]`, I64 [m]: the number of these steps, below admit_after. Only a
 *     table whose admit_after is above 1 has the tensors of pending keys.
 *
 * 17 is the number of the bucket, and 64 the number of buckets of the table. If the bucket's
 * version is not the step of the file, the metadata have "version TABLE keys [17/64]".
 * Owns:    a bucket that was read owns its arrays.
 * Threads: any.
 * Errors:  writing: ST_INVALID (a number is not finite), and those of safetensors_write. Reading:
 *          ST_CORRUPT, ST_NOT_FOUND, ST_IO, ST_NOMEM. Logged. */
#ifndef CHECKPOINT_TABLES_FILE_H
#define CHECKPOINT_TABLES_FILE_H
#include "checkpoint/restore.h"
#include "net/wire/tables.h"

/* Rows of one bucket at one version, and its pending keys, both in ascending order of keys. */
struct checkpoint_rows {
    int64_t n;
    const uint64_t *keys, *steps; /* [n] */
    const float *values;          /* [n * dim] */
    const float *slots;           /* the first slot of all rows, then their second slot */
    int64_t n_pending;            /* 0 if admit_after is 1 */
    const uint64_t *pending_keys, *pending_steps, *pending_counts; /* [n_pending] */
};

/* Buckets of a server. */
struct checkpoint_tables {
    const int *bucket; /* [n_buckets] chunk of each bucket, ascending */
    int n_buckets;
    const int64_t *version; /* [n_buckets] */
    /* floats of a row besides its values, of each table of the job: 0, 1, dim or 2 dim */
    const int *slot_floats;
    /* Copies bucket i, whose rows are borrowed until the next call. */
    enum status (*copy)(void *ctx, int i, struct checkpoint_rows *out);
    void *ctx;
};

enum { TABLES_FILE_MAX_PARTS = 8, TABLES_FILE_NAME_BYTES = CHUNKS_MAX_NAME + 80 };
/* Returns the number of tensors of one bucket of a table. */
int checkpoint_tables_n_parts(const struct net_table *t, int slot_floats);
/* Describes tensor i of a bucket: its name, which `name` receives, its dtype, and its shape with
 * the largest number of rows. */
void checkpoint_tables_describe(const struct chunks *c, int chunk, int slot_floats, int i,
                                char name[TABLES_FILE_NAME_BYTES], struct safetensors_tensor *out);
/* Adds the tensors of all buckets to a file. */
enum status checkpoint_tables_write(struct safetensors_writer *w, const struct chunks *c,
                                    const struct checkpoint_tables *tables, int64_t step);

/* A bucket of a checkpoint. */
struct checkpoint_bucket {
    int64_t version, n;
    uint64_t *keys, *steps;
    float *values, *slots; /* the order is that of struct checkpoint_rows */
    int64_t n_pending;
    uint64_t *pending_keys, *pending_steps, *pending_counts;
};

/* Returns true if the bucket can be read from the open files. */
bool checkpoint_restore_holds_bucket(const struct checkpoint_restore *r, int table, int bucket);
/* Reads a bucket. The keys of rows, and the pending keys, are ascending and belong to the bucket,
 * no key is in both lists, and no step is above the version. A count is at least 1, and below
 * admit_after. `table` is an index of the manifest's tables. slot_floats: floats that a row must
 * have besides its values. */
enum status checkpoint_restore_bucket(const struct checkpoint_restore *r, int table, int bucket,
                                      int slot_floats, struct checkpoint_bucket *out);
/* Returns the number of rows that a bucket has, without reading them; *version receives its
 * version. The checkpoint must hold the bucket. */
int64_t checkpoint_restore_bucket_rows(const struct checkpoint_restore *r, int table, int bucket,
                                       int64_t *version);
/* Reads only keys, steps and, if has_values is true, values of a bucket, with the same checks. */
enum status checkpoint_restore_bucket_read(const struct checkpoint_restore *r, int table,
                                           int bucket, bool has_values,
                                           struct checkpoint_bucket *out);
void checkpoint_bucket_free(struct checkpoint_bucket *b);

#endif
