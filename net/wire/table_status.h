/* net/wire/table_status.h - one server's part of a table (tables.h), as a status reports it.
 * Threads: plain values without a lock. Errors: none. */
#ifndef NET_WIRE_TABLE_STATUS_H
#define NET_WIRE_TABLE_STATUS_H
#include <stdint.h>

struct net_status_table {
    int n_buckets;         /* buckets that the server has */
    uint64_t rows;         /* rows in memory, also those that have expired and are not freed yet */
    uint64_t pending;      /* keys that have contributed, but have no row yet (admit_after) */
    uint64_t bytes;        /* memory of the rows, the pending keys and the undo logs */
    uint64_t removed;      /* rows that were evicted, or freed after they had expired */
    uint64_t keys;         /* keys in the requests of this generation: of gradients, and to read */
    int hottest;           /* number of the bucket with the most keys in its requests */
    uint64_t hottest_keys; /* keys in the requests to this bucket */
};

/* Returns the keys of the hottest bucket, divided by the average of the server's buckets. If no
 * request had keys, the result is 1. */
static inline double net_status_table_imbalance(const struct net_status_table *t)
{
    return t->keys == 0 ? 1 : (double)t->hottest_keys * t->n_buckets / (double)t->keys;
}

#endif
