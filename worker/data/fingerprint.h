/* worker/data/fingerprint.h - the fingerprint by which members check that they have the same data
 * set: counts, shapes, classes, and CRC-32C of samples and labels (net/wire/job_data.h). It is
 * computed once at the start, about as fast as memory is read. Threads: any. Errors: those of
 * dataset_plain, ST_NOMEM; logged. */
#ifndef WORKER_DATA_FINGERPRINT_H
#define WORKER_DATA_FINGERPRINT_H
#include "net/wire/job_data.h"
#include "worker/data/dataset.h"

/* Computes the fingerprint of a job's data. test: may be NULL. dir: folder of the files. own:
 * --data_shard=own. */
enum status fingerprint_compute(const struct dataset *train, const struct dataset *test,
                                const char *dir, int own, struct job_data *out);
/* Computes the fingerprint of the validation set, which is held out of the training set or has its
 * own files. */
enum status fingerprint_validation(const struct dataset *d, struct job_validation *out);

#endif
