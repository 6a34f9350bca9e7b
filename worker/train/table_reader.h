/* worker/train/table_reader.h - reads rows of tables for inference, for example from a checkpoint,
 * instead of requesting them from servers.
 * Owns:    nothing. Threads: that of the inference. Errors: the reader's, which it logs. */
#ifndef WORKER_TRAIN_TABLE_READER_H
#define WORKER_TRAIN_TABLE_READER_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct table_reader {
    /* Sets rows[n][dim] to the rows of these keys, in their order. table: index of the table in
     * struct chunks. The keys are those of one batch, not sorted, and may repeat. */
    enum status (*read)(void *ctx, int table, const uint64_t *keys, size_t n, float *rows);
    void *ctx;
};

#endif
