/* worker/input.h - opens the data sets and sets their preprocessing. --mean and --std become one
 * number per channel of the data; all data sets of this worker are normalised with these numbers.
 * --augment must fit the height and width of the samples.
 * Owns:    nothing. Threads: the main thread, before any sample is read.
 * Errors:  ST_INVALID (wrong number of values), ST_MISMATCH (the parameters in a file were trained
 *          with other values), those of dataset_measure; logged with flag and fix. */
#ifndef WORKER_INPUT_H
#define WORKER_INPUT_H
#include "worker/worker.h"

/* Reads the description of the training data in the file of --evaluate or --predict, and sets how
 * the test set is read. ST_INVALID: no flag names the data. ST_UNSUPPORTED: the file lacks the
 * numbers of --standardize. */
enum status input_read_file(struct worker *w);
/* Opens the data sets that the flags name. Classes that are words have the same numbers in all
 * sets. ST_INVALID: a flag applies to none of the sets' formats. ST_MISMATCH: two sets have samples
 * of different sizes or columns with different names, or one set has targets and another has
 * labels, or the samples to evaluate or predict have other channels than those in training. */
enum status input_open(struct worker *w);
/* Sets the normalisation for training by the flags. Called after validation data were held out,
 * because it may measure the training data. */
enum status input_prepare(struct worker *w);
/* Sets the normalisation for --evaluate and --predict. If the file contains the normalisation with
 * which its parameters were trained, uses this; otherwise uses the flags. */
enum status input_normalise_as(struct worker *w, const char *flag, const char *file,
                               const struct weights_origin *origin);

#endif
