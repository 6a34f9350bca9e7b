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

/* Tensors of one bucket of a table (tables_file.h). */
struct bucket_tensors {
    bool has_any; /* false: the open files have no tensor of the bucket */
    int file;
    int64_t version;
    int slot_floats;                         /* floats of a row besides its values */
    const struct safetensors_entry *part[8]; /* NULL: the table has no such tensor */
};

struct checkpoint_restore {
    struct checkpoint_manifest *m;
    char folder[PATH_MAX], name[PATH_MAX]; /* folder and name of the manifest, or of the part */
    bool is_home;                          /* checkpoint_restore_note_home has found so */
    struct safetensors_file **files;       /* m->n_files */
    struct tensor *tensors;                /* ordered by slot, then by position */
    int n_tensors;
    struct bucket_tensors *buckets; /* entry of each bucket, in the order of the chunks */
};

/* Returns the next element, from `at` on, for which the slot has a value. */
int64_t checkpoint_restore_next_owned(const struct chunks *chunks, int slot, int *param,
                                      int64_t at);
/* Returns the number that the file's metadata have under the key "WHAT NAME", for example "version
 * conv1/weights"; `other`: the metadata have no such key, or no valid number there. */
int64_t checkpoint_restore_number(const struct safetensors_file *f, const char *what,
                                  const char *name, int64_t other);

/* Returns true if this is the name of a bucket's tensor (tables_file.h). */
bool checkpoint_tables_is_part(const char *name);
/* Records a tensor of a bucket. Returns NULL, or the reason why the tensor is not valid. */
const char *checkpoint_tables_place(struct checkpoint_restore *r, int file,
                                    const struct safetensors_entry *e);
/* Checks that each bucket is complete. is_part: buckets may be missing. Returns NULL; or the fault,
 * and sets *table to the table that has the fault. */
const char *checkpoint_tables_check(struct checkpoint_restore *r, bool is_part, int *table);

#endif
