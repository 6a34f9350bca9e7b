/* worker/data/dataset_standard.h - --standardize: measures mean and standard deviation of each
 * column of a table over its samples, and makes data sets return standardised samples. A table is a
 * set whose samples have one row of features, and one channel.
 * Owns:    the data set owns its copy of the numbers.
 * Threads: one at a time, before any thread reads a sample.
 * Errors:  ST_INVALID (not a table), ST_MISMATCH (different number of columns), ST_CORRUPT (numbers
 *          in a text that are not valid), ST_NOMEM, those of dataset_plain; all logged but
 *          ST_CORRUPT. */
#ifndef WORKER_DATA_DATASET_STANDARD_H
#define WORKER_DATA_DATASET_STANDARD_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct dataset;

/* A number x of column k is read as (x - mean[k]) / std[k]. */
struct dataset_standard {
    int64_t n;         /* number of columns; 0: numbers are read unchanged */
    float *mean, *std; /* [n] each, in one allocation that begins at mean */
};

/* Measures the columns over all samples, in double, and always in the same order. For a constant
 * column, sets the deviation to 1 and logs a line. */
enum status dataset_standard_measure(struct dataset *d);
/* Copies the means and deviations of the training set to d. */
enum status dataset_standard_set(struct dataset *d, const struct dataset_standard *from);
/* Returns true if both have the same means and deviations. */
bool dataset_standard_same(const struct dataset_standard *a, const struct dataset_standard *b);

/* Returns n numbers separated by commas, malloc'd; NULL: no memory. */
char *dataset_standard_text(const float *number, int64_t n);
/* Parses two texts of dataset_standard_text, means and deviations; deviations must be above 0. */
enum status dataset_standard_parse(const char *mean, const char *std, struct dataset_standard *out);
void dataset_standard_free(struct dataset_standard *s);

#endif
