/* kernels/cuda/relu.cu - relu in place, and its gradient in place of the one above. */
#include "kernels/cuda/grid.cuh"

enum { THREADS = 256 };

static __global__ void relu_forward(float *y, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride())
        y[k] = y[k] > 0.0f ? y[k] : 0.0f;
}

static __global__ void relu_backward(const float *y, float *dy, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride())
        dy[k] = y[k] > 0.0f ? dy[k] : 0.0f;
}

int cuda_relu_forward(struct CUstream_st *stream, float *y, int64_t n)
{
    if (y == nullptr || n < 1)
        return CUDA_KERNEL_REFUSED;
    return LAUNCH(relu_forward, cuda_blocks(n, THREADS), THREADS, stream, y, n);
}

int cuda_relu_backward(struct CUstream_st *stream, const float *y, float *dy, int64_t n)
{
    if (y == nullptr || dy == nullptr || n < 1)
        return CUDA_KERNEL_REFUSED;
    return LAUNCH(relu_backward, cuda_blocks(n, THREADS), THREADS, stream, y, dy, n);
}
