/* kernels/cuda/layers/norm_stats.cu - converts a batch's saved statistics to mean and variance.
 * Uses doubles, because the variance is the difference of 1/inverse^2 and epsilon. */
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 128 };

/* Launch: grid-stride over the channels, THREADS a block. Moves 16 bytes per channel. */
static __global__ void weir_norm_stats(struct gpu_norm_stats s)
{
    /* if there is a single cell, the variance is not multiplied by n / (n - 1) */
    double correct = s.cells > 1 ? (double)s.cells / (double)(s.cells - 1) : 1.0;
    for (int64_t k = grid_first(); k < s.channels; k += grid_stride()) {
        double inverse = (double)s.saved_inverse[k];
        double variance = 1.0 / (inverse * inverse) - s.epsilon;
        s.mean[k] = s.saved_mean[k];
        s.variance[k] = (float)((variance > 0.0 ? variance : 0.0) * correct);
    }
}

extern "C" int gpu_norm_stats_hand_out(struct CUstream_st *stream, const struct gpu_norm_stats *s)
{
    if (s->saved_mean == nullptr || s->saved_inverse == nullptr || s->mean == nullptr ||
        s->variance == nullptr || s->channels < 1 || s->cells < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_norm_stats, gpu_grid_blocks(s->channels, THREADS), THREADS, stream, *s);
}
