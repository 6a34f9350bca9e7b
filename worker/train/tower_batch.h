/* worker/train/tower_batch.h - the samples of one batch of a tower: their indices in the data set
 * and their addresses. If the set has bytes, its samples are used in place, unless they are
 * augmented. Samples of other sets are converted to floats.
 * Owns:    its lists, and the memory of floats and augmented samples.
 * Threads: one at a time. Errors: ST_NOMEM, and those of dataset_sample, logged. */
#ifndef WORKER_TRAIN_TOWER_BATCH_H
#define WORKER_TRAIN_TOWER_BATCH_H
#include "worker/train/batch_keys.h"

struct tower_batch {        /* each list has [n] entries */
    uint32_t *item;         /* indices of the samples in the data set */
    uint64_t *position;     /* positions of the samples in the order of reading */
    const uint8_t **images; /* samples, if the set has bytes */
    uint8_t *labels;        /* labels, if the set has bytes */
    /* samples of other sets: rows in the block `floats`; NULL if the set has bytes */
    float **rows, *floats;
    int32_t *classes;      /* labels, if the set does not have bytes */
    const float **targets; /* dataset_targets_of of the samples, may be used instead of labels */
    struct batch_keys keys;
    struct job_augment augment;
    uint64_t seed;    /* seed of the augmentation */
    uint8_t *changed; /* augmented samples, if the set has bytes; NULL: none */
    float *plain;     /* memory for one sample of floats before its augmentation; NULL: none */
};

/* Creates a batch of up to n samples of this set. The caller has zeroed *b; for training data it
 * has also set augment and seed. The caller must free *b after an error, too. */
enum status tower_batch_create(const struct dataset *d, int n, struct tower_batch *b);
void tower_batch_free(struct tower_batch *b);
/* Reads the first n samples, whose indices and positions the caller has set. Samples in a mapped
 * file are read from the disk during this call. Keys are read by batch_keys_read. */
enum status tower_batch_read(struct tower_batch *b, const struct dataset *d, int n);

#endif
