/* net/exchange/rows.h - pushes and reads rows of tables (net/wire/tables.h) through an exchange.
 * The rows of a bucket, which is a chunk, are pushed and read together. The functions of exchange.h
 * that wait, flush, or return a version are for buckets, too; net_exchange_push and
 * net_exchange_pull are for the other chunks alone.
 *
 * Each request copies its keys and gradients, and each answer has the rows of the request's read
 * keys, all of the version that net_exchange_version returns. A generation begins without rows, so
 * the caller pulls the rows of its first step.
 * Owns:    the copies, until net_exchange_destroy.
 * Threads: any; two threads may use different buckets at the same time.
 * Errors:  those of net_exchange_push; ST_RANGE: the chunk is not a bucket, or a request has more
 *          keys than the bucket's share of step_rows; ST_NOMEM. */
#ifndef NET_EXCHANGE_ROWS_H
#define NET_EXCHANGE_ROWS_H
#include "net/exchange/exchange.h"

/* Part of one member in a step, for one bucket. Keys are ascending and unique. */
struct net_rows {
    size_t n; /* keys with a gradient */
    const uint64_t *keys;
    const float *gradients; /* [n * dim] in the order of the keys */
    size_t n_reads;         /* keys whose rows the answer has */
    const uint64_t *reads;
};

/* Queues a contribution to a bucket, computed on version `step`; each member pushes to each bucket
 * in each step, even without keys. A contribution of weight 0 counts but has no gradients, so
 * `keys` and `gradients` are not read. */
enum status net_exchange_push_rows(struct net_exchange *x, int chunk, int64_t step,
                                   const struct net_rows *rows, float weight);
/* Requests rows of a bucket's version `step` or later. */
enum status net_exchange_pull_rows(struct net_exchange *x, int chunk, int64_t step,
                                   const uint64_t *reads, size_t n_reads);
/* Returns the rows of the last answer, [*n * dim] in the order of *keys, the read keys of its
 * request. *n is 0 if no request has named keys in this generation. The caller has waited for the
 * chunk; keys and rows stay valid until its next request. */
const float *net_exchange_rows(struct net_exchange *x, int chunk, const uint64_t **keys, size_t *n);

#endif
