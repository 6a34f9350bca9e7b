/* worker/data/dataset_classes.h - counts the classes of sets: which of them have training samples.
 * Owns: nothing. Threads: any. Errors: ST_INVALID, ST_NOMEM; logged. */
#ifndef WORKER_DATA_DATASET_CLASSES_H
#define WORKER_DATA_DATASET_CLASSES_H
#include "worker/data/dataset.h"

/* How many classes d has samples of and train has not; *first: the lowest of them. Of sets without
 * labels: 0. */
int dataset_classes_lacking(const struct dataset *train, const struct dataset *d, int *first);
/* Refuses a training set whose samples are all of one class. Warns of classes without a sample, and
 * of labels that are numbers to fit rather than classes. */
enum status dataset_classes_check(const struct dataset *train);

#endif
