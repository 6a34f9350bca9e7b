/* checkpoint/manifest_schedule.h - the course of the learning rate, and
 * clipping, in a manifest: keys that are
 * there only where they are not the default, so that a job of earlier versions keeps its name.
 * Private to manifest.c. Threads: any. */
#ifndef CHECKPOINT_MANIFEST_SCHEDULE_H
#define CHECKPOINT_MANIFEST_SCHEDULE_H
#include "kernels/vector/optim.h"
#include <jansson.h>

/* Takes `optimizer` and returns it; NULL: out of memory. */
json_t *manifest_schedule_add(json_t *optimizer, const struct optim_config *from);
/* 0: it is malformed; bounds are optim_check's to see. */
int manifest_schedule_read(const json_t *optimizer, struct optim_config *to);

#endif
