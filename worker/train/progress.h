/* worker/train/progress.h - what a person sees while training: a bar on a terminal, plain lines in
 * a log.
 * Threads: one at a time for update; log lines of other threads pass around the bar.
 * Errors:  ST_NOMEM. */
#ifndef WORKER_TRAIN_PROGRESS_H
#define WORKER_TRAIN_PROGRESS_H
#include "base/bar.h"
#include "base/status.h"
#include <stdint.h>

struct progress_config {
    enum progress_style style;
    int task_index;
    int64_t first_step, train_steps; /* global steps */
    int64_t log_every;               /* steps between lines */
};

struct progress_point {
    int64_t local_step, global_step;
    float loss;     /* of the step */
    int64_t images; /* read by this worker since the start */
};

struct progress;
enum status progress_create(const struct progress_config *cfg, struct progress **out);
void progress_update(struct progress *p, const struct progress_point *at);
void progress_destroy(struct progress *p); /* takes the bar away; NULL is fine */

#endif
