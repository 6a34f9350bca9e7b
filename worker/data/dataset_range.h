/* worker/data/dataset_range.h - between which numbers the samples of a set lie, as a model would
 * get them without --mean and --std: whole ones divided by 255. Sets of bytes and of floats that
 * were not divided differ by that factor, and nothing else tells.
 *     Some samples are looked at, from all over the set; so is said what is likely, and no error.
 * Owns: nothing. Threads: any. Errors: those of dataset_plain, ST_NOMEM; logged. */
#ifndef WORKER_DATA_DATASET_RANGE_H
#define WORKER_DATA_DATASET_RANGE_H
#include "worker/data/dataset.h"

enum { DATASET_RANGE_TEXT_BYTES = 128 };

struct dataset_range {
    int enough; /* of the samples were looked at: one that is dark or small is no rule */
    int floats; /* 0: whole numbers, divided */
    float least, most;
};

enum status dataset_range_measure(const struct dataset *d, struct dataset_range *out);
/* 0: the largest number of one is more than 8 times the other's, if one is of whole numbers and one
 * of floats; more than 100 times, if both are of one type. */
int dataset_range_fits(const struct dataset_range *a, const struct dataset_range *b);
/* "whole numbers divided by 255, from 0 to 1". */
const char *dataset_range_text(const struct dataset_range *r, char dst[DATASET_RANGE_TEXT_BYTES]);

#endif
