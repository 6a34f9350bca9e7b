/* checkpoint/history.h - the history that a folder's job continues, as ps 0 records it in the third
 * line of the folder's file `servers`. It identifies checkpoints of an abandoned history, which may
 * reappear: a file server may show them late, or a damaged checkpoint may become readable.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  none: a file that cannot be read has no history. */
#ifndef CHECKPOINT_HISTORY_H
#define CHECKPOINT_HISTORY_H
#include "checkpoint/names.h"
#include <stdbool.h>
#include <stdio.h>

/* Generations from `since` on continue from the checkpoint `resumed` (its generation 0: from the
 * first step). So a checkpoint that is newer than `resumed`, but of a generation below `since`, is
 * of an abandoned history. since 0: no checkpoint is of an abandoned history. */
struct checkpoint_history {
    struct checkpoint_id resumed;
    uint64_t since;
};

/* Writes the line, or nothing if `since` is 0. */
void checkpoint_history_print(const struct checkpoint_history *h, FILE *f);
/* Reads the line from an open file `servers`. Returns zeros if the file has no such line. */
struct checkpoint_history checkpoint_history_parse(FILE *f);
/* Reads the line of the folder's file `servers`. Returns zeros if the file has no such line. */
struct checkpoint_history checkpoint_history_read(const char *folder);
/* Returns true if the checkpoint is of an abandoned history. */
bool checkpoint_history_lacks(const struct checkpoint_history *h, struct checkpoint_id id);

#endif
