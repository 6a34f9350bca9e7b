/* member/row_reads.h - reads the rows of a table's buckets from the answers to pushes and pulls.
 * The exchange keeps the rows of a bucket's last answer until the bucket's next request. Owns:
 * nothing. Threads: one at a time for a table. Errors:  those of net_exchange_wait_until and
 * net_exchange_pull_rows; ST_REBASED; ST_PROTOCOL, logged: a server sent rows of another version.
 */
#ifndef MEMBER_ROW_READS_H
#define MEMBER_ROW_READS_H
#include "member/row_keys.h"
#include "member/updates.h"

struct row_reads {
    const struct updates *updates;
    const struct net_table *table;
    const struct row_keys *keys;
    /* [n_buckets] index in keys->keys of each bucket's first key without a row; keys->first before
     * the first call. A call that returns ST_DEADLINE can be repeated. */
    uint32_t *done;
    int64_t version; /* version that the buckets must have at least */
    bool exact;      /* true: exactly this version */
    float *rows;     /* [keys->n_given][dim] */
    int64_t deadline_ns;
};

/* Reads the rows of all keys. */
enum status row_reads_run(const struct row_reads *r);

#endif
