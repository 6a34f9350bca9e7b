/* worker/data/dataset_find.h - finds the files of a set in a folder; private to dataset.c and
 * tests.
 * Threads: any. Errors: ST_NOT_FOUND, ST_INVALID; logged. */
#ifndef WORKER_DATA_DATASET_FIND_H
#define WORKER_DATA_DATASET_FIND_H
#include "worker/data/dataset.h"
#include <limits.h>

struct dataset_paths {
    char data[PATH_MAX];   /* path of the samples; "": there are none, and none are required */
    char labels[PATH_MAX]; /* path of the labels; "": they are in the file `data` */
};

/* Refuses a path that does not exist. The path is the value of the flag --PART_OF, for example
 * --train_data. */
enum status dataset_find_check_path(const char *part, const char *of, const char *path);
enum status dataset_find(const struct dataset_request *r, struct dataset_paths *out);

#endif
