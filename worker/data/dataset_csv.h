/* worker/data/dataset_csv.h - a set whose samples, labels and keys are in a CSV file.
 * Owns:    nothing; the memory of the file's contents belongs to the set.
 * Threads: as dataset.h. Errors: those of data_csv.h, ST_INVALID; logged. */
#ifndef WORKER_DATA_DATASET_CSV_H
#define WORKER_DATA_DATASET_CSV_H
#include "worker/data/dataset_find.h"
#include "worker/data/dataset_impl.h"

/* Returns true if the file's name is that of a CSV file, because CSV has no magic number. */
bool dataset_csv_is(const char *path);
/* Reads the open file of the set. */
enum status dataset_csv_open(struct source *s, const struct dataset_request *r,
                             const struct dataset_paths *p);

#endif
