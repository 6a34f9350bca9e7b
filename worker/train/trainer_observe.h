/* worker/train/trainer_observe.h - the trainer's calls to its observer (observer.h). If there is no
 * observer, the functions return at once. Private to the trainer's files. Owns: nothing. Threads:
 * see trainer_impl.h. Errors: none. */
#ifndef WORKER_TRAIN_TRAINER_OBSERVE_H
#define WORKER_TRAIN_TRAINER_OBSERVE_H
#include "worker/train/trainer_impl.h"

void trainer_observe_start(struct trainer *t, const struct net_start *start);
/* Begins a step; the first tower calls it before it computes the step. The next two functions are
 * called for each layer: trainer_observe_layer after the layer's parameters have arrived,
 * trainer_observe_gradients after its gradients are summed. */
void trainer_observe_begin(struct trainer *t, int64_t step);
void trainer_observe_layer(struct trainer *t, const struct tower *w, int layer, int64_t step);
void trainer_observe_gradients(struct trainer *t, int layer, int64_t step);
/* Returns true if the gradients of this step are reported. */
bool trainer_observe_is_due(const struct trainer *t, int64_t step);
/* Reports n parameters with their present values. The caller has checked that there is an
 * observer. */
void trainer_observe_params(struct trainer *t, int64_t global_step, int first, int n);
/* Reports a completed step, whose result must be in t->result. */
void trainer_observe_step(struct trainer *t, int64_t number, int n_correct);
void trainer_observe_end(struct trainer *t);

#endif
