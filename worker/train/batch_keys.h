/* worker/train/batch_keys.h - the keys of one batch: copies of the keys of its samples, as one list
 * for each input of keys.
 * Owns:    the lists, which have memory for one key in each cell, and grow if a batch has more.
 * Threads: one at a time. Errors: ST_NOMEM; ST_INVALID: too many keys. Both are logged. */
#ifndef WORKER_TRAIN_BATCH_KEYS_H
#define WORKER_TRAIN_BATCH_KEYS_H
#include "worker/data/dataset.h"
#include "worker/data/dataset_keys.h"
#include "worker/train/bags.h"

struct batch_keys {
    int n;             /* inputs of keys; 0: none */
    struct bags *bags; /* [n] keys of the batch that was read last; they borrow the lists below */
    struct batch_key_list {
        uint64_t *keys;  /* [room] */
        uint32_t *first; /* [cells of a batch + 1]; NULL: each cell has one key */
        size_t room;
    } * list; /* [n] */
};

/* Creates lists for up to n samples of this set, which may have no keys. The caller has zeroed *b,
 * and must free it after an error, too. */
enum status batch_keys_create(const struct dataset *d, int n, struct batch_keys *b);
void batch_keys_free(struct batch_keys *b);
/* Reads the keys of these samples of the set: item[n]. */
enum status batch_keys_read(struct batch_keys *b, const struct dataset *d, const uint32_t *item,
                            int n);

#endif
