/* kernels/cuda/conv/conv_first.h - selects the layers that conv_first.c computes
 * (TUNING_FIRST_CONV), and declares the function by which such a layer accesses the max pool after
 * it. Threads: as plan.h. Errors: none. */
#ifndef KERNELS_CUDA_CONV_CONV_FIRST_H
#define KERNELS_CUDA_CONV_CONV_FIRST_H
#include <stdint.h>

struct gpu_plan;
struct gpu_kind;
extern const struct gpu_kind gpu_conv_first;
/* Returns true if conv_first.c computes layer i instead of conv.c. */
int gpu_conv_first_accepts(const struct gpu_plan *plan, int i);
/* Returns the memory for the positions of the maxima of max pool i, [batch][elems(out)]
 * (pool.c). */
int32_t *gpu_pool_places(const struct gpu_plan *plan, int i);

#endif
