/* kernels/vector/dtype.h - the number formats that floats cross the wire in: fp32 as it is, bf16
 * (fp32's upper half: its range, 8 bits of precision), fp16 (IEEE 754 binary16: 11 bits, up to
 * 65504), int8 and int4, which have a scale for each block of values (quant.h), and topk, which has
 * a block's largest values alone (topk.h). Elements stand in the machine's byte order, which is
 * little endian everywhere here. Bits are the same whatever instructions the machine has. Threads:
 * any. Errors: none. */
#ifndef KERNELS_VECTOR_DTYPE_H
#define KERNELS_VECTOR_DTYPE_H
#include <stddef.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_INT8, DTYPE_INT4, DTYPE_TOPK, DTYPE_N_KINDS };
#define DTYPE_NAMES "fp32|bf16|fp16|int8|int4|topk" /* in the order above */

enum { DTYPE_BLOCK_MAX = 256 };

const char *dtype_name(enum dtype d); /* "fp32" */
/* "int8": both; "int8,fp32": one each. 0: that is not what the text is. */
int dtype_read_two(const char *text, enum dtype *first, enum dtype *second);
/* Bytes of n elements. */
size_t dtype_bytes(enum dtype d, size_t n);
/* So many elements share a scale, and those from a multiple of it on can be decoded by themselves:
 * 1, or DTYPE_BLOCK_MAX. */
size_t dtype_block(enum dtype d);

/* dst: n elements of d, any alignment, apart from src. Rounds to the nearest, ties to even. Of
 * int8, int4 and topk see quant_encode and topk_encode, without a residual. Else: beyond the
 * largest finite value it gives an infinity, below the smallest normal one a subnormal or a zero of
 * the same sign. A NaN stays a NaN of that sign, quiet (fp32: is copied). */
void dtype_encode(enum dtype d, void *dst, const float *src, size_t n);
/* Likewise for those with blocks, with a residual, and of a change: as quant_encode, and so on. */
void dtype_encode_residual(enum dtype d, void *dst, const float *src, float *residual, size_t n);
void dtype_encode_change(enum dtype d, void *dst, const float *old, float *value, float *residual,
                         size_t n);
void dtype_add(enum dtype d, float *dst, const void *src, size_t n);
/* src: n elements of d, any alignment (a network buffer), apart from dst. Exact; a NaN stays
 * a NaN, fp16's becomes quiet. */
void dtype_decode(enum dtype d, float *dst, const void *src, size_t n);

#endif
