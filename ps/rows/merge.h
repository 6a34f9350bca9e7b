/* ps/rows/merge.h - the contributions of a step to one bucket. Contributions that arrive before the
 * last one are copied. Then one pass merges the ascending keys of all members, and updates each row
 * once. For each key, the sum begins with weight times gradient of the lowest rank that has the
 * key, and the contributions of higher ranks follow in rank order. So the bits do not depend on the
 * order of arrival.
 * Owns:    copies of contributions, and memory for the pass, kept from step to step.
 * Threads: one at a time; the caller has the bucket's lock.
 * Errors:  ST_NOMEM, ST_RANGE (the bucket is full); a failed call changes no row. */
#ifndef PS_ROWS_MERGE_H
#define PS_ROWS_MERGE_H
#include "ps/rows/bucket.h"

struct merge_input {       /* a contribution, whose keys bucket_check_keys has checked */
    size_t n;              /* number of keys; at most 4 million */
    float weight;          /* if it is 0, the keys have no effect */
    const void *keys;      /* no other process can write here, as it could in shared memory */
    const void *gradients; /* n * dim floats; keys and gradients may have any alignment */
};

struct merge;
enum status merge_create(int n_members, int dim, struct merge **out);
void merge_destroy(struct merge *m); /* NULL is fine. */

/* Provides memory for n keys and n * dim floats of a contribution, which the caller fills and
 * checks. Forgets an earlier contribution of the rank. */
enum status merge_room(struct merge *m, int rank, size_t n, uint64_t **keys, float **gradients);
/* Keeps the contribution that lies in the memory of the last call of merge_room. */
void merge_set(struct merge *m, int rank, size_t n, float weight);
/* Copies the contribution of the member `rank`; a second one of the same rank replaces the first.
 */
enum status merge_keep(struct merge *m, int rank, const struct merge_input *in);
/* Forgets all copies. */
void merge_clear(struct merge *m);
/* Makes the next version of the bucket from the copies and the contribution of `rank`, which is
 * read in place, and forgets the copies. If the call fails, the copies stay. The gradient of a row
 * is its sum times `scale`. rate: factor of the learning rate (optim_rows_begin). */
enum status merge_run(struct merge *m, struct bucket *b, int rank, const struct merge_input *last,
                      float scale, float rate);
/* Returns true if a row, or its slots, are not finite after the last update by merge_run, and sets
 * *key to the lowest such key. */
bool merge_not_finite(const struct merge *m, uint64_t *key);
/* Returns the rows that the step needs which merge_run refused with ST_RANGE (for limits_text). */
uint64_t merge_needed_rows(const struct merge *m);
/* Returns the bytes that the copies and the pass have allocated. */
size_t merge_bytes(const struct merge *m);

#endif
