/* kernels/vector/compensate.h - what DC-ASGD (Zheng et al. 2017) does to a gradient that comes
 * late. Threads: any. Errors: none. Bit-identical whatever instructions the machine has. */
#ifndef KERNELS_VECTOR_COMPENSATE_H
#define KERNELS_VECTOR_COMPENSATE_H
#include <stddef.h>

/* g += lambda * g * g * (now - base), element by element: the gradient at `now`, as guessed from
 * the one at `base` with g * g for the diagonal of the Hessian. g is apart from the other two. */
void optim_compensate(float lambda, size_t n, const float *now, const float *base, float *g);

#endif
