/* kernels/vector/digest.c - computes the digest of digest.h. The loop computes the sums of both
 * halves of the elements at once: with one sum, each vector would wait for the vector before. */
#include "kernels/vector/digest.h"
#include "kernels/vector/clones.h"

struct __attribute__((may_alias)) float_bits {
    uint32_t v;
};

#define FIRST 0x7f4a7c15u
#define STEP 0x9e3779b1u

VECTOR_CLONES static uint64_t digest_of(const struct float_bits *x, size_t n)
{
    size_t half = n / 2;
    const struct float_bits *y = x + half;
    uint64_t sum = 0, sum1 = 0;
    uint32_t w = FIRST, w1 = FIRST + STEP * (uint32_t)half;
    for (size_t i = 0; i < half; i++, w += STEP, w1 += STEP) {
        sum += (uint64_t)x[i].v * (w ^ w >> 15);
        sum1 += (uint64_t)y[i].v * (w1 ^ w1 >> 15);
    }
    if (n & 1)
        sum += (uint64_t)y[half].v * (w1 ^ w1 >> 15);
    return sum + sum1;
}

uint64_t vector_digest(const float *x, size_t n)
{
    return digest_of((const struct float_bits *)x, n);
}
