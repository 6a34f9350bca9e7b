/* worker/train/progress.h - what a person sees while training: a bar on a terminal, plain lines in
 * a log; and how fast it is. On a card the first steps load kernels and capture the graph: they are
 * trained as all others, and left out of the speed once there are later ones.
 * Threads: one at a time for update; wait from any; log lines of other threads pass around the bar.
 * Errors:  ST_NOMEM. */
#ifndef WORKER_TRAIN_PROGRESS_H
#define WORKER_TRAIN_PROGRESS_H
#include "base/bar.h"
#include "base/status.h"
#include "worker/train/figures.h"
#include <stdint.h>

enum { PROGRESS_LINE_MS = 5000 }; /* without a line, of what takes long */

struct progress_config {
    enum progress_style style;
    int task_index;
    int64_t first_step, train_steps; /* global steps */
    int64_t log_every;               /* steps between lines; a line comes each PROGRESS_LINE_MS */
    int64_t warm_up_images;          /* of the steps to leave out of the speed */
    int batch;                       /* samples of a step */
    const char *unit;                /* of the speed: images, or samples of other shapes */
    struct figures *figures;         /* that get each update, too; NULL: none do */
};

struct progress_point {
    int64_t local_step, global_step;
    float loss;     /* of the step */
    int64_t images; /* read by this worker since the start */
    int64_t epoch;  /* pass over the training set, from 1; 0: not known */
};

struct progress;
enum status progress_create(const struct progress_config *cfg, struct progress **out);
void progress_update(struct progress *p, const struct progress_point *at);
/* The bar says for whom training waits, instead of a time left; NULL: it does not wait. The time
 * waited counts neither for the speed nor for the time left. */
void progress_wait(struct progress *p, const char *whom, int64_t ms);
/* A second, up to now, when so many were read. *left_out: those of the steps that do not count; it
 * may be more than warm_up_images, as a device tells of several steps at once. */
double progress_images_per_second(const struct progress *p, int64_t images, int64_t *left_out);

/* How far something is that has no bar: a line once PROGRESS_LINE_MS have passed since the last. */
struct progress_lines {
    int64_t line_ns; /* of the last one, or of the beginning */
};
void progress_lines_begin(struct progress_lines *l);
/* Says that `done` of `all` are `what` so far, if a line is due. */
void progress_lines_note(struct progress_lines *l, const char *what, int64_t done, int64_t all);
void progress_destroy(struct progress *p); /* takes the bar away; NULL is fine */

#endif
