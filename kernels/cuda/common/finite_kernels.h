/* kernels/cuda/common/finite_kernels.h - the launcher of a check for values that are not finite
 * (finite.cu). Threads and errors: those of kernels.h. */
#ifndef KERNELS_CUDA_COMMON_FINITE_KERNELS_H
#define KERNELS_CUDA_COMMON_FINITE_KERNELS_H
#include "kernels/layer.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct gpu_finite {
    int n; /* number of tensors, 1 .. LAYER_MAX_PARAMS */
    const float *x[LAYER_MAX_PARAMS];
    int64_t elems[LAYER_MAX_PARAMS];
    float limit; /* highest allowed magnitude, at least 0 */
};
/* Sets *found to 1 if a value is NaN or has a magnitude above the limit; otherwise does not write
 * it. found: memory of the device, or pinned memory of the host. */
int gpu_finite_check(struct CUstream_st *stream, const struct gpu_finite *f, int32_t *found);

#ifdef __cplusplus
}
#endif
#endif
