/* worker/data/sample_log.h - which samples a worker read (--record_samples): of each step, once
 * all parameters that it computes on have come and before anything of it is handed out, each tower
 * adds a line "GENERATION STEP POSITION N" for its N samples from POSITION on, counted from the
 * first of the first pass. So a step that was only begun, layer by layer as versions came, has no
 * line, and, in sync, one that has a line in several generations was done again, and counts in its
 * last; in other modes steps are the worker's own, and samples that it reads again did not count
 * before. What is there already stays.
 * Owns:    the file.
 * Threads: any.
 * Errors:  ST_INVALID (no such place), ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_DATA_SAMPLE_LOG_H
#define WORKER_DATA_SAMPLE_LOG_H
#include "base/status.h"
#include <stdint.h>

struct sample_log;
enum status sample_log_open(const char *path, struct sample_log **out);
void sample_log_close(struct sample_log *r); /* NULL is fine */
/* r: NULL: nothing is recorded. */
enum status sample_log_step(struct sample_log *r, uint64_t generation, int64_t step,
                            uint64_t position, int n);

#endif
