/* kernels/cuda/common/grid.cuh - a thread's index in the grid, and its coordinates in a tensor. */
#ifndef KERNELS_CUDA_COMMON_GRID_CUH
#define KERNELS_CUDA_COMMON_GRID_CUH
#include "kernels/cuda/common/launch.cuh"

/* Returns the first item of a thread. A loop for (k = grid_first(); k < n; k += grid_stride())
 * visits each item once, whatever the size of the grid. */
static __device__ inline int64_t grid_first()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline int64_t grid_stride()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* Returns a / b for numbers that are not negative. GPUs divide 32-bit numbers several times faster
 * than 64-bit numbers, and in nearly all tensors the indices fit in 32 bits. */
static __device__ inline int64_t quotient(int64_t a, int64_t b)
{
    return (a | b) >> 32 == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

#endif
