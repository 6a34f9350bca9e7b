/* kernels/cuda/common/grid.cuh - a thread's place in the grid, and in a tensor. */
#ifndef KERNELS_CUDA_COMMON_GRID_CUH
#define KERNELS_CUDA_COMMON_GRID_CUH
#include "kernels/cuda/common/launch.cuh"

/* for (k = grid_first(); k < n; k += grid_stride()): each item once, whatever the grid's size. */
static __device__ inline int64_t grid_first()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline int64_t grid_stride()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* a / b of numbers that are not negative. GPUs divide 32 bits several times faster than 64, and
 * nearly all tensors are that small. */
static __device__ inline int64_t quotient(int64_t a, int64_t b)
{
    return (a | b) >> 32 == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

#endif
