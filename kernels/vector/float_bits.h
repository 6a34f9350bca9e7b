/* kernels/vector/float_bits.h - reads a float as its bits, and back. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_FLOAT_BITS_H
#define KERNELS_VECTOR_FLOAT_BITS_H
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

#endif
