/* worker/data/fingerprint.h - what tells a worker's data set from another one: counts, shapes,
 * classes, and CRC-32C of samples and labels (net/wire/job_data.h). Computed once at start, about
 * as fast as memory is read; kept in memory alone. Threads: any. Errors: those of dataset_plain,
 * ST_NOMEM; logged. */
#ifndef WORKER_DATA_FINGERPRINT_H
#define WORKER_DATA_FINGERPRINT_H
#include "net/wire/job_data.h"
#include "worker/data/dataset.h"

/* test: NULL if there is none. dir: where they were found. own: --data_shard=own. */
enum status fingerprint_compute(const struct dataset *train, const struct dataset *test,
                                const char *dir, int own, struct job_data *out);
/* Of the samples that are held out, or of a folder of their own. */
enum status fingerprint_validation(const struct dataset *d, struct job_validation *out);

#endif
