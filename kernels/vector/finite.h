/* kernels/vector/finite.h - finds the first element that is not finite (infinity or NaN). Reads
 * each element once, at any alignment. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_FINITE_H
#define KERNELS_VECTOR_FINITE_H
#include "kernels/vector/dtype.h"
#include <stdbool.h>
#include <stddef.h>

/* Returns the index of the first of n elements of format d that is not finite; n if all are finite.
 * src must begin with a whole block of d. */
size_t finite_first_bad(enum dtype d, const void *src, size_t n);
/* Returns true if all of n floats are finite. For a few floats it is faster than the search. */
bool finite_all(const float *values, size_t n);
/* Returns the index of the first of n floats that is not finite, or would become infinite by
 * rounding to d: bf16 above 3.39e38, fp16 from 65520 on, int8 and int4 from 3.4027e38 on, topk as
 * bf16. Returns n if all stay finite. */
size_t finite_first_misfit(enum dtype d, const float *src, size_t n);
/* Returns the index of the first of n elements of format d that is not finite or has a magnitude
 * above `limit`, which must be above 0 and finite. Returns n if all are within the limit. src must
 * begin with a whole block of d. */
size_t finite_first_above(enum dtype d, const void *src, size_t n, float limit);

#endif
