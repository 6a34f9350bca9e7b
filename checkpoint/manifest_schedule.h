/* checkpoint/manifest_schedule.h - the schedule of the learning rate, and clipping, in a manifest.
 * A key exists only for a value that is not the default, so that the digest of a job of an earlier
 * version stays the same. Private to manifest.c.
 * Threads: any. */
#ifndef CHECKPOINT_MANIFEST_SCHEDULE_H
#define CHECKPOINT_MANIFEST_SCHEDULE_H
#include "kernels/vector/optim.h"
#include <jansson.h>
#include <stdbool.h>

/* Adds the keys to `optimizer`, owns it, and returns it; NULL: out of memory. */
json_t *manifest_schedule_add(json_t *optimizer, const struct optim_config *from);
/* Reads the keys. Returns false if they are malformed; optim_check checks the bounds. */
bool manifest_schedule_read(const json_t *optimizer, struct optim_config *to);

#endif
