/* kernels/vector/finite.h - finds the first element that is not finite (infinity or NaN). Reads
 * each element once, at any alignment. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_FINITE_H
#define KERNELS_VECTOR_FINITE_H
#include "kernels/vector/dtype.h"
#include <stddef.h>

/* Returns the index of the first bad one of n elements of d, from a multiple of its block on; n if
 * all are finite. */
size_t finite_first_bad(enum dtype d, const void *src, size_t n);
/* Returns the index of the first of n floats that rounding to d would make infinite, although it is
 * finite: bf16 above 3.39e38, fp16 from 65520 on, int8 and int4 from 3.4027e38 on, topk as bf16.
 * Returns n without one. */
size_t finite_first_misfit(enum dtype d, const float *src, size_t n);
/* Returns the index of the first of n elements of d, from a multiple of its block on, that is not
 * finite or has a magnitude above `limit` (above 0 and finite). Returns n without one. */
size_t finite_first_above(enum dtype d, const void *src, size_t n, float limit);

#endif
