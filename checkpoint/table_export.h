/* checkpoint/table_export.h - exports of a checkpoint for programs that only read: one safetensors
 * file with all parameters, and either all rows of the sparse tables (a full export), or what
 * changed since an older checkpoint, the base (a patch). docs/reference/file-formats.md has the
 * tensors and the metadata. One bucket is in memory at a time.
 * Owns:    nothing.
 * Threads: one.
 * Errors:  those of safetensors_write and restore.h, and ST_RANGE (a row does not fit into bf16),
 *          logged. ST_MISMATCH: there is no patch from the base to the target; not logged, `why`
 *          receives the reason. */
#ifndef CHECKPOINT_TABLE_EXPORT_H
#define CHECKPOINT_TABLE_EXPORT_H
#include "checkpoint/restore.h"
#include "kernels/vector/dtype.h"

enum { EXPORT_ID_BYTES = 64 };
/* Writes the id of a checkpoint: E.G-STEP, as in the names of its files. */
void table_export_id(struct checkpoint_id id, char text[EXPORT_ID_BYTES]);

struct table_export_counts {
    int64_t n_rows;    /* rows of the target */
    int64_t n_written; /* rows in the file: all, or in a patch those that changed */
    int64_t n_removed; /* removed keys in the file; 0 in a full export */
};

struct table_export {
    const struct checkpoint_restore *base; /* the patch begins from it; NULL: a full export */
    const struct checkpoint_restore *target;
    /* format of the rows in the file: DTYPE_F32, or DTYPE_BF16 (rounded to the nearest, ties to
     * even); below 0: that of the table */
    int row_dtype;
};

/* Writes the export of `e->target`. The file is complete or absent, and replaces an older one. */
enum status table_export_write(const char *path, const struct table_export *e,
                               struct table_export_counts *out, char why[MANIFEST_WHY_BYTES]);

#endif
