/* worker/data/sample_log.h - records the samples that a worker read (--record_samples). In each
 * step, each tower adds a line "GENERATION STEP POSITION N" for its N samples from POSITION on,
 * counted from the first sample of the first pass. It does so when all parameters of the step have
 * arrived, and before any gradient is sent. So a step that was only begun has no line. In sync, a
 * step with lines in several generations was redone, and only its lines in the last of them count.
 * In other modes each worker numbers its own steps; if it reads samples a second time, their first
 * gradients did not count. Lines that an earlier process of this worker wrote are kept.
 * Owns:    the file.
 * Threads: any.
 * Errors:  ST_INVALID (invalid path), ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_DATA_SAMPLE_LOG_H
#define WORKER_DATA_SAMPLE_LOG_H
#include "base/status.h"
#include <stdint.h>

struct sample_log;
enum status sample_log_open(const char *path, struct sample_log **out);
void sample_log_close(struct sample_log *r); /* NULL is fine */
/* Records the samples of a tower in a step. r NULL: does nothing. */
enum status sample_log_step(struct sample_log *r, uint64_t generation, int64_t step,
                            uint64_t position, int n);

#endif
