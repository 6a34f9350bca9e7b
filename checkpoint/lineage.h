/* checkpoint/lineage.h - the line of descent of a checkpoint: the restores before it. Each manifest
 * records the line of descent of its generation's plan. A program that has an older checkpoint can
 * therefore decide whether training continued from it (weirctl export --since).
 * Owns:    nothing.
 * Threads: values.
 * Errors:  none. */
#ifndef CHECKPOINT_LINEAGE_H
#define CHECKPOINT_LINEAGE_H
#include "checkpoint/history.h"

enum { LINEAGE_MOST = 16 };

/* The entries of the newest restores, newest first; n 0: not known (manifest of an older version).
 * Each entry is a restore, or the beginning of the job (`resumed.generation` is 0); `since` is
 * ascending from the last to the first entry. */
struct checkpoint_lineage {
    int n;
    struct checkpoint_history entry[LINEAGE_MOST];
};

/* Returns the line of descent of a job that begins with generation `since`. */
struct checkpoint_lineage checkpoint_lineage_begin(uint64_t since);
/* Returns the line of descent of generation `since`, which resumes from a checkpoint with the line
 * `base`. The oldest entry is dropped if there are too many. */
struct checkpoint_lineage checkpoint_lineage_resume(const struct checkpoint_lineage *base,
                                                    uint64_t since, struct checkpoint_id resumed);
/* Returns true if the entries can be those of a checkpoint of this generation. */
bool checkpoint_lineage_is_valid(const struct checkpoint_lineage *l, uint64_t generation);
/* Returns true if training continued from checkpoint `a` to the checkpoint `b`, which has the line
 * `l`. Returns false if the entries do not show it. */
bool checkpoint_lineage_has(const struct checkpoint_lineage *l, struct checkpoint_id a,
                            struct checkpoint_id b);

#endif
