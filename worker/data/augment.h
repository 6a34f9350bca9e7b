/* worker/data/augment.h - a training sample, changed at random. What is drawn is a pure function of
 * the job's seed, the sample's item and the pass over the training set: so whoever reads it, in
 * whichever order, thread or process and how often, gets the same (I2, I6, I8).
 * In this order: shift (zeros come in at the other side), crop (as many zeros around it as it says,
 * and a window of the sample's size out of that), flip, cutout (a square around a pixel anywhere,
 * so that it may lie over the edge). All channels of a sample alike; zeros are the samples' own 0,
 * before they are normalised.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef WORKER_DATA_AUGMENT_H
#define WORKER_DATA_AUGMENT_H
#include "base/shape.h"
#include "net/wire/job_input.h"
#include <stdint.h>

struct augment_draw {
    int flip;
    int64_t shift[2], crop[2]; /* y, x: where the pixel that comes to (0, 0) was */
    int64_t cut[2][2];         /* [y, x][first, behind the last] of the square, within the sample */
};

/* a: each of its numbers is below the sample's sides. */
struct augment_draw augment_draw(const struct job_augment *a, const struct shape *sample,
                                 uint64_t seed, uint64_t pass, int64_t item);
/* src, dst: (C,H,W) numbers of elem_bytes, 1 or 4, each; not the same. */
void augment_apply(const struct augment_draw *draw, const struct shape *sample, int elem_bytes,
                   const void *src, void *dst);

#endif
