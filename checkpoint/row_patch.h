/* checkpoint/row_patch.h - what changed in a bucket of a sparse table between two checkpoints of
 * one line of descent (lineage.h): the rows that changed, and the keys whose rows were removed.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  ST_CORRUPT: the first checkpoint cannot be an ancestor of the second one; not logged. */
#ifndef CHECKPOINT_ROW_PATCH_H
#define CHECKPOINT_ROW_PATCH_H
#include "checkpoint/tables_file.h"

/* Reduces `to`, a bucket that was read with its values (`dim` floats for each row), to the rows
 * that changed since `from`, the same bucket of an older checkpoint, of which keys and steps were
 * read; and reduces the keys of `from` to those that have no row in `to`. Both stay in ascending
 * order. A row changed if its last step is above the version of `from`. Each other row must be in
 * `from`, with the same step. */
enum status row_patch_make(struct checkpoint_bucket *from, struct checkpoint_bucket *to, int dim);

#endif
