/* worker/data/dataset_targets.h - targets, a float for each output of a network instead of a label:
 * read from a file, and held against what a network gives.
 * Owns:    nothing. Threads: any.
 * Errors:  ST_CORRUPT (not finite), ST_UNSUPPORTED (too many), ST_MISMATCH, ST_NOMEM; one line. */
#ifndef WORKER_DATA_DATASET_TARGETS_H
#define WORKER_DATA_DATASET_TARGETS_H
#include "kernels/layer.h"
#include "worker/data/data_array.h"
#include "worker/data/dataset.h"

/* An array (n) or (n, K) of floats as floats of this machine, malloc'd; path: for errors. */
enum status dataset_targets_read(const struct data_array *a, const char *path, float **out);
/* Both have targets, or both labels. NULL: fits all. */
enum status dataset_targets_alike(const struct dataset *a, const struct dataset *b);
/* Labels below the network's outputs, of which there are two at least, or as many targets, which
 * its loss knows what to do with. */
enum status dataset_targets_check_outputs(const struct dataset *d, const struct layer *loss);
/* Refuses class labels of a training set for a loss that fits numbers, unless the model says that
 * one output for each class is meant. */
enum status dataset_targets_check_loss(const struct dataset *train, const struct layer *loss);

#endif
