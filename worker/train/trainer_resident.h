/* worker/train/trainer_resident.h - a worker without servers whose one tower trains on a device
 * that can do it all (kernels/resident.h): steps are queued, losses looked at, and the parameters
 * read back when somebody wants them.
 * Threads: run blocks, as trainer_run, which it stands in for.
 * Errors:  the backend's; ST_CANCELLED when it is stopped before its end. */
#ifndef WORKER_TRAIN_TRAINER_RESIDENT_H
#define WORKER_TRAIN_TRAINER_RESIDENT_H
#include "worker/train/tower.h"
#include "worker/train/trainer.h"

struct trainer_resident {
    const struct trainer_config *cfg; /* all borrowed */
    struct tower *tower;
    struct progress *progress;
    int member; /* this worker's index, for lines */
    void *ctx;  /* of those below */
    int (*stopped)(void *ctx);
    enum status (*evaluate)(void *ctx, int64_t step); /* cfg->params are those of the step */
    void (*look)(void *ctx, int64_t step); /* likewise, where cfg->observer wants to see them */
    void (*step_done)(void *ctx, const struct trainer_result *r, int n_correct);
};

/* May this tower train so? If not, there is nothing to be said: it is not a case for it. */
int trainer_resident_fits(const struct trainer_config *cfg, const struct tower *tower);
/* Trains from `step` to the end; then cfg->params are the last ones. *taken 0: there is no memory
 * for it, logged, and nothing has happened. */
enum status trainer_resident_run(const struct trainer_resident *r, int64_t step,
                                 struct trainer_result *out, int *taken);

#endif
