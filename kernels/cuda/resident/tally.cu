/* kernels/cuda/resident/tally.cu - adds the losses and the correct samples of a step in one block:
 * each thread adds every THREADS-th sample; then the second half of the sums is added to the first
 * half, repeatedly, so the order is always the same. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/resident/steps.h"

static const int THREADS = 128;

/* Launch: one block of THREADS threads. Reads 12 bytes per sample. */
static __global__ void weir_tally_step(const double *loss, const int32_t *hit, int64_t n,
                                       struct gpu_tally *t)
{
    __shared__ double losses[THREADS];
    __shared__ int64_t hits[THREADS];
    double sum = 0.0;
    int64_t right = 0;
    for (int64_t k = threadIdx.x; k < n; k += THREADS) {
        sum += loss[k];
        right += hit[k];
    }
    losses[threadIdx.x] = sum;
    hits[threadIdx.x] = right;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            losses[threadIdx.x] += losses[threadIdx.x + half];
            hits[threadIdx.x] += hits[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        t->loss = losses[0] / (double)n;
        t->hits = hits[0];
        t->step++;
    }
}

extern "C" int gpu_tally_step(struct CUstream_st *stream, const double *loss, const int32_t *hit,
                              int64_t n, struct gpu_tally *t)
{
    if (loss == nullptr || hit == nullptr || t == nullptr || n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_tally_step, 1, THREADS, stream, loss, hit, n, t);
}
