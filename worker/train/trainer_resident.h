/* worker/train/trainer_resident.h - a worker without servers whose towers, each on a device of its
 * own, train on devices that run whole steps (kernels/resident.h): steps are queued, losses are
 * read from time to time, and the parameters are read back when they are needed.
 * Threads: trainer_resident_run blocks, like trainer_run, whose loop it replaces.
 * Errors:  the backend's; ST_CANCELLED if training is stopped before its end. */
#ifndef WORKER_TRAIN_TRAINER_RESIDENT_H
#define WORKER_TRAIN_TRAINER_RESIDENT_H
#include "worker/train/tower.h"
#include "worker/train/trainer.h"

struct trainer_resident {
    const struct trainer_config *cfg; /* all borrowed */
    struct tower *const *towers;      /* [cfg->n_towers] */
    struct progress *progress;
    int member; /* index of this worker, for log lines */
    void *ctx;  /* argument of the functions below */
    int (*stopped)(void *ctx);
    /* cfg->params then have the values of `step` */
    enum status (*evaluate)(void *ctx, int64_t step);
    void (*look)(void *ctx, int64_t step); /* called when cfg->observer needs cfg->params */
    void (*step_done)(void *ctx, const struct trainer_result *r, int n_correct);
};

/* Returns true if the towers' devices can run whole steps by themselves. Logs nothing. */
bool trainer_resident_fits(const struct trainer_config *cfg, struct tower *const *towers);
/* Trains from `step` to the end; cfg->params then hold the last parameters. *done false: a device
 * has not enough memory, or several devices cannot exchange parameters (logged), and nothing has
 * changed. */
enum status trainer_resident_run(const struct trainer_resident *r, int64_t step,
                                 struct trainer_result *out, bool *done);

#endif
