/* worker/record.h - which samples a worker read (--record_samples): of each step, before anything
 * of it is handed out, each tower adds a line "GENERATION STEP POSITION N" for its N samples from
 * POSITION on, counted from the first of the first pass. What is there already stays. A step that
 * was taken in several generations counts in its last.
 * Owns:    the file.
 * Threads: any.
 * Errors:  ST_INVALID (no such place), ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_RECORD_H
#define WORKER_RECORD_H
#include "base/status.h"
#include <stdint.h>

struct record;
enum status record_open(const char *path, struct record **out);
void record_close(struct record *r); /* NULL is fine */
/* r: NULL: nothing is recorded. */
enum status record_step(struct record *r, uint64_t generation, int64_t step, uint64_t position,
                        int n);

#endif
