/* worker/train/figures.h - what a worker's steps come to, for those who watch while it trains:
 * totals since the process was started, which go on where training goes back to an earlier step.
 * Owns: nothing but its lock, which is held for a few additions.
 * Threads: any. Errors: none. */
#ifndef WORKER_TRAIN_FIGURES_H
#define WORKER_TRAIN_FIGURES_H
#include "net/wire/status.h"
#include <pthread.h>
#include <stdint.h>

enum { FIGURES_BOUNDS = 14 };
extern const double figures_bounds[FIGURES_BOUNDS]; /* seconds of a step, ascending */

struct figures_view {
    int member;                        /* index; -1: not known yet */
    int64_t global_step, train_steps;  /* of the job; 0: not known yet */
    int64_t steps, images;             /* of this worker */
    float loss;                        /* of the last step, which may be no number */
    int64_t n_nonfinite;               /* losses that were none */
    int64_t nonfinite_since;           /* step from which on all were none; 0: the last was one */
    double seconds;                    /* behind the steps in `taken` */
    int64_t taken[FIGURES_BOUNDS + 1]; /* steps by what they took, each up to its bound */
    int64_t moved_ns;    /* monotonic: when the last step ended, or training began; 0 */
    double moved_unix_s; /* likewise, since 1970 */
    char waiting[STATUS_WAITING_BYTES]; /* whom it waits for; empty: for none, or not for long */
    int64_t waiting_ms;
};

/* Finite losses of steps. */
struct figures_losses {
    int64_t n;
    double sum;
};

struct figures {
    pthread_mutex_t lock; /* guards what follows */
    struct figures_view now;
    struct figures_losses losses; /* that nobody has taken */
    int batch;                    /* samples of a step */
    int64_t images_before;        /* of the last note */
};

void figures_init(struct figures *f);
/* Training begins, as this member. */
void figures_begin(struct figures *f, int member, int batch, int64_t first_step,
                   int64_t train_steps);
/* Steps are done; images: this worker's since it began. */
void figures_note(struct figures *f, int64_t global_step, float loss, int64_t images);
/* Training waits for `whom`, and has done so for ms; NULL: it does not. */
void figures_wait(struct figures *f, const char *whom, int64_t ms);
void figures_read(struct figures *f, struct figures_view *out);
/* Adds the losses of the steps since the last call. Not a total: behind a huge loss, or after very
 * many, a sum would not change any more. */
void figures_move_losses(struct figures *f, struct figures_losses *to);

#endif
