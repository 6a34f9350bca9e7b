/* worker/input_range.h - warns of probable errors in the unit of samples: only one of two sets (or
 * only the training set of the parameters in a file) was divided by 255 or scaled; or --mean and
 * --std are numbers for bytes from 0 to 255. Owns: nothing. Threads: the main thread. Errors: those
 * of dataset_range_measure. */
#ifndef WORKER_INPUT_RANGE_H
#define WORKER_INPUT_RANGE_H
#include "worker/worker.h"

/* Compares all open sets before training, and sets w->range for --export. */
enum status input_range_compare(struct worker *w);
/* Compares, for --evaluate and --predict, the range of the test set with that of the samples on
 * which the file's parameters were trained. */
enum status input_range_compare_file(const struct worker *w, const char *flag, const char *file);
/* Warns, before training, of a column of a table whose numbers outweigh those of all other columns,
 * unless --standardize or the model normalises the columns. Called after the model was read. */
void input_range_check_columns(const struct worker *w);
/* Checks --mean and --std that were given as numbers, for samples of d. */
enum status input_range_check_flags(const struct options *o, const struct dataset *d);

#endif
