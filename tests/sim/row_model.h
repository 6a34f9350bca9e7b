/* tests/sim/row_model.h - the right rows of one bucket of a table: a plain list with one place for
 * each key that a schedule can use. It follows docs/design/decisions/sparse-tables.md, and shares
 * with production only the initial values and the optimizers. Rows of bf16 are floats here, rounded
 * after each update. An entry is removed as soon as it is
 * absent, so there are no sweeps, undo logs or holds here.
 * Owns: nothing; a model is a value. Threads: any. Errors: none. */
#ifndef TESTS_SIM_ROW_MODEL_H
#define TESTS_SIM_ROW_MODEL_H
#include "ps/rows/bucket.h"

enum { ROW_MODEL_KEYS = 24, ROW_MODEL_DIM = 2, ROW_MODEL_FLOATS = 3 * ROW_MODEL_DIM };

struct row_entry {
    uint64_t step;  /* version that changed the row, or counted the key, last; 0: absent */
    uint64_t count; /* pending key: number of steps that have contributed to it; row: 0 */
    float data[ROW_MODEL_FLOATS]; /* row: values, then slots */
};

struct row_model {
    uint64_t version;
    struct row_entry entry[ROW_MODEL_KEYS];
};

struct row_sums { /* contributions of all members of a step */
    bool has[ROW_MODEL_KEYS];
    float sum[ROW_MODEL_KEYS][ROW_MODEL_DIM]; /* sums of weight times gradient */
    float scale;                              /* 1 divided by the total weight */
    float rate;                               /* factor of the learning rate */
};

/* Makes the next version. keys: all keys, ascending. Returns false if the bound of the bucket
 * refuses the step; the model is then unchanged. */
bool row_model_step(const struct bucket_config *c, const uint64_t *keys, struct row_model *m,
                    const struct row_sums *s);
/* Writes the values of key i: those of its row, or the initial ones. */
void row_model_values(const struct bucket_config *c, const uint64_t *keys,
                      const struct row_model *m, int i, float *values);

#endif
