/* worker/train/chance.h - detects a trained network that is no better than a guess. Owns: nothing.
 * Threads: any. Errors: none. */
#ifndef WORKER_TRAIN_CHANCE_H
#define WORKER_TRAIN_CHANCE_H
#include "kernels/layer.h"
#include <stdint.h>

enum chance {
    CHANCE_BETTER,  /* result better than a guess, or too little training to judge */
    CHANCE_GUESS,   /* accuracy and loss are those of a guess */
    CHANCE_DIVERGED /* the loss is far above that of a guess */
};

struct chance_figures {
    enum layer_kind loss_kind; /* kinds other than softmax: always CHANCE_BETTER */
    double accuracy, loss;     /* accuracy NaN (data with targets): always CHANCE_BETTER */
    int classes;
    int64_t n;     /* evaluated samples */
    int64_t steps; /* trained steps */
    double passes; /* passes of all workers together over the training set */
};

enum chance chance_judge(const struct chance_figures *f);
/* Logs a warning unless the figures are better than a guess. */
void chance_warn(const struct chance_figures *f);

#endif
