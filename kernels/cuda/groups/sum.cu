/* kernels/cuda/groups/sum.cu - adds several tensors with weights, always in their order. */
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 256 };

/* Launch: grid-stride over n values, THREADS a block. Moves 4 (s.n + 1) n bytes. */
static __global__ void weir_sum_weighted(struct gpu_sum s, float *dst, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        float sum = s.weight[0] * s.src[0][k];
        for (int i = 1; i < s.n; i++)
            sum += s.weight[i] * s.src[i][k];
        dst[k] = sum;
    }
}

extern "C" int gpu_sum_weighted(struct CUstream_st *stream, const struct gpu_sum *s, float *dst,
                                int64_t n)
{
    if (s->n < 1 || s->n > GPU_SUM_MOST || dst == nullptr || n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_sum_weighted, gpu_grid_blocks(n, THREADS), THREADS, stream, *s, dst, n);
}
