/* ps/restore.h - reading a checkpoint back: whatever number of servers and whatever chunks it was
 * written with, any chunk of its parameters can be had.
 * Owns:    the manifest, the open files, a table of their tensors.
 * Threads: find and close from one; the rest from any.
 * Errors:  ST_NOT_FOUND (a folder without checkpoints), ST_CORRUPT (there are, none is whole),
 *          ST_IO, ST_NOMEM; logged, as is each checkpoint that was passed over. */
#ifndef PS_RESTORE_H
#define PS_RESTORE_H
#include "ps/manifest.h"

struct ps_restore;
/* path: a manifest, or a folder: the newest checkpoint in it that is whole. Every byte of it was
 * compared with its checksum. */
enum status ps_restore_find(const char *path, struct ps_restore **out);
int ps_restore_has_all_steps(const struct ps_restore *r); /* of its job; NULL is fine */
void ps_restore_close(struct ps_restore *r);              /* NULL is fine */
const struct ps_manifest *ps_restore_manifest(const struct ps_restore *r);
/* Of `n` elements of the flat block of all parameters, from `first` on (those of one chunk, or
 * less): their value, their slots (NULL: they have none) one after the other, and the lowest
 * version of any of them. */
enum status ps_restore_read(const struct ps_restore *r, int64_t first, int64_t n, float *value,
                            float *slots, int64_t *version);

#endif
