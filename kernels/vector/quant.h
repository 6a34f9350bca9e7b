/* kernels/vector/quant.h - floats as integers of 8 or 4 bits, with one scale per block of
 * QUANT_BLOCK, for slow links. The last block may be shorter.
 *
 * A block is its scale (a float), then words of 32 bits. For m values, word j holds the values j, j
 * + w, j + 2w ... from its lowest bits on; w, the number of words, is ceil(m / 4) in int8 and
 * ceil(m / 8) in int4; missing values are 0. A value is its two's complement integer times the
 * scale. So int8 needs 260 bytes for 1024, int4 132. Same bits with every instruction set. Threads:
 * any. Errors: none. Source: blocks of 256 with the largest magnitude as scale; error feedback at
 * the sender: Seide et al. 2014 (1-bit SGD), Karimireddy et al. 2019 (error feedback), Dettmers et
 * al. 2022 (blocks). */
#ifndef KERNELS_VECTOR_QUANT_H
#define KERNELS_VECTOR_QUANT_H
#include <stddef.h>

enum { QUANT_BLOCK = 256, QUANT_BLOCK_BYTES_MAX = 4 + QUANT_BLOCK };

/* Returns the bytes of n values in `bits` (8 or 4). */
size_t quant_bytes(int bits, size_t n);
/* Encodes to dst, quant_bytes of any alignment, which overlaps no other argument. Integers are
 * rounded to the nearest, ties to even, at most 127 (7). residual: n floats that are added to src
 * first, and then receive the rounding errors, so that nothing is lost over many calls; NULL: none.
 * A block whose largest magnitude is below 2^-100 is encoded as zeros. A block with a value that is
 * not finite has a scale that is not finite, so that all its values decode to values that are not
 * finite. */
void quant_encode(int bits, void *dst, const float *src, float *residual, size_t n);
/* Encodes the change from old to value, n floats each. value becomes old plus the decoded change: a
 * receiver that has old and adds dst to it gets the same bits. */
void quant_encode_change(int bits, void *dst, const float *old, float *value, float *residual,
                         size_t n);
/* Adds the decoded values of src, of any alignment, to dst. */
void quant_add(int bits, float *dst, const void *src, size_t n);
/* Decodes src, of any alignment. */
void quant_decode(int bits, float *dst, const void *src, size_t n);

#endif
