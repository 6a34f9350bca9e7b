/* kernels/vector/compensate.c - computes the loop of compensate.h, one element at a time. */
#include "kernels/vector/compensate.h"
#include "kernels/vector/clones.h"

VECTOR_CLONES void optim_compensate(float lambda, size_t n, const float *now, const float *base,
                                    float *g)
{
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        g[i] += lambda * g[i] * g[i] * (now[i] - base[i]);
}
