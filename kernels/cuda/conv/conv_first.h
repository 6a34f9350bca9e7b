/* kernels/cuda/conv/conv_first.h - the other way to compute a first convolution of one channel:
 * which layers of a plan go it (TUNING_FIRST_CONV), and what they need to know of the pool behind
 * them. Threads: as plan.h. Errors: none. */
#ifndef KERNELS_CUDA_CONV_CONV_FIRST_H
#define KERNELS_CUDA_CONV_CONV_FIRST_H
#include <stdint.h>

struct gpu_plan;
struct gpu_kind;
extern const struct gpu_kind gpu_conv_first;
/* Layer i's kind is to be that, and not gpu_conv. */
int gpu_conv_first_accepts(const struct gpu_plan *plan, int i);
/* pool.c: the places of maxima of max pool i, [batch][elems(out)]. */
int32_t *gpu_pool_places(const struct gpu_plan *plan, int i);

#endif
