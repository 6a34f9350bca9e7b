/* worker/data/dataset_classes.h - classes that a set has samples of and another has not.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef WORKER_DATA_DATASET_CLASSES_H
#define WORKER_DATA_DATASET_CLASSES_H
#include "worker/data/dataset.h"

/* How many classes d has samples of and train has not; *first: the lowest of them. Of sets without
 * labels: 0. */
int dataset_classes_lacking(const struct dataset *train, const struct dataset *d, int *first);

#endif
