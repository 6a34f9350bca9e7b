/* worker/results/reporter.h - sends reports about this worker's training to ps 0, which shows them
 * on its status page. The reports are frequent only while a user reads the page. Training neither
 * needs the reports nor waits for them.
 * Owns:    a thread and a channel to ps 0.
 * Threads: reporter_create and reporter_destroy: one. Errors: ST_NOMEM, logged. */
#ifndef WORKER_RESULTS_REPORTER_H
#define WORKER_RESULTS_REPORTER_H
#include "base/status.h"
#include "worker/train/figures.h"

struct reporter;
/* Starts the thread. addr: address of ps 0; figures: borrowed until reporter_destroy. */
enum status reporter_create(const char *addr, struct figures *figures, struct reporter **out);
void reporter_destroy(struct reporter *r); /* sends the last figures; NULL is fine */

#endif
