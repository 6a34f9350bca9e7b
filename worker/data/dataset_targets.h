/* worker/data/dataset_targets.h - targets: a float for each output of a network instead of a label,
 * read from a file and compared with the outputs.
 * Owns:    nothing. Threads: any.
 * Errors:  ST_CORRUPT (not finite), ST_UNSUPPORTED (too many), ST_MISMATCH, ST_NOMEM; logged in one
 *          line. */
#ifndef WORKER_DATA_DATASET_TARGETS_H
#define WORKER_DATA_DATASET_TARGETS_H
#include "kernels/layer.h"
#include "worker/data/data_array.h"
#include "worker/data/dataset.h"

/* Reads an array of shape (n) or (n, K) as floats, malloc'd; path: name of the file, for errors. */
enum status dataset_targets_read(const struct data_array *a, const char *path, float **out);
/* Checks that both sets have targets, or that both have labels. NULL fits every set. */
enum status dataset_targets_alike(const struct dataset *a, const struct dataset *b);
/* Returns true if the labels 0 and 1 are the targets of a network that has only one output. */
static inline bool dataset_targets_are_labels(const struct dataset *d, int outputs)
{
    return d->labels && outputs == 1;
}

/* Returns true if a backend receives targets instead of labels for this set. */
static inline bool dataset_by_targets(const struct dataset *d, int outputs)
{
    return d->targets || dataset_targets_are_labels(d, outputs);
}

/* Returns the targets of the i-th sample; for labels, the target of the only output. */
const float *dataset_targets_of(const struct dataset *d, int64_t i);
/* Checks that all labels are below the number of the network's outputs. A single output
 * distinguishes the classes 0 and 1, if the loss is a sigmoid_cross_entropy. For targets, checks
 * that each sample has a target for each output, and that the loss supports targets. */
enum status dataset_targets_check_outputs(const struct dataset *d, const struct layer *loss);
/* Refuses a training set with class labels if the network's loss compares numbers, unless the model
 * declares one output for each class. */
enum status dataset_targets_check_loss(const struct dataset *train, const struct layer *loss);

#endif
