/* worker/data/dataset_impl.h - state of an open data set, shared by dataset*.c. Owns: the files,
 * their unpacked bytes, and the lists of names. Threads: as dataset.h. Errors: none. */
#ifndef WORKER_DATA_DATASET_IMPL_H
#define WORKER_DATA_DATASET_IMPL_H
#include "worker/data/data_array.h"
#include "worker/data/data_file.h"
#include "worker/data/dataset.h"

enum { SAMPLES, LABELS, N_ROLES };

struct source {
    struct dataset d;  /* first member: dataset_destroy finds the rest by its address */
    struct source *of; /* source whose samples a subset shares; it owns all fields below */
    int n_subsets;     /* number of its subsets; it stays open while it has any */
    struct data_file *file[N_ROLES]; /* labels: NULL if they are in the samples' file */
    struct data_array array[N_ROLES];
    int nhwc;
    char *class_names, *columns, *label_names, *ignored_names, *csv_roles, *names;
    float value[256]; /* value of each byte */
};

/* Returns the path of the file with the labels or targets, for log lines. */
static inline const char *source_labels_path(const struct source *s)
{
    return s->file[LABELS] ? s->file[LABELS]->path : s->file[SAMPLES]->path;
}

#endif
