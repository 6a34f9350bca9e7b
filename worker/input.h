/* worker/input.h - opens the data sets and sets their preprocessing. --mean and --std become one
 * number per channel of the data, with which all data sets of this worker normalise; --augment must
 * fit the samples' sides.
 * Owns:    nothing. Threads: the main thread, before any sample is read.
 * Errors:  ST_INVALID (wrong number of values), ST_MISMATCH (a file was trained with others), those
 *          of dataset_measure; logged with flag and fix. */
#ifndef WORKER_INPUT_H
#define WORKER_INPUT_H
#include "worker/worker.h"

/* Opens the data sets that the flags name; classes that are words have the same numbers in all.
 * ST_INVALID: none of the formats uses a given flag. ST_MISMATCH: two sets have samples of
 * different sizes or columns of different names, or one has targets and one labels, or samples to
 * evaluate or predict have other channels than in training. */
enum status input_open(struct worker *w);
/* Sets the normalisation before training, by the flags. Called when validation data are held out,
 * because it may measure the training data. */
enum status input_prepare(struct worker *w);
/* Normalises (--evaluate, --predict) as in the training of this file, or by the flags if the
 * file does not record it. */
enum status input_normalise_as(struct worker *w, const char *flag, const char *file,
                               const struct weights_origin *origin);

#endif
