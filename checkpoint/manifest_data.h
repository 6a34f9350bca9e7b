/* checkpoint/manifest_data.h - the job's data set in a manifest. Private to checkpoint/. */
#ifndef CHECKPOINT_MANIFEST_DATA_H
#define CHECKPOINT_MANIFEST_DATA_H
#include "net/wire/job_data.h"
#include <jansson.h>

/* NULL: no memory. JSON null where nothing is said of the data. */
json_t *manifest_data_to_json(const struct job_data *d);
/* o: NULL or JSON null where nothing is said, as by older versions. 0: it is no such record. */
int manifest_data_from_json(const json_t *o, struct job_data *out);

#endif
