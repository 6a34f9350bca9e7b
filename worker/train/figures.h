/* worker/train/figures.h - totals of a worker's steps since the process started, for pages and
 * reports during training. They do not decrease when training rolls back to an earlier step.
 * Owns:    its lock, which is held only during a few additions.
 * Threads: any. Errors: none. */
#ifndef WORKER_TRAIN_FIGURES_H
#define WORKER_TRAIN_FIGURES_H
#include "net/wire/status.h"
#include <pthread.h>
#include <stdint.h>

enum { FIGURES_BOUNDS = 14 };
/* upper bounds of the classes of step times, in seconds, ascending */
extern const double figures_bounds[FIGURES_BOUNDS];

struct figures_view {
    int member;                       /* index; -1: unknown so far */
    int64_t global_step, train_steps; /* steps of the job; 0: unknown so far */
    int64_t steps, images;            /* steps and samples of this worker */
    float loss;                       /* loss of the last step; may be NaN */
    int64_t n_nonfinite;              /* losses that were not finite */
    /* step since which no loss has been finite; 0: the last loss was finite */
    int64_t nonfinite_since;
    double seconds; /* total time of the steps that the next field counts */
    /* number of steps in each class of step times (figures_bounds) */
    int64_t taken[FIGURES_BOUNDS + 1];
    /* monotonic time at which the last step ended, or training began; 0: training has not begun */
    int64_t moved_ns;
    double moved_unix_s; /* moved_ns as seconds since 1970 */
    /* program that this worker waits for; empty: none, or the wait is still short */
    char waiting[STATUS_WAITING_BYTES];
    int64_t waiting_ms;
};

/* Sum of the finite losses of steps. */
struct figures_losses {
    int64_t n;
    double sum;
};

struct figures {
    pthread_mutex_t lock; /* guards the fields below */
    struct figures_view now;
    struct figures_losses losses; /* losses that figures_move_losses has not moved yet */
    int batch;                    /* samples of a step */
    int64_t images_before;        /* number of samples at the last figures_note */
};

void figures_init(struct figures *f);
/* Records that training begins, as this member. */
void figures_begin(struct figures *f, int member, int batch, int64_t first_step,
                   int64_t train_steps);
/* Records that all steps up to global_step are done; images: samples that this worker has read
 * since training began. */
void figures_note(struct figures *f, int64_t global_step, float loss, int64_t images);
/* Records that training has waited `ms` for the program `whom`; NULL: training does not wait. */
void figures_wait(struct figures *f, const char *whom, int64_t ms);
void figures_read(struct figures *f, struct figures_view *out);
/* Adds the losses of the steps since the last call. Each call therefore moves a sum over few steps.
 * A total over all steps, in floats, would no longer change after a huge loss or after very many
 * losses. */
void figures_move_losses(struct figures *f, struct figures_losses *to);

#endif
