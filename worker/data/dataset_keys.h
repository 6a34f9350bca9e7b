/* worker/data/dataset_keys.h - the inputs of keys of a data set: 64-bit numbers that identify rows
 * of tables. A cell (one column of one row) has any number of keys.
 * Threads: immutable once the set is open. */
#ifndef WORKER_DATA_DATASET_KEYS_H
#define WORKER_DATA_DATASET_KEYS_H
#include <stdint.h>

enum { DATASET_MAX_KEY_INPUTS = 16 };

/* The keys of one input: row after row, column after column, in the order of each cell. */
struct dataset_key_input {
    int n_columns;
    const uint64_t *keys;
    /* [rows * n_columns + 1] index of each cell's first key; NULL: each cell has one key */
    const uint32_t *first;
};

struct dataset_keys {
    int n; /* inputs, in the order of the model's inputs of keys */
    struct dataset_key_input input[DATASET_MAX_KEY_INPUTS];
};

#endif
