/* kernels/vector/vector.h - loops over float arrays: sums of contributions, counts. src may have
 * any alignment (it may be in a network buffer); dst is 4-byte aligned at least. The loops are
 * plain C that the compiler vectorises; additions are not reordered. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_VECTOR_H
#define KERNELS_VECTOR_VECTOR_H
#include <stddef.h>

/* Sets dst[i] = weight * src[i]. */
void vector_scale(float *dst, const void *src, float weight, size_t n);
/* Adds weight * src[i] to dst[i]; the product is rounded before the addition. */
void vector_add_scaled(float *dst, const void *src, float weight, size_t n);
/* Sets dst[i] = a[i] + weight * src[i]; the product is rounded before the addition. dst may be
 * a. */
void vector_sum_scaled(float *dst, const float *a, const void *src, float weight, size_t n);
/* Sets dst[i] = weight * src[i] * scale, limited to -limit .. limit */
void vector_clip(float *dst, const void *src, float weight, float scale, float limit, size_t n);
/* Returns the sum of (weight * src[i])^2. Each product is rounded to float before it is squared;
 * squares and sums are in double. There are eight sums, each over every eighth element, which are
 * then added in order. */
double vector_sum_squares(const float *src, float weight, size_t n);
/* Copies dst[i] = src[i]. */
void vector_copy(float *dst, const void *src, size_t n);
/* Returns the name of the form of this folder's loops that was chosen at program start: "AVX-512",
 * "AVX2", "baseline x86-64", or "portable" if the build has one form only. */
const char *vector_description(void);

#endif
