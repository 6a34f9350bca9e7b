/* kernels/cuda/grid.cuh - a thread's place in the grid. */
#ifndef KERNELS_CUDA_GRID_CUH
#define KERNELS_CUDA_GRID_CUH
#include "kernels/cuda/launch.cuh"

/* for (k = grid_first(); k < n; k += grid_stride()): each item once, whatever the grid's size. */
static __device__ inline int64_t grid_first()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline int64_t grid_stride()
{
    return (int64_t)gridDim.x * blockDim.x;
}

#endif
