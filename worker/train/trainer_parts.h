/* worker/train/trainer_parts.h - copies of gradients and parameters in parts (kernels/parts.h), if
 * the trainer's only tower supports them. A part (kernels/parts.h) is as long as a chunk.
 *
 * DESIGN. A chunk is pushed when its part has arrived from the device. The device searches
 * gradients for numbers that are not finite, so the host reads no gradient of a layer unless the
 * device has found one there. While the tower waits for the parameters of a layer, each chunk that
 * arrives, even one of another layer, is copied to the device. The copies end before params are
 * changed in another way (finish_copies in trainer.c).
 *
 * Threads: the tower's. Errors: those of the tower and of the updates. */
#ifndef WORKER_TRAIN_TRAINER_PARTS_H
#define WORKER_TRAIN_TRAINER_PARTS_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct trainer;

struct trainer_parts {
    bool fetches;     /* the tower's gradients are copied to the host in parts */
    bool loads;       /* each chunk is copied to the device when its version has arrived */
    uint8_t *fetched; /* [n_params] 1 if all parts of this step's gradient are on the host */
    uint8_t *loaded;  /* [n_chunks] 1 if the copy of version loaded_step to the device is queued */
    int64_t loaded_step; /* -1: none */
};

/* Sets t->parts, after the towers are made. */
enum status trainer_parts_make(struct trainer *t);
void trainer_parts_free(struct trainer *t);
/* Waits until the chunk's gradients (trainer_parts_fetch), or all gradients of the layer, are on
 * the host. */
enum status trainer_parts_fetch(struct trainer *t, int chunk);
enum status trainer_parts_fetch_layer(struct trainer *t, int layer);
/* Waits until the copies of version `step` of the chunks [first, first + n) to the device are
 * queued. While it waits, queues the copy of each other chunk that arrives. */
enum status trainer_parts_load(struct trainer *t, int first, int n, int64_t step);

#endif
