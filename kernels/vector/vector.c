/* kernels/vector/vector.c - the loops of vector.h. src is read through a packed type, which costs
 * nothing on machines that load vectors from any address. */
#include "kernels/vector/vector.h"
#include "kernels/vector/clones.h"
#include "kernels/vector/packed.h"
#include <string.h>

VECTOR_CLONES void vector_scale(float *dst, const void *src, float weight, size_t n)
{
    const struct packed_float *s = src;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        dst[i] = weight * s[i].v;
}

VECTOR_CLONES void vector_add_scaled(float *dst, const void *src, float weight, size_t n)
{
    const struct packed_float *s = src;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        dst[i] += weight * s[i].v;
}

VECTOR_CLONES void vector_sum_scaled(float *dst, const float *a, const void *src, float weight,
                                     size_t n)
{
    const struct packed_float *s = src;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        dst[i] = a[i] + weight * s[i].v;
}

VECTOR_CLONES void vector_clip(float *dst, const void *src, float weight, float scale, float limit,
                               size_t n)
{
    const struct packed_float *s = src;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float g = weight * s[i].v * scale;
        g = g > limit ? limit : g;
        dst[i] = g < -limit ? -limit : g;
    }
}

/* Adds in eight independent sums, because in a single sum each addition would wait for the previous
 * one. */
VECTOR_CLONES double vector_sum_squares(const float *src, float weight, size_t n)
{
    enum { LANES = 8 };
    double lane[LANES] = {0}, sum = 0;
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            float v = weight * src[i + k];
            lane[k] += (double)v * (double)v;
        }
    for (size_t i = whole; i < n; i++) {
        float v = weight * src[i];
        lane[i - whole] += (double)v * (double)v;
    }
    for (size_t k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

void vector_copy(float *dst, const void *src, size_t n)
{
    if (n)
        memcpy(dst, src, n * sizeof *dst);
}

/* Returns the loops' form. Checks the same processor features as the ifuncs, in the same order. */
const char *vector_description(void)
{
#if VECTOR_HAS_CLONES
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return "AVX-512";
    return __builtin_cpu_supports("avx2") ? "AVX2" : "baseline x86-64";
#else
    return "portable";
#endif
}
