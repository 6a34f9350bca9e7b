/* worker/data/dataset_impl.h - state of an open data set, shared by dataset*.c. Owns: the files,
 * their unpacked bytes, and the lists of names. Threads: as dataset.h. Errors: none. */
#ifndef WORKER_DATA_DATASET_IMPL_H
#define WORKER_DATA_DATASET_IMPL_H
#include "worker/data/data_array.h"
#include "worker/data/data_file.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_keys.h"

enum { SAMPLES, LABELS, N_ROLES };

struct source {
    /* must be the first field, because dataset_destroy finds the struct by its address */
    struct dataset d;
    /* source whose samples this subset shares, and which owns all fields below; NULL: this set is
     * no subset */
    struct source *of;
    int n_subsets; /* number of subsets of this source, which stays open while this is above 0 */
    /* files of the samples and the labels; NULL for labels that are in the samples' file */
    struct data_file *file[N_ROLES];
    struct data_array array[N_ROLES];
    int nhwc;
    char *class_names, *columns, *label_names, *ignored_names, *csv_roles, *names;
    float value[256];         /* number that each value of a byte stands for */
    struct dataset_keys keys; /* d.keys, if the set has keys */
    struct data_array key_array[DATASET_MAX_KEY_INPUTS]; /* arrays of the keys */
    uint64_t *own_keys[DATASET_MAX_KEY_INPUTS];          /* see dataset_keys_read */
    uint32_t *own_first[DATASET_MAX_KEY_INPUTS];         /* CSV: `first` of each input */
    char *key_columns[DATASET_MAX_KEY_INPUTS];           /* CSV: columns of each input */
};

/* Returns the path of the file with the labels or targets, for log lines. */
static inline const char *source_labels_path(const struct source *s)
{
    return s->file[LABELS] ? s->file[LABELS]->path : s->file[SAMPLES]->path;
}

#endif
