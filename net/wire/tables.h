/* net/wire/tables.h - sparse tables: rows of `dim` floats, each with a 64-bit key, cut into
 * buckets. The buckets of all tables follow the chunks of the parameters in the table of chunks,
 * table after table, so that each bucket is a chunk of its own (I5). A bucket has no elements in
 * the flat block of parameters.
 * Owns:    nothing; struct chunks owns its copies of the tables.
 * Threads: any.
 * Errors:  ST_INVALID (logged), ST_NOMEM. */
#ifndef NET_WIRE_TABLES_H
#define NET_WIRE_TABLES_H
#include "base/rng.h"
#include "kernels/vector/optim_rows.h"
#include "kernels/vector/row_settings.h"
#include "net/wire/chunks.h"
#include <stdbool.h>

enum {
    TABLES_MAX = 256, /* tables of a job */
    TABLES_MAX_DIM = 1024,
    TABLES_MAX_BUCKETS = 1024, /* buckets of one table, a power of two */
    TABLES_MAX_ALL_BUCKETS = 16384,
    TABLES_MAX_STEP_ROWS = 1 << 24,
};
#define TABLES_MAX_ROWS ((int64_t)1 << 40)
#define TABLES_MAX_STEPS ((int64_t)1 << 40) /* limit of admit_after and evict_after */

struct net_table {
    const char *name;
    int dim;                            /* floats of a row */
    int n_buckets;                      /* fixed for the life of the job */
    int64_t max_rows;                   /* rows of the whole table */
    int64_t step_rows;                  /* keys of one member in one step */
    struct optim_rows_config optimizer; /* its total_steps is that of the job, and not compared */
    enum row_init init;
    float init_scale;    /* uniform: limit of the absolute value; normal: standard deviation */
    int64_t admit_after; /* steps that contribute to a key before it has a row; default 1 */
    int64_t evict_after; /* steps without a gradient after which a row is absent; 0: never */
    enum row_full when_full;
    enum dtype row_dtype; /* format of values in servers: DTYPE_F32 or DTYPE_BF16 */
    int first_chunk;      /* chunk of bucket 0; filled by tables_add */
};

/* Adds tables to a table of chunks that has none, and copies their names. n 0: no tables. If
 * admit_after is 0, it becomes 1. After an error the table of chunks is unchanged. */
enum status tables_add(struct chunks *c, const struct net_table *tables, int n);
/* Frees n tables and their names; NULL is fine. */
void tables_free(struct net_table *tables, int n);

/* Returns the table of a bucket. */
static inline const struct net_table *tables_of(const struct chunks *c, int chunk)
{
    return &c->tables[c->chunks[chunk].table];
}
/* Returns the number of a key's bucket in its table. */
static inline int tables_bucket(const struct net_table *t, uint64_t key)
{
    return (int)(rng_mix(key) & (uint64_t)(t->n_buckets - 1));
}
/* Returns the bound of the rows of one bucket, if the table may have n rows: n/B + 6 sqrt(n/B) +
 * 16, rounded up, where B is the number of buckets. If n keys are random, the probability that a
 * bucket has more of them is about 10^-9. */
int64_t tables_share(const struct net_table *t, int64_t n);

/* Returns the size of a block of memory for all contributions: that of the parameters
 * (chunks_wire_bytes), and from the next multiple of 4096 bytes on a range for each bucket, of
 * tables_range_bytes bytes. */
size_t tables_wire_bytes(const struct chunks *c, enum dtype d);
/* Returns the most bytes that a payload to one bucket has (rows.h), rounded up to a multiple of
 * 4096 bytes. */
size_t tables_range_bytes(const struct net_table *t);
/* Returns true if a payload to one bucket has at most CHUNKS_MAX_BYTES, for step_rows keys in a
 * step. dim and n_buckets are valid. */
bool tables_step_fits(const struct net_table *t);

/* Assigns the buckets to servers, table after table. server[n_chunks]: server of each chunk; -1 for
 * a bucket without a server. The numbers of one table's buckets of two servers differ by at most
 * one. A bucket moves only if its server has more buckets than it may keep; the highest buckets
 * move first. If several servers may receive a bucket, it goes to the one with the fewest buckets
 * of the earlier tables, and among these to the lowest number. */
enum status tables_place(const struct chunks *c, int n_servers, int *server);

/* Compares the tables of two tables of chunks, like chunks_compare. */
enum status tables_compare(const struct chunks *servers, const struct chunks *worker, char *why,
                           size_t why_bytes);

#endif
