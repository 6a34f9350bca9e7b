/* kernels/cuda/layers/relu.cu - relu and its gradient, in place or not. */
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 256 };

/* Launch: grid-stride over n values, THREADS a block. Moves 8n bytes. */
static __global__ void weir_relu_forward(const float *x, float *y, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride())
        y[k] = x[k] > 0.0f ? x[k] : 0.0f;
}

/* Launch: grid-stride over n values, THREADS a block. Moves 12n bytes. */
static __global__ void weir_relu_backward(const float *y, const float *dy, float *dx, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride())
        dx[k] = y[k] > 0.0f ? dy[k] : 0.0f;
}

extern "C" int gpu_relu_forward(struct CUstream_st *stream, const float *x, float *y, int64_t n)
{
    if (x == nullptr || y == nullptr || n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_relu_forward, gpu_grid_blocks(n, THREADS), THREADS, stream, x, y, n);
}

extern "C" int gpu_relu_backward(struct CUstream_st *stream, const float *y, const float *dy,
                                 float *dx, int64_t n)
{
    if (y == nullptr || dy == nullptr || dx == nullptr || n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_relu_backward, gpu_grid_blocks(n, THREADS), THREADS, stream, y, dy, dx, n);
}
