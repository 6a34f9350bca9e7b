/* worker/results/reporter.h - reports to ps 0 how this worker trains, for its status page while a
 * user reads that. Training neither needs the reports nor waits for them.
 * Owns:    a thread and a channel to ps 0.
 * Threads: create and destroy from one. Errors: ST_NOMEM, logged. */
#ifndef WORKER_RESULTS_REPORTER_H
#define WORKER_RESULTS_REPORTER_H
#include "base/status.h"
#include "worker/train/figures.h"

struct reporter;
/* Starts the thread. addr: that of ps 0; figures: borrowed until destroy. */
enum status reporter_create(const char *addr, struct figures *figures, struct reporter **out);
void reporter_destroy(struct reporter *r); /* sends the last figures; NULL is fine */

#endif
