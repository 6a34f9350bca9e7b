/* checkpoint/manifest_data.h - the job's data set in a manifest. Private to checkpoint/. */
#ifndef CHECKPOINT_MANIFEST_DATA_H
#define CHECKPOINT_MANIFEST_DATA_H
#include "net/wire/job_data.h"
#include <jansson.h>
#include <stdbool.h>

/* Returns the object for the manifest, JSON null for an unknown data set; NULL: out of memory. */
json_t *manifest_data_to_json(const struct job_data *d);
/* Reads the object; NULL or JSON null (older versions): unknown. Returns false if malformed. */
bool manifest_data_from_json(const json_t *o, struct job_data *out);

#endif
