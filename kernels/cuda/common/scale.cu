/* kernels/cuda/common/scale.cu - converts 8-bit pixels to floats from 0 to 1 by a true division, as
 * the CPU does. */
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 256 };

/* Launch: grid-stride over n values, THREADS a block. Moves 5n bytes. */
static __global__ void weir_scale_pixels(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride())
        dst[k] = (float)src[k] / 255.0f;
}

extern "C" int gpu_scale_pixels(struct CUstream_st *stream, const uint8_t *src, float *dst,
                                int64_t n)
{
    if (src == nullptr || dst == nullptr || n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_scale_pixels, gpu_grid_blocks(n, THREADS), THREADS, stream, src, dst, n);
}
