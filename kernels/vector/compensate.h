/* kernels/vector/compensate.h - corrects a late gradient by DC-ASGD (Zheng et al. 2017). Threads:
 * any. Errors: none. Results have the same bits with every instruction set. */
#ifndef KERNELS_VECTOR_COMPENSATE_H
#define KERNELS_VECTOR_COMPENSATE_H
#include <stddef.h>

/* Computes g += lambda * g * g * (now - base) for each element: estimates the gradient at `now`
 * from the gradient at `base`; g * g stands for the diagonal of the Hessian. g must not overlap
 * `now` or `base`. */
void optim_compensate(float lambda, size_t n, const float *now, const float *base, float *g);

#endif
