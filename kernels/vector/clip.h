/* kernels/vector/clip.h - clipping by the global norm: what all gradients of a step are multiplied
 * by, so that the norm of all of them together is at most a limit.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_CLIP_H
#define KERNELS_VECTOR_CLIP_H

#ifdef __cplusplus
extern "C" {
#endif

/* squares: the sum of squares of all gradients, >= 0; limit: > 0. 1: the norm is within the limit;
 * else limit / norm, above 0; 0: the norm is not finite, and the step is to move nothing. */
double clip_factor(double squares, float limit);

/* Turns the sum of weighted contributions into their mean, clipped: factor / weight, rounded
 * once. With a factor of 1 the scale of a mean that is not clipped. */
static inline float clip_scale(double factor, double weight)
{
    return (float)(factor / weight);
}

#ifdef __cplusplus
}
#endif
#endif
