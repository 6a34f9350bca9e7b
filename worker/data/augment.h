/* worker/data/augment.h - random changes of a training sample. They depend only on the job's seed,
 * the index of the sample and the pass over the training set: every reader gets the same values, in
 * any order, thread or process, however often it reads (I2, I6, I8). The changes are applied in
 * this order: shift (zeros replace the pixels that the shift leaves free); crop (as many zeros are
 * added around the sample, and a window of the sample's size is cut out); flip; cutout (a square
 * around any pixel, which may extend beyond the edge). All channels are changed in the same way.
 * These zeros are written before the sample is normalised.
 * Owns:    nothing. Threads: any. Errors: none. */
#ifndef WORKER_DATA_AUGMENT_H
#define WORKER_DATA_AUGMENT_H
#include "base/shape.h"
#include "net/wire/job_input.h"
#include <stdint.h>

struct augment_draw {
    int flip;
    /* y, x: position in the sample of the pixel that is copied to (0, 0) */
    int64_t shift[2], crop[2];
    /* [y, x][first, end] of the square, inside the sample; the pixel at `end` is outside the
     * square */
    int64_t cut[2][2];
};

/* Draws the changes of one sample. Each number in `a` must be smaller than the sample's height and
 * width. */
struct augment_draw augment_draw(const struct job_augment *a, const struct shape *sample,
                                 uint64_t seed, uint64_t pass, int64_t item);
/* Applies the drawn changes. src, dst: (C,H,W) numbers of elem_bytes (1 or 4) bytes each, which
 * must not overlap. */
void augment_apply(const struct augment_draw *draw, const struct shape *sample, int elem_bytes,
                   const void *src, void *dst);

#endif
