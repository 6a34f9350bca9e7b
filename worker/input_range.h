/* worker/input_range.h - lines of what is likely a mistake in the unit of samples: sets, or a file
 * and a set, of which one was divided by 255 or scaled and the other was not; --mean and --std of
 * bytes from 0 to 255. Owns: nothing. Threads: main's. Errors: those of dataset_range_measure. */
#ifndef WORKER_INPUT_RANGE_H
#define WORKER_INPUT_RANGE_H
#include "worker/worker.h"

/* To train, once all sets are open; w->range for --export. */
enum status input_range_compare(struct worker *w);
/* Of --evaluate, --predict: the file's samples and those of the test set. */
enum status input_range_compare_file(const struct worker *w, const char *flag, const char *file);
/* To train, once the model is known: warns of a column of a table that outweighs all others, unless
 * something normalises them. */
void input_range_check_columns(const struct worker *w);
/* --mean, --std: given as numbers for samples of d. */
enum status input_range_check_flags(const struct options *o, const struct dataset *d);

#endif
