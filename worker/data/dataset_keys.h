/* worker/data/dataset_keys.h - the inputs of keys of a data set: 64-bit numbers that identify rows
 * of tables. A cell (one column of one row) has any number of keys.
 * Owns:    nothing; the set owns the lists.
 * Threads: immutable once the set is open.
 * Errors:  ST_CORRUPT, ST_MISMATCH, ST_NOMEM; logged in one line with the file and the array. */
#ifndef WORKER_DATA_DATASET_KEYS_H
#define WORKER_DATA_DATASET_KEYS_H
#include "base/status.h"
#include "worker/data/data_array.h"
#include "worker/data/dataset_request.h"
#include <stdint.h>

enum { DATASET_MAX_KEY_INPUTS = 16, DATASET_MAX_KEY_COLUMNS = 1024 };

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

/* Makes an input of an array of whole numbers, (n) or (n, columns): one key in each cell. Negative
 * numbers keep their bits as 64-bit numbers. *own: memory of the keys, which the caller frees;
 * NULL: they are those of the array. path: file of the array. n: number of samples. */
enum status dataset_keys_read(const struct dataset_key_source *source, const struct data_array *a,
                              const char *path, int64_t n, struct dataset_key_input *out,
                              uint64_t **own);
/* Makes the samples of a set whose n rows have only keys: one byte, which is 0, for each row. path:
 * the set's file. */
enum status dataset_keys_alone(const char *path, int64_t n, struct data_array *out);

#endif
