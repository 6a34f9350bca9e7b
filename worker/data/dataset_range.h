/* worker/data/dataset_range.h - the range of a set's numbers as a model would get them without
 * --mean and --std: whole numbers divided by 255. A set of bytes and a set of floats that were not
 * divided differ by this factor of 255, and no other check detects the mistake. Only some samples
 * are read, from all over the set, so a difference is only likely to be a mistake.
 * Owns:    nothing. Threads: any. Errors: those of dataset_plain, ST_NOMEM; logged. */
#ifndef WORKER_DATA_DATASET_RANGE_H
#define WORKER_DATA_DATASET_RANGE_H
#include "worker/data/dataset.h"

enum { DATASET_RANGE_TEXT_BYTES = 128 };

struct dataset_range {
    int enough; /* true if enough samples were read: one dark or small sample proves nothing */
    int floats; /* 0: whole numbers, divided */
    float least, most;
};

enum status dataset_range_measure(const struct dataset *d, struct dataset_range *out);
/* Returns false if the largest number of one set is more than 8 times the other's, for whole
 * numbers and floats, or more than 100 times, for sets of one type. */
bool dataset_range_fits(const struct dataset_range *a, const struct dataset_range *b);
/* Writes "whole numbers divided by 255, from 0 to 1". */
const char *dataset_range_text(const struct dataset_range *r, char dst[DATASET_RANGE_TEXT_BYTES]);

#endif
