/* worker/results/reporter.h - tells ps 0 now and then how this worker trains, for its status page,
 * where somebody watches: training needs none of it, and waits for none of it. Owns:    a thread
 * and a channel to ps 0. Threads: create and destroy from one. Errors:  ST_NOMEM, logged. */
#ifndef WORKER_RESULTS_REPORTER_H
#define WORKER_RESULTS_REPORTER_H
#include "base/status.h"
#include "worker/train/figures.h"

struct reporter;
/* addr: of ps 0; figures: borrowed until destroy. */
enum status reporter_create(const char *addr, struct figures *figures, struct reporter **out);
void reporter_destroy(struct reporter *r); /* tells the last figures; NULL is fine */

#endif
