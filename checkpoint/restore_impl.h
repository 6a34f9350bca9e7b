/* checkpoint/restore_impl.h - state shared by restore.c, which opens checkpoints, and
 * restore_read.c, which reads them. Private. */
#ifndef CHECKPOINT_RESTORE_IMPL_H
#define CHECKPOINT_RESTORE_IMPL_H
#include "checkpoint/restore.h"
#include <limits.h>
#include <stdatomic.h>

struct tensor {
    int slot;         /* number of the optimizer's slot; -1: the tensor has values */
    int64_t first, n; /* elements of the flat block of all parameters */
    int64_t version;
    uint64_t idle; /* number of updates in which the tensor's parameter had no gradient */
    int file;
    const struct safetensors_entry *entry;
    _Atomic int checked; /* the tensor's data match its checksum */
};

struct checkpoint_restore {
    struct checkpoint_manifest *m;
    char folder[PATH_MAX], name[PATH_MAX]; /* folder and name of the manifest, or of the part */
    struct safetensors_file **files;       /* m->n_files */
    struct tensor *tensors;                /* ordered by slot, then by position */
    int n_tensors;
};

/* Returns the next element, from `at` on, for which the slot has a value. */
int64_t checkpoint_restore_next_owned(const struct chunks *chunks, int slot, int *param,
                                      int64_t at);

#endif
