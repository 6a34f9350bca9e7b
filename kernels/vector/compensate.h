/* kernels/vector/compensate.h - corrects a late gradient by DC-ASGD (Zheng et al. 2017). Threads:
 * any. Errors: none. Same bits with every instruction set. */
#ifndef KERNELS_VECTOR_COMPENSATE_H
#define KERNELS_VECTOR_COMPENSATE_H
#include <stddef.h>

/* Computes g += lambda * g * g * (now - base) for each element: an estimate of the gradient at
 * `now` from the gradient at `base`, with g * g for the diagonal of the Hessian. g overlaps neither
 * of them. */
void optim_compensate(float lambda, size_t n, const float *now, const float *base, float *g);

#endif
