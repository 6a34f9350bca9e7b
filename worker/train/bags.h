/* worker/train/bags.h - bags of rows of a table: a layer's output for a cell is the sum or the mean
 * of the rows of the cell's keys. Rows of a batch are in the order of its keys, so a key that
 * occurs twice has two rows and two gradients. Owns:    nothing. Threads: those of the crew; calls
 * for different batches may run at the same time. Errors:  none. */
#ifndef WORKER_TRAIN_BAGS_H
#define WORKER_TRAIN_BAGS_H
#include "member/crew.h"
#include <stdbool.h>
#include <stdint.h>

/* Keys of one input in a batch: sample after sample, column after column, in the order of each
 * cell. */
struct bags {
    size_t n_cells, n_keys;
    const uint64_t *keys; /* [n_keys] */
    /* [n_cells + 1] index of each cell's first key; NULL: each cell has one key */
    const uint32_t *first;
};

/* How a layer computes with bags. */
struct bags_rule {
    size_t dim; /* floats of a row */
    bool mean;  /* false: sum */
};

/* Sets out[n_cells][dim] to the bags of rows[n_keys][dim]. A cell without keys becomes zeros. The
 * rows of a cell are added in the order of its keys. */
void bags_sum(const struct bags *b, const struct bags_rule *rule, const struct crew *crew,
              const float *rows, float *out);
/* Sets row_grads[n_keys][dim] to the gradients of the rows, multiplied by `weight`.
 * grads[n_cells][dim]: gradients of the bags; may be row_grads if each cell has one key. */
void bags_spread(const struct bags *b, const struct bags_rule *rule, const struct crew *crew,
                 float weight, const float *grads, float *row_grads);

#endif
