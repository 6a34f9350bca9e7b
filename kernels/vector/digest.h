/* kernels/vector/digest.h - a digest of floats that does not depend on the order in which it is
 * computed, so that a device and a host can compare their copies of a block. It detects errors, not
 * attacks: each element's bits are multiplied by a weight that depends on its index. Threads: any.
 * Errors: none. */
#ifndef KERNELS_VECTOR_DIGEST_H
#define KERNELS_VECTOR_DIGEST_H
#include <stddef.h>
#include <stdint.h>

/* Returns the sum of bits(x[i]) * weight(i) modulo 2^64. The weights of the first 4096 elements are
 * different 32-bit numbers above 0, so one changed element, or two elements that are exchanged,
 * always change the digest. kernels/cuda/resident/digest.cu computes the same digest. */
uint64_t vector_digest(const float *x, size_t n);

#endif
