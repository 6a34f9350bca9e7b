/* worker/input_range.h - warns of probable errors in the unit of samples: one of two sets, or of a
 * file and a set, was divided by 255 or scaled and the other was not; --mean and --std meant for
 * bytes from 0 to 255. Owns: nothing. Threads: the main thread. Errors: those of
 * dataset_range_measure. */
#ifndef WORKER_INPUT_RANGE_H
#define WORKER_INPUT_RANGE_H
#include "worker/worker.h"

/* Compares all open sets before training; sets w->range for --export. */
enum status input_range_compare(struct worker *w);
/* Compares (--evaluate, --predict) the file's samples with the test set. */
enum status input_range_compare_file(const struct worker *w, const char *flag, const char *file);
/* Warns before training, when the model is known, of a column of a table whose numbers dominate all
 * others, unless they are normalised. */
void input_range_check_columns(const struct worker *w);
/* Checks --mean and --std that were given as numbers, for samples of d. */
enum status input_range_check_flags(const struct options *o, const struct dataset *d);

#endif
