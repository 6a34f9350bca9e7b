/* worker/data/dataset_find.h - which files of a folder are a set; private to dataset.c and tests.
 * Threads: any. Errors: ST_NOT_FOUND, ST_INVALID; logged. */
#ifndef WORKER_DATA_DATASET_FIND_H
#define WORKER_DATA_DATASET_FIND_H
#include "worker/data/dataset.h"
#include <limits.h>

struct dataset_paths {
    char data[PATH_MAX];   /* "": there are none, and need not be */
    char labels[PATH_MAX]; /* "": they are in data */
};

/* Refuses the path of a flag, --PART_OF, that nothing has. */
enum status dataset_find_check_path(const char *part, const char *of, const char *path);
enum status dataset_find(const struct dataset_request *r, struct dataset_paths *out);

#endif
