/* worker/train/trainer_observe.h - the trainer's side of observer.h. Without an observer nothing
 * happens. Private to the trainer's files.
 * Owns: nothing. Threads: as trainer_impl.h says. Errors: none. */
#ifndef WORKER_TRAIN_TRAINER_OBSERVE_H
#define WORKER_TRAIN_TRAINER_OBSERVE_H
#include "worker/train/trainer_impl.h"

void trainer_observe_start(struct trainer *t, const struct net_start *start);
/* By the first tower, before it computes the step; then of each layer whose parameters are there,
 * and of each whose sum of gradients is. */
void trainer_observe_begin(struct trainer *t, int64_t step);
void trainer_observe_layer(struct trainer *t, const struct tower *w, int layer, int64_t step);
void trainer_observe_gradients(struct trainer *t, int layer, int64_t step);
/* n parameters, as they are; there is an observer. */
void trainer_observe_params(struct trainer *t, int64_t global_step, int first, int n);
/* t->result is that of the step. */
void trainer_observe_step(struct trainer *t, int64_t number, int n_correct);
void trainer_observe_end(struct trainer *t);

#endif
