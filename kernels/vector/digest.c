/* kernels/vector/digest.c - see the header. */
#include "kernels/vector/digest.h"
#include "kernels/vector/clones.h"

struct __attribute__((may_alias)) float_bits {
    uint32_t v;
};

VECTOR_CLONES static uint64_t digest_of(const struct float_bits *x, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t weight = (uint32_t)i * 0x9e3779b1u + 0x7f4a7c15u;
        weight = (weight ^ weight >> 15) * 0x85ebca77u;
        sum += (uint64_t)x[i].v * weight;
    }
    return sum;
}

uint64_t vector_digest(const float *x, size_t n)
{
    return digest_of((const struct float_bits *)x, n);
}
