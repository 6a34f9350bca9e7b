/* member/row_keys.h - the keys of one call for a table, by bucket, ascending in each bucket and
 * each once, with the places at which the call has them.
 * Owns:    its memory, which later calls use again.
 * Threads: one at a time for an object.
 * Errors:  ST_NOMEM. */
#ifndef MEMBER_ROW_KEYS_H
#define MEMBER_ROW_KEYS_H
#include "net/wire/tables.h"
#include <stdbool.h>

#define ROW_KEYS_MAX ((int64_t)INT32_MAX) /* keys of one call */

struct row_item { /* a key of the call, while they are sorted */
    uint64_t key;
    uint32_t at, bucket;
};

struct row_keys {
    size_t n_given, n; /* keys of the call; different keys among them */
    uint64_t *given;   /* [n_given] keys of the call */
    uint64_t *keys;    /* [n] */
    uint32_t *first;   /* [n_buckets + 1] index in `keys` of each bucket's first key */
    uint32_t *order;   /* [n_given] places of the call, in the order of `keys`; the places of one
                          key ascend */
    uint32_t *start;   /* [n + 1] index in `order` of each key's first place */
    size_t room;       /* keys for which there is memory */
    struct row_item *items; /* [2 * room] */
};

/* Returns true if *k was set to these keys, so that they need not be sorted again. */
bool row_keys_are(const struct row_keys *k, const uint64_t *keys, size_t n);
/* Sets *k, which was zeros at first, to the n keys of a call, at most ROW_KEYS_MAX. */
enum status row_keys_set(struct row_keys *k, const struct net_table *t, const uint64_t *keys,
                         size_t n);
void row_keys_free(struct row_keys *k);
/* Returns the number of a bucket's keys. */
static inline size_t row_keys_in(const struct row_keys *k, int bucket)
{
    return k->first[bucket + 1] - k->first[bucket];
}
/* Returns the first bucket that has more than `share` keys; -1: no bucket has. */
int row_keys_above(const struct row_keys *k, const struct net_table *t, int64_t share);
/* Sets sums[n][dim], in the order of k->keys, to the sums of gradients[n_given][dim] of equal keys.
 * The gradients of a key are added in the order of the call. */
void row_keys_sum(const struct row_keys *k, size_t dim, const float *gradients, float *sums);
/* Rows of some keys. */
struct row_source {
    size_t n;
    const uint64_t *keys; /* [n] ascending */
    const float *rows;    /* [n][dim] */
};
/* Copies the rows of the keys [from, to) of k->keys to out[n_given][dim], each to all places of its
 * key. Returns false if a key is missing in the source; then it has copied only some rows. */
bool row_keys_read(const struct row_keys *k, size_t from, size_t to,
                   const struct row_source *source, size_t dim, float *out);

#endif
