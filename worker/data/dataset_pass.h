/* worker/data/dataset_pass.h - a pass over all samples of a set, from the first to the last, block
 * by block. If the set is in a mapped file, the system reads ahead. When a block begins, the pages
 * of the previous block are removed from the process: they stay in the system's cache while it has
 * enough memory, but no longer count as memory of the process. Owns: the advice about the file,
 * until the pass ends. Threads: one at a time for a file. Errors: none. */
#ifndef WORKER_DATA_DATASET_PASS_H
#define WORKER_DATA_DATASET_PASS_H
#include "worker/data/dataset.h"
#include "worker/data/reading.h"

struct dataset_pass {
    const struct dataset *d;
    int64_t first, end; /* samples of the current block */
    int64_t step;       /* number of samples in a block */
    struct reading reading;
};

/* Begins a pass. what: purpose of the pass, for log lines. */
void dataset_pass_begin(struct dataset_pass *p, const struct dataset *d, const char *what);
int dataset_pass_next(struct dataset_pass *p); /* returns 0 if there are no more blocks */
void dataset_pass_end(struct dataset_pass *p);

#endif
