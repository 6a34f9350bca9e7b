/* kernels/vector/topk.h - keeps only the largest few of each TOPK_BLOCK floats, for the slowest
 * links.
 *
 * A block of m values (the last block may be shorter) becomes k = ceil(m / 32) values in bf16, then
 * their k positions in the block, a byte each, in ascending order. The kept values are those with
 * the largest magnitudes. Magnitudes are compared without the bits that bf16 drops; if magnitudes
 * are equal, the first values are kept. All other values are decoded to zero. So 1024 bytes of
 * floats become 24 bytes. Results have the same bits with every instruction set. Threads: any.
 * Errors: none. Sources: Lin et al. 2018 (deep gradient compression), Stich et al. 2018 (sparsified
 * SGD with memory), Sarfi et al. 2025 (SparseLoCo: the largest values of each block of the local
 * steps' change). */
#ifndef KERNELS_VECTOR_TOPK_H
#define KERNELS_VECTOR_TOPK_H
#include <stddef.h>

enum { TOPK_BLOCK = 256, TOPK_SHARE = 32 };

size_t topk_bytes(size_t n); /* returns the number of bytes of n encoded values */
/* Encodes n floats to dst, which has topk_bytes at any alignment and overlaps no other argument.
 * residual: as for quant_encode; it receives the values that are not kept, and the rounding errors
 * of bf16. Values that are not finite count as the largest. */
void topk_encode(void *dst, const float *src, float *residual, size_t n);
/* Encodes the change from old to value, as quant_encode_change does. */
void topk_encode_change(void *dst, const float *old, float *value, float *residual, size_t n);
void topk_add(float *dst, const void *src, size_t n);
/* Decodes src, which may have any alignment and any content: positions outside the block are
 * ignored. */
void topk_decode(float *dst, const void *src, size_t n);

#endif
