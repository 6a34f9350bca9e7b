/* kernels/vector/dtype.h - number formats of floats on the wire: fp32; bf16 (the upper half of
 * fp32: its range, 8 bits of precision); fp16 (IEEE 754 binary16: 11 bits, up to 65504); int8 and
 * int4 with a scale for each block of values (quant.h); and topk, which keeps a block's largest
 * values (topk.h). Elements have the machine's byte order, which is little endian on all supported
 * machines. Results have the same bits with every instruction set. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_DTYPE_H
#define KERNELS_VECTOR_DTYPE_H
#include <stddef.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_INT8, DTYPE_INT4, DTYPE_TOPK, DTYPE_N_KINDS };
#define DTYPE_NAMES "fp32|bf16|fp16|int8|int4|topk" /* names in the order of the enum */

enum { DTYPE_BLOCK_MAX = 256 };

const char *dtype_name(enum dtype d); /* "fp32" */
/* Parses one name, such as "int8", for both *first and *second, or two names, such as "int8,fp32".
 * Returns 0 if the text is not valid. */
int dtype_read_two(const char *text, enum dtype *first, enum dtype *second);
/* Returns the number of bytes in which n elements are encoded. */
size_t dtype_bytes(enum dtype d, size_t n);
/* Returns the number of elements in a block: 1, or DTYPE_BLOCK_MAX. Each block can be decoded
 * separately. */
size_t dtype_block(enum dtype d);

/* Encodes n elements to dst, which may have any alignment and must not overlap src. Rounds to the
 * nearest, ties to even. int8, int4 and topk are encoded as quant_encode and topk_encode do without
 * a residual. In all other formats a value beyond the largest finite one becomes an infinity; a
 * value below the smallest normal one becomes a subnormal or a zero of the same sign; a NaN becomes
 * a quiet NaN of the same sign (in fp32 it is copied). */
void dtype_encode(enum dtype d, void *dst, const float *src, size_t n);
/* Encodes with a residual, or (second function) encodes a change: int8 and int4 as quant_encode and
 * quant_encode_change do, topk as topk_encode and topk_encode_change do. */
void dtype_encode_residual(enum dtype d, void *dst, const float *src, float *residual, size_t n);
void dtype_encode_change(enum dtype d, void *dst, const float *old, float *value, float *residual,
                         size_t n);
void dtype_add(enum dtype d, float *dst, const void *src, size_t n);
/* Decodes n elements of src, which may have any alignment (a network buffer) and must not overlap
 * dst. Decoding is exact. A NaN stays a NaN; a NaN in fp16 becomes quiet. */
void dtype_decode(enum dtype d, float *dst, const void *src, size_t n);

#endif
