/* worker/data/dataset_pass.h - one goes over all samples of a set, from the first to the last,
 * block by block. Of a set in a mapped file the system reads ahead meanwhile, and each block's
 * pages leave the process with the next: what has been read is in the system's cache, for as long
 * as there is room, but no memory of the process. Owns:    how the system reads the file, until the
 * pass ends. Threads: one at a time for a file. Errors:  none. */
#ifndef WORKER_DATA_DATASET_PASS_H
#define WORKER_DATA_DATASET_PASS_H
#include "worker/data/dataset.h"
#include "worker/data/reading.h"

struct dataset_pass {
    const struct dataset *d;
    int64_t first, end; /* samples of the block at hand */
    int64_t step;       /* samples of a block */
    struct reading reading;
};

/* what: for lines: what it is for. */
void dataset_pass_begin(struct dataset_pass *p, const struct dataset *d, const char *what);
int dataset_pass_next(struct dataset_pass *p); /* 0: there is no block left */
void dataset_pass_end(struct dataset_pass *p);

#endif
