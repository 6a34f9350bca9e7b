/* worker/data/dataset_impl.h - state of an open data set, shared by dataset*.c.
 * Owns:    the files, what was unpacked of them, and the lists of names.
 * Threads: as of dataset.h. Errors: none. */
#ifndef WORKER_DATA_DATASET_IMPL_H
#define WORKER_DATA_DATASET_IMPL_H
#include "worker/data/data_array.h"
#include "worker/data/data_file.h"
#include "worker/data/dataset.h"

enum { SAMPLES, LABELS, N_ROLES };

struct source {
    struct dataset d;                /* first, so that dataset_destroy finds the rest */
    struct source *of;               /* whose samples a subset's are; then all below is there */
    int n_subsets;                   /* as long as there are any, it stays */
    struct data_file *file[N_ROLES]; /* of the labels: NULL if they are in that of the samples */
    struct data_array array[N_ROLES];
    int nhwc;
    char *class_names, *columns, *label_names, *ignored_names, *csv_roles, *names;
    float value[256]; /* that a byte stands for */
};

/* Path of the file that has the labels or targets, for lines. */
static inline const char *source_labels_path(const struct source *s)
{
    return s->file[LABELS] ? s->file[LABELS]->path : s->file[SAMPLES]->path;
}

#endif
