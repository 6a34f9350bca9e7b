/* checkpoint/manifest_tables.h - the sparse tables of a job in a manifest. Private to
 * checkpoint/. */
#ifndef CHECKPOINT_MANIFEST_TABLES_H
#define CHECKPOINT_MANIFEST_TABLES_H
#include "net/wire/tables.h"
#include <jansson.h>
#include <stdbool.h>

/* Adds the list `tables` to the object, unless the job has no tables: their settings that change
 * the bits of rows. bounds: also max_rows and step_rows, which a job may change when it resumes.
 * Returns false if memory ran out. */
bool manifest_tables_add(json_t *root, const struct chunks *chunks, bool bounds);
/* Reads the list from the object, and adds the tables to the table of chunks, which has none.
 * ST_CORRUPT: the list is not valid; ST_NOMEM. */
enum status manifest_tables_read(const json_t *root, struct chunks *chunks);

#endif
