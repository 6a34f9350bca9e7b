/* kernels/cuda/layers/bias.cu - adds each channel's bias, with an optional relu in the same
 * pass. */
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 256 };

/* Launch: grid-stride over the values of y, THREADS a block. Moves 8 bytes per value. */
static __global__ void weir_bias_add(float *y, const float *bias, struct gpu_planes shape, int relu)
{
    int64_t n = shape.n * shape.channels * shape.plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t plane = quotient(k, shape.plane);
        float v = y[k] + bias[plane - quotient(plane, shape.channels) * shape.channels];
        y[k] = relu && !(v > 0.0f) ? 0.0f : v;
    }
}

extern "C" int gpu_bias_add(struct CUstream_st *stream, float *y, const float *bias,
                            struct gpu_planes shape, int relu)
{
    if (y == nullptr || bias == nullptr || shape.n < 1 || shape.channels < 1 || shape.plane < 1)
        return GPU_KERNEL_REFUSED;
    int64_t n = shape.n * shape.channels * shape.plane;
    return LAUNCH(weir_bias_add, gpu_grid_blocks(n, THREADS), THREADS, stream, y, bias, shape,
                  relu);
}
