/* kernels/vector/clip.h - clipping by the global norm: computes the factor by which all gradients
 * of a step are multiplied so that their common norm is within a limit. Owns: nothing. Threads:
 * any. Errors: none. */
#ifndef KERNELS_VECTOR_CLIP_H
#define KERNELS_VECTOR_CLIP_H

#ifdef __cplusplus
extern "C" {
#endif

/* squares: sum of the squares of all gradients, >= 0; limit: above 0. Returns 1 if the norm is
 * within the limit, otherwise limit / norm, which is above 0. Returns 0 if the norm is not finite:
 * the step must then change no parameter. */
double clip_factor(double squares, float limit);

/* Returns the number by which a sum of weighted contributions is multiplied to get their clipped
 * mean: factor / weight, rounded once. If factor is 1, this is the scale of an unclipped mean. */
static inline float clip_scale(double factor, double weight)
{
    return (float)(factor / weight);
}

#ifdef __cplusplus
}
#endif
#endif
