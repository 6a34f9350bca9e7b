/* kernels/cuda/common/launch.cuh - launches a kernel on a stream. tests/emulation has a header of
 * the same name that runs kernels on the CPU instead. The names of Weir's kernels begin with weir_,
 * so that compute-sanitizer can exclude the kernels of cuDNN (scripts/gpu_check). */
#ifndef KERNELS_CUDA_COMMON_LAUNCH_CUH
#define KERNELS_CUDA_COMMON_LAUNCH_CUH
#include "kernels/cuda/common/kernels.h"
#include <cuda_runtime.h>

/* Launches the kernel. The macro returns the launch's cudaError_t as an int. */
#define LAUNCH(kernel, grid, threads, stream, ...)                                                 \
    (kernel<<<(grid), (threads), 0, (stream)>>>(__VA_ARGS__), (int)cudaGetLastError())
/* Makes the compiler unroll the next loop, so that arrays that the loop indexes become
 * registers. */
#define UNROLL _Pragma("unroll")

#endif
