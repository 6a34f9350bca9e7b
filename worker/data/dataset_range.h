/* worker/data/dataset_range.h - the range of a set's numbers as a model would get them without
 * --mean and --std: whole numbers divided by 255. If one set has bytes, and another set has the
 * same numbers as floats that were not divided by 255, the ranges of the two sets differ by a
 * factor of 255, and no other check detects the mistake. Only some samples, from all parts of the
 * set, are read, so a difference is probably, but not certainly, a mistake.
 * Owns:    nothing. Threads: any. Errors: those of dataset_plain, ST_NOMEM; logged. */
#ifndef WORKER_DATA_DATASET_RANGE_H
#define WORKER_DATA_DATASET_RANGE_H
#include "worker/data/dataset.h"

enum { DATASET_RANGE_TEXT_BYTES = 128 };

struct dataset_range {
    int enough; /* true if enough samples were read: one dark or small sample proves nothing */
    int floats; /* 0: the numbers are whole numbers, divided by 255 */
    float least, most;
};

enum status dataset_range_measure(const struct dataset *d, struct dataset_range *out);
/* Returns false if the largest number of one set is more than TIMES times that of the other set: 8
 * times if one set has whole numbers and the other has floats, 100 times if both have the same
 * type. */
bool dataset_range_fits(const struct dataset_range *a, const struct dataset_range *b);
/* Writes a text such as "whole numbers divided by 255, from 0 to 1". */
const char *dataset_range_text(const struct dataset_range *r, char dst[DATASET_RANGE_TEXT_BYTES]);

#endif
