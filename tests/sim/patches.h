/* tests/sim/patches.h - checks patches between checkpoints (checkpoint/row_patch.h): the rows of an
 * older checkpoint, with the patch, must be those of the newer one. oracle_rows.h checks the rows
 * of both when they are written.
 * Owns: the rows of all checkpoints of a run. Threads: one. Errors: sim_fail patch. */
#ifndef TESTS_SIM_PATCHES_H
#define TESTS_SIM_PATCHES_H
#include "checkpoint/names.h"
#include "ps/rows/bucket_copy.h"

void patches_reset(void);
/* Notes the rows of a bucket that a server writes to its file of a checkpoint. */
void patches_note(struct checkpoint_id id, int chunk, int64_t version,
                  const struct bucket_entries *e);
/* Checks the patches of all buckets from `since` to `id`, which continues it. */
void patches_check(struct checkpoint_id since, struct checkpoint_id id);

#endif
