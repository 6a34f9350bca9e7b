/* worker/input_keys.h - the inputs of a model, in the form in which data sets need them: names of
 * arrays, and columns of CSV files.
 * Owns:    nothing; the lists are fields of struct worker.
 * Threads: the main thread, while the data sets are opened.
 * Errors:  ST_INVALID, ST_MISMATCH, ST_NOMEM; logged with flag and fix. */
#ifndef WORKER_INPUT_KEYS_H
#define WORKER_INPUT_KEYS_H
#include "worker/worker.h"

/* Adds the inputs of w->inputs to the requests of all sets. Refuses flags that the model does not
 * use. Called before the first set is opened. */
enum status input_keys_set(struct worker *w);
/* Makes the later sets use the columns of the training set. Called after it was opened.
 * ST_INVALID: the worker found columns in its own part of the data (--data_shard=own). */
enum status input_keys_follow(struct worker *w);
/* Checks that all sets have keys of one kind, arrays or columns. */
enum status input_keys_check(const struct worker *w);
/* Writes the columns of the set's keys. */
void input_keys_describe(const struct dataset *d, struct model_data *out);

#endif
