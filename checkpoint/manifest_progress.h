/* checkpoint/manifest_progress.h - the progress of training in a manifest. Private to checkpoint/.
 * Threads: any.
 * Errors:  reading: ST_CORRUPT, ST_NOMEM; not logged. */
#ifndef CHECKPOINT_MANIFEST_PROGRESS_H
#define CHECKPOINT_MANIFEST_PROGRESS_H
#include "checkpoint/manifest.h"
#include <jansson.h>
#include <stdbool.h>

/* Adds the progress to the manifest's object. Returns false if memory ran out. */
bool manifest_progress_add(json_t *root, const struct checkpoint_progress *p);
/* Reads the progress from the manifest of `step`; p->known is 0 if it has none. The caller frees
 * the lists of p, even after an error. */
enum status manifest_progress_read(const json_t *root, int64_t step, struct checkpoint_progress *p);
void manifest_progress_free(struct checkpoint_progress *p); /* frees its lists */

#endif
