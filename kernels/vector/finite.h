/* kernels/vector/finite.h - where the first element is that is no finite number: an infinity or no
 * number at all. One look at each element, any alignment. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_FINITE_H
#define KERNELS_VECTOR_FINITE_H
#include "kernels/vector/dtype.h"
#include <stddef.h>

/* src: n elements of d, from a multiple of its block on. Returns n if all are finite. */
size_t finite_first_bad(enum dtype d, const void *src, size_t n);
/* src: n floats that are going to be rounded to d, which may make an infinity of one that is
 * finite: bf16 above 3.39e38, fp16 from 65520 on; int8 and int4 from 3.4027e38 on; topk as
 * bf16. Returns n if all stay finite. */
size_t finite_first_misfit(enum dtype d, const float *src, size_t n);
/* src: n elements of d, likewise. The first of a magnitude above `limit` (above 0 and finite), an
 * infinity or no number. Returns n if there is none. */
size_t finite_first_above(enum dtype d, const void *src, size_t n, float limit);

#endif
