/* worker/train/trainer_finite.h - checks and clips the contributions of a step before they are
 * pushed. Private to the trainer, see trainer_impl.h.
 * Owns:    nothing. Threads: the one that pushes a layer.
 * Errors:  ST_INVALID, logged: a number is not finite, which ends training. */
#ifndef WORKER_TRAIN_TRAINER_FINITE_H
#define WORKER_TRAIN_TRAINER_FINITE_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct trainer;

enum trainer_push_scope {
    TRAINER_PUSH_LAYER,   /* this layer */
    TRAINER_PUSH_NOTHING, /* push nothing yet: lower layers are not checked */
    TRAINER_PUSH_ALL,     /* push all layers of the step */
    TRAINER_PUSH_SKIP,    /* push all layers of the step, with weight 0 */
};
/* Checks the sum of a layer's contributions. suspect: false if a device has checked all gradients
 * of the layer. Called from the last layer down to t->lowest, where it also checks the loss. */
enum status trainer_finite_check(struct trainer *t, int layer, int64_t step, bool suspect,
                                 enum trainer_push_scope *out);
/* Clips all gradients of the step (TRAINER_PUSH_ALL) if their norm exceeds cfg.clip_norm. If there
 * are servers, this call scales the gradients; otherwise the pushes that follow scale them. */
void trainer_finite_clip(struct trainer *t, int64_t step);

#endif
