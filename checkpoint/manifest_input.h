/* checkpoint/manifest_input.h - a job's transformations of samples and the rounding of its layers
 * in a manifest. A key exists only for a value that is not the default. Private to manifest.c.
 * Threads: any. */
#ifndef CHECKPOINT_MANIFEST_INPUT_H
#define CHECKPOINT_MANIFEST_INPUT_H
#include "net/wire/job.h"
#include <jansson.h>
#include <stdbool.h>

/* Adds the keys to `job`, which may be NULL, and returns it; NULL: out of memory, and `job` is
 * freed. */
json_t *manifest_input_add(json_t *job, const struct net_job *from);
/* Reads the keys. Returns false if they are malformed. */
bool manifest_input_read(const json_t *job, struct net_job *to);

#endif
