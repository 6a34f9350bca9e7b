/* kernels/vector/topk.h - of each TOPK_BLOCK floats the largest few alone: what the thinnest links
 * carry. A block of m values (the last one is shorter) is k = ceil(m / 32) values in bf16, and then
 * their k places in it, a byte each, in rising order: those with the largest magnitudes, which are
 * compared without what bf16 cuts off; of equals the first. All others are zeros. So 1024 bytes
 * take 24.
 * Bits are the same whatever instructions the machine has. Threads: any. Errors: none.
 * Source: Lin et al. 2018 (deep gradient compression), Stich et al. 2018 (sparsified SGD with
 * memory), Sarfi et al. 2025 (SparseLoCo: the largest of each block, of what local steps changed).
 */
#ifndef KERNELS_VECTOR_TOPK_H
#define KERNELS_VECTOR_TOPK_H
#include <stddef.h>

enum { TOPK_BLOCK = 256, TOPK_SHARE = 32 };

size_t topk_bytes(size_t n); /* of n values */
/* dst: topk_bytes of any alignment, apart from the rest. residual: as quant_encode's: what is not
 * sent, and what bf16 rounds off. What is not finite is sent before all else. */
void topk_encode(void *dst, const float *src, float *residual, size_t n);
/* As quant_encode_change. */
void topk_encode_change(void *dst, const float *old, float *value, float *residual, size_t n);
void topk_add(float *dst, const void *src, size_t n);
/* src: any alignment, and any bytes: a place that is not in the block is left out. */
void topk_decode(float *dst, const void *src, size_t n);

#endif
