/* worker/train/progress.h - shows progress and speed during training: a bar on a terminal, lines in
 * a log. On a GPU the first steps also load CUDA kernels and capture the graph. These steps train
 * like all other steps, but when there are later steps, the speed is computed without them. The bar
 * shows the mean speed since the start, a line the speed since the line before it.
 * Threads: progress_update: one at a time; progress_wait: any. Log lines of other threads do not
 *          damage the bar.
 * Errors:  ST_NOMEM. */
#ifndef WORKER_TRAIN_PROGRESS_H
#define WORKER_TRAIN_PROGRESS_H
#include "base/bar.h"
#include "base/status.h"
#include "worker/train/figures.h"
#include <stdbool.h>
#include <stdint.h>

enum { PROGRESS_LINE_MS = 5000 }; /* largest interval between lines */

struct progress_config {
    enum progress_style style;
    int task_index;
    /* servers make a step of the contributions of several workers: a line names this worker's part
     * of the step, because the step is done only when the other parts have arrived */
    bool is_part;
    int64_t first_step, train_steps; /* global steps */
    int64_t log_every;       /* steps between lines; a line is also logged every PROGRESS_LINE_MS */
    int64_t warm_up_images;  /* images of the steps that the speed excludes */
    int batch;               /* samples of a step */
    const char *unit;        /* noun for samples in the speed, such as images */
    struct figures *figures; /* figures that also receive each update; NULL: none */
};

struct progress_point {
    int64_t local_step, global_step;
    float loss;     /* loss of the step */
    int64_t images; /* samples that this worker has read since the start */
    int64_t epoch;  /* pass over the training set, from 1; 0: unknown */
};

struct progress;
enum status progress_create(const struct progress_config *cfg, struct progress **out);
void progress_update(struct progress *p, const struct progress_point *at);
/* Shows in the bar the program `whom`, for which training has waited for `ms` milliseconds, instead
 * of the remaining time; NULL: training does not wait. Waits do not count for the speed and the
 * remaining time. */
void progress_wait(struct progress *p, const char *whom, int64_t ms);
/* Returns the mean speed since the start, when `images` images were read. *left_out: number of
 * images that do not count. It may be higher than warm_up_images, because a device reports several
 * steps at once. */
double progress_images_per_second(const struct progress *p, int64_t images, int64_t *left_out);
/* Returns the time of the waits that do not count for that speed. */
double progress_waited_seconds(const struct progress *p);

/* Progress without a bar: a line is logged if PROGRESS_LINE_MS have passed since the last line. */
struct progress_lines {
    int64_t line_ns; /* time of the last line, or of the beginning */
};
void progress_lines_begin(struct progress_lines *l);
/* Logs, if a line is due, one such as "10 of 90 evaluated" (done, all, what). */
void progress_lines_note(struct progress_lines *l, const char *what, int64_t done, int64_t all);
void progress_destroy(struct progress *p); /* removes the bar; NULL is fine */

#endif
