/* worker/train/tower_batch.h - the samples that a tower computes on at once: which they are, and
 * where they lie. Those of a set of bytes stay where they are, unless they are augmented; others
 * are made floats. Owns:    its lists, and the memory of floats and augmented samples. Threads: one
 * at a time. Errors: ST_NOMEM, and those of dataset_sample, logged. */
#ifndef WORKER_TRAIN_TOWER_BATCH_H
#define WORKER_TRAIN_TOWER_BATCH_H
#include "worker/data/dataset.h"

struct tower_batch {        /* [n] of each list */
    uint32_t *item;         /* of the set */
    uint64_t *position;     /* in the order in which they are read */
    const uint8_t **images; /* of a set of bytes, */
    uint8_t *labels;        /* and its labels */
    float **rows, *floats;  /* of another: into floats, which is NULL for a set of bytes, */
    int32_t *classes;       /* and its labels */
    const float **targets;  /* instead of labels: rows of the set's */
    struct job_augment augment;
    uint64_t seed;    /* by which */
    uint8_t *changed; /* augmented samples of bytes; NULL: there are none */
    float *plain;     /* one sample of floats before it is augmented; NULL: none is */
};

/* For up to n samples of this set. b: zeroed, but for augment and seed, of the training set; on an
 * error what it has is still to be freed. */
enum status tower_batch_create(const struct dataset *d, int n, struct tower_batch *b);
void tower_batch_free(struct tower_batch *b);
/* The first n samples, whose items and positions are noted; at once also from a file of bytes. */
enum status tower_batch_read(struct tower_batch *b, const struct dataset *d, int n);

#endif
