/* checkpoint/manifest_lineage.h - the line of descent in a manifest: "history", a list of [since,
 * generation, step]. Private to checkpoint/.
 * Threads: any.
 * Errors:  reading: ST_CORRUPT; not logged. */
#ifndef CHECKPOINT_MANIFEST_LINEAGE_H
#define CHECKPOINT_MANIFEST_LINEAGE_H
#include "base/status.h"
#include "checkpoint/lineage.h"
#include <jansson.h>

/* Adds the list to the manifest's object, unless it is not known. Returns false if memory ran out.
 */
bool manifest_lineage_add(json_t *root, const struct checkpoint_lineage *l);
/* Reads the list from the manifest of a checkpoint of this generation; l->n 0: it has no list. */
enum status manifest_lineage_read(const json_t *root, uint64_t generation,
                                  struct checkpoint_lineage *l);

#endif
