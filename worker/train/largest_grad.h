/* worker/train/largest_grad.h - the largest gradients that a worker pushes. Threads: any. Errors:
 * none. */
#ifndef WORKER_TRAIN_LARGEST_GRAD_H
#define WORKER_TRAIN_LARGEST_GRAD_H
#include "net/wire/job.h"
#include "worker/train/train_config.h"
#include <float.h>
#include <math.h>

/* Returns the largest accepted magnitude: contributions of this magnitude from as many workers as a
 * job may have, multiplied by their weights, still have a finite sum. This worker refuses a larger
 * value before it pushes any chunk of the step; a server would refuse only the chunk with the
 * value. */
static inline float largest_grad_to_sum(const struct trainer_config *cfg)
{
    return (float)((double)FLT_MAX / ((double)cfg->batch * 2 * JOB_MAX_WORKERS));
}

/* Returns a magnitude that is accepted in every dtype of contributions. Rounding to bf16 adds at
 * most one 256th; the largest number in fp16 is 65504. */
static inline float largest_grad_in_any_case(const struct trainer_config *cfg)
{
    float rounded = largest_grad_to_sum(cfg) * (1 - 0x1p-7f), largest_half = 65504;
    return cfg->push_dtype == DTYPE_F16 ? fminf(rounded, largest_half) : rounded;
}

#endif
