/* worker/data/dataset_classes.h - checks the classes of a training set, and counts the classes of
 * other sets for which the training set has no sample. Owns: nothing. Threads: any. Errors:
 * ST_INVALID, ST_NOMEM; logged. */
#ifndef WORKER_DATA_DATASET_CLASSES_H
#define WORKER_DATA_DATASET_CLASSES_H
#include "worker/data/dataset.h"

/* Returns the number of classes with samples in d but none in train; *first: the lowest such class.
 * Returns 0 for sets without labels. */
int dataset_classes_lacking(const struct dataset *train, const struct dataset *d, int *first);
/* Refuses a training set whose samples all have the same class. Warns of classes without a sample,
 * and of labels that look like targets. */
enum status dataset_classes_check(const struct dataset *train);

#endif
