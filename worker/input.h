/* worker/input.h - the data sets that are read, and what is done with samples before the model
 * reads them: --mean and --std become one number for each channel of the data, and all data sets of
 * this worker give samples by them; --augment must be something that the samples' sides allow.
 * Owns: nothing. Threads: main's, before anybody reads a sample.
 * Errors: ST_INVALID (not as many numbers as channels), ST_MISMATCH (a file was trained with
 *         others), those of dataset_measure; logged with flag and fix. */
#ifndef WORKER_INPUT_H
#define WORKER_INPUT_H
#include "worker/worker.h"

/* The data sets that the flags name, with classes that are words numbered alike in all. ST_INVALID:
 * a flag was given that the formats of all of them have no use for. ST_MISMATCH: two have samples
 * of different sizes or of columns of other names, or one has targets and one labels;
 * or, of samples that are evaluated or predicted from, other channels than in training. */
enum status input_open(struct worker *w);
/* To train: by the flags, measured where they say so, once validation data are held out. */
enum status input_prepare(struct worker *w);
/* --evaluate, --predict (flag) of this file: as it was trained, or by the flags where it does not
 * say. */
enum status input_normalise_as(struct worker *w, const char *flag, const char *file,
                               const struct weights_origin *told);

#endif
