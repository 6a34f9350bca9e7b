/* kernels/vector/quant.h - floats as integers of 8 or 4 bits with a scale for each block of
 * QUANT_BLOCK of them, the last one being shorter: what thin links carry. A block is its scale, a
 * float, and then words of 32 bits: of m values in all, word j has the values j, j + w, j + 2w ...
 * from its lowest bits on, where w = ceil(m / 4) is the number of words in int8 and ceil(m / 8) in
 * int4; those that are not there are 0. A value is its integer, of two's complement, times the
 * scale. So int8 takes 260 bytes for 1024, int4 132.
 * Bits are the same whatever instructions the machine has. Threads: any. Errors: none.
 * Source: blocks of 256 with the largest magnitude as scale, error feedback at who rounds: Seide et
 * al. 2014 (1-bit SGD), Karimireddy et al. 2019 (error feedback), Dettmers et al. 2022 (blocks). */
#ifndef KERNELS_VECTOR_QUANT_H
#define KERNELS_VECTOR_QUANT_H
#include <stddef.h>

enum { QUANT_BLOCK = 256, QUANT_BLOCK_BYTES_MAX = 4 + QUANT_BLOCK };

/* Of n values in `bits` (8 or 4). */
size_t quant_bytes(int bits, size_t n);
/* dst: quant_bytes of any alignment, apart from the rest. The integer is the nearest, ties to even,
 * at most 127 (7). residual: n floats that are added to src first and then become what was rounded
 * off, so that over many calls nothing is lost; NULL: there is none. A block whose largest
 * magnitude is below 2^-100 is sent as zeros. One with a value that is not finite gets a scale that
 * is not, so that all of it decodes to such values. */
void quant_encode(int bits, void *dst, const float *src, float *residual, size_t n);
/* Likewise what changed from old to value, n floats each, which becomes old and what dst decodes
 * to: so whoever has old, and adds dst to it, has the same bits. */
void quant_encode_change(int bits, void *dst, const float *old, float *value, float *residual,
                         size_t n);
/* Adds what src decodes to. src: any alignment. */
void quant_add(int bits, float *dst, const void *src, size_t n);
/* src: any alignment. */
void quant_decode(int bits, float *dst, const void *src, size_t n);

#endif
