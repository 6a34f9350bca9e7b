/* checkpoint/manifest_progress.h - how far training was, in a manifest. Private to checkpoint/.
 * Threads: values. Errors: of reading ST_CORRUPT, ST_NOMEM; not logged. */
#ifndef CHECKPOINT_MANIFEST_PROGRESS_H
#define CHECKPOINT_MANIFEST_PROGRESS_H
#include "checkpoint/manifest.h"
#include <jansson.h>

/* 1 if the progress was added to the manifest's object. */
int manifest_progress_add(json_t *root, const struct checkpoint_progress *p);
/* Of the manifest of `step`. Of one without, nothing is known. Its lists are the caller's, whatever
 * comes back. */
enum status manifest_progress_read(const json_t *root, int64_t step, struct checkpoint_progress *p);
void manifest_progress_free(struct checkpoint_progress *p); /* its lists */

#endif
