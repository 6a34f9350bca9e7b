/* worker/data/dataset_same.h - compares the samples of two sets.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef WORKER_DATA_DATASET_SAME_H
#define WORKER_DATA_DATASET_SAME_H
#include "worker/data/dataset.h"

/* Returns true if two sets that were opened, and not split, have the same samples, byte for byte,
 * in the same order. */
bool dataset_same_samples(const struct dataset *a, const struct dataset *b);

#endif
