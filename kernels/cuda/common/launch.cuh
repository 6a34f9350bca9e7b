/* kernels/cuda/common/launch.cuh - how a kernel is queued. tests/emulation has a header of the same
 * name that runs kernels on the CPU instead. Kernels' names begin with weir_, by which
 * compute-sanitizer tells them from cuDNN's (scripts/gpu_check). */
#ifndef KERNELS_CUDA_COMMON_LAUNCH_CUH
#define KERNELS_CUDA_COMMON_LAUNCH_CUH
#include "kernels/cuda/common/kernels.h"
#include <cuda_runtime.h>

/* The launch's cudaError_t, as int. */
#define LAUNCH(kernel, grid, threads, stream, ...)                                                 \
    (kernel<<<(grid), (threads), 0, (stream)>>>(__VA_ARGS__), (int)cudaGetLastError())
/* Before a loop whose arrays are to be registers. */
#define UNROLL _Pragma("unroll")

#endif
