/* kernels/cuda/resident/digest.cu - computes the digest of each part of the parameters, as
 * kernels/vector/digest.c does. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/resident/steps.h"

static const int THREADS = 256;

/* Launch: a block of THREADS threads per part of a tensor (at most GPU_OPTIM_ELEMS values). Reads 4
 * bytes per value, and writes 8 per part. */
static __global__ void weir_digest(const struct gpu_optim_part *parts, uint64_t *digest)
{
    __shared__ uint64_t sums[THREADS];
    const struct gpu_optim_part part = parts[blockIdx.x];
    const uint32_t *bits = (const uint32_t *)part.p;
    uint64_t sum = 0;
    for (uint32_t i = threadIdx.x; i < (uint32_t)part.n; i += THREADS) {
        uint32_t weight = i * 0x9e3779b1u + 0x7f4a7c15u;
        sum += (uint64_t)bits[i] * (weight ^ weight >> 15);
    }
    sums[threadIdx.x] = sum;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        digest[blockIdx.x] = sums[0];
}

extern "C" int gpu_digest_parts(struct CUstream_st *stream, const struct gpu_optim_part *parts,
                                int n_parts, uint64_t *digest)
{
    if (parts == nullptr || digest == nullptr || n_parts < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_digest, (unsigned)n_parts, THREADS, stream, parts, digest);
}
