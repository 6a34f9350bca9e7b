/* kernels/vector/quant.h - floats as integers of 8 or 4 bits, with one scale per block of
 * QUANT_BLOCK, for slow links. The last block may be shorter.
 *
 * A block consists of its scale (a float), then words of 32 bits. A block of m values has w words:
 * ceil(m / 4) in int8 and ceil(m / 8) in int4. Word j holds the values j, j + w, j + 2w ... from
 * its lowest bits on; missing values are 0. A value is its two's complement integer times the
 * scale. So 1024 bytes of floats become 260 bytes in int8 and 132 in int4. Results have the same
 * bits with every instruction set. Threads: any. Errors: none. Sources: Dettmers et al. 2022
 * (blocks with the largest magnitude as scale), Seide et al. 2014 (1-bit SGD) and Karimireddy et
 * al. 2019 (error feedback at the sender). */
#ifndef KERNELS_VECTOR_QUANT_H
#define KERNELS_VECTOR_QUANT_H
#include <stddef.h>

enum { QUANT_BLOCK = 256, QUANT_BLOCK_BYTES_MAX = 4 + QUANT_BLOCK };

/* Returns the number of bytes in which n values of `bits` bits (8 or 4) are encoded. */
size_t quant_bytes(int bits, size_t n);
/* Encodes n floats to dst, which has quant_bytes at any alignment and overlaps no other argument.
 * Integers are rounded to the nearest, ties to even, and are at most 127 in int8, 7 in int4.
 * residual: n floats that are first added to src, and then receive the rounding errors, so that no
 * change is lost over many calls; NULL: none. A block whose largest magnitude is below 2^-100 is
 * encoded as zeros. A block with a value that is not finite has a scale that is not finite, so that
 * all its values decode to values that are not finite. */
void quant_encode(int bits, void *dst, const float *src, float *residual, size_t n);
/* Encodes the change from old to value, n floats each. Afterwards `value` is old plus the decoded
 * change, with the same bits that a receiver gets when it adds dst to old. */
void quant_encode_change(int bits, void *dst, const float *old, float *value, float *residual,
                         size_t n);
/* Adds the decoded values of src, of any alignment, to dst. */
void quant_add(int bits, float *dst, const void *src, size_t n);
/* Decodes src, of any alignment. */
void quant_decode(int bits, float *dst, const void *src, size_t n);

#endif
