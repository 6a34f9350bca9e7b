/* kernels/cuda/common/finite.cu - searches tensors for values that are not finite or too large.
 * Magnitudes are compared as integers, because floats with the same sign have the same order as
 * their bits. So NaNs and infinities are above every limit.
 *
 * Launch: grid-stride over the values of each tensor in turn, THREADS a block. Reads 4 bytes per
 * value. */
#include "kernels/cuda/common/bf16.cuh"
#include "kernels/cuda/common/finite_kernels.h"
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 256 };

static __global__ void weir_finite(struct gpu_finite f, int32_t *found)
{
    union bits v, limit;
    uint32_t most = 0;
    limit.f = f.limit;
    for (int t = 0; t < f.n; t++)
        for (int64_t k = grid_first(); k < f.elems[t]; k += grid_stride()) {
            v.f = f.x[t][k];
            uint32_t magnitude = v.u & 0x7fffffffu;
            most = magnitude > most ? magnitude : most;
        }
    if (most > limit.u)
        *found = 1;
}

extern "C" int gpu_finite_check(struct CUstream_st *stream, const struct gpu_finite *f,
                                int32_t *found)
{
    int64_t largest = 0;
    if (f->n < 1 || f->n > LAYER_MAX_PARAMS || !(f->limit >= 0) || found == nullptr)
        return GPU_KERNEL_REFUSED;
    for (int t = 0; t < f->n; t++) {
        if (f->x[t] == nullptr || f->elems[t] < 1)
            return GPU_KERNEL_REFUSED;
        largest = f->elems[t] > largest ? f->elems[t] : largest;
    }
    return LAUNCH(weir_finite, gpu_grid_blocks(largest, THREADS), THREADS, stream, *f, found);
}
