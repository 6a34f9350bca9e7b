/* kernels/vector/dtype.h - the number formats that floats cross the wire in: fp32 as it is, bf16
 * (fp32's upper half: its range, 8 bits of precision) and fp16 (IEEE 754 binary16: 11 bits, up to
 * 65504). Elements stand in the machine's byte order, which is little endian everywhere here.
 * Bits are the same whatever instructions the machine has. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_DTYPE_H
#define KERNELS_VECTOR_DTYPE_H
#include <stddef.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_N_KINDS };
#define DTYPE_NAMES "fp32|bf16|fp16" /* in the order above */

const char *dtype_name(enum dtype d); /* "fp32" */
/* Bytes of one element. */
size_t dtype_size(enum dtype d);

/* dst: n elements of d, any alignment, apart from src. Rounds to the nearest, ties to even: beyond
 * the largest finite value it gives an infinity, below the smallest normal one a subnormal or a
 * zero of the same sign. A NaN stays a NaN of that sign, quiet (fp32: is copied). */
void dtype_encode(enum dtype d, void *dst, const float *src, size_t n);
/* src: n elements of d, any alignment (a network buffer), apart from dst. Exact; a NaN stays
 * a NaN, fp16's becomes quiet. */
void dtype_decode(enum dtype d, float *dst, const void *src, size_t n);

#endif
