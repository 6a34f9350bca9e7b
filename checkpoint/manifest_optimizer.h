/* checkpoint/manifest_optimizer.h - an optimizer with its schedule of the learning rate, and
 * clipping, in a manifest. A key of schedule or clipping exists only for a value that is not the
 * default, so that the digest of a job of an earlier version stays the same. Private to
 * checkpoint/. Threads: any. */
#ifndef CHECKPOINT_MANIFEST_OPTIMIZER_H
#define CHECKPOINT_MANIFEST_OPTIMIZER_H
#include "kernels/vector/optim_rows.h"
#include <jansson.h>
#include <stdbool.h>

/* Returns NULL if memory ran out. */
json_t *manifest_optimizer_to_json(const struct optim_config *from);
/* Returns false if the optimizer is malformed or out of bounds. */
bool manifest_optimizer_from_json(const json_t *o, struct optim_config *to);

/* Returns the optimizer of a table; NULL: out of memory. */
json_t *manifest_optimizer_rows_to_json(const struct optim_rows_config *from);
/* Returns false if the optimizer is malformed; tables_add checks the bounds. */
bool manifest_optimizer_rows_from_json(const json_t *o, struct optim_rows_config *to);

#endif
