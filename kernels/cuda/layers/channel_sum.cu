/* kernels/cuda/layers/channel_sum.cu - sums of a sample's values with a fixed distance, such as the
 * values of one cell in all channels. One thread adds the terms of a sum in ascending order. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/layers/rows.h"

enum { THREADS = 256 };

/* Launch: grid-stride over the sums, THREADS a block. Moves 4 bytes per term, and 4 per sum. */
static __global__ void weir_channel_sum(struct gpu_channel_sum s, const float *x, float *y)
{
    for (int64_t k = grid_first(); k < s.n * s.cells; k += grid_stride()) {
        int64_t sample = quotient(k, s.cells), cell = k - sample * s.cells;
        const float *from = x + sample * s.terms * s.cells + cell;
        float sum = from[0];
        for (int64_t t = 1; t < s.terms; t++)
            sum += from[t * s.cells];
        y[k] = sum;
    }
}

/* Launch: grid-stride over the terms, THREADS a block. Moves 8 bytes per term. */
static __global__ void weir_channel_sum_backward(struct gpu_channel_sum s, const float *dy,
                                                 float *dx)
{
    int64_t row = s.terms * s.cells;
    for (int64_t k = grid_first(); k < s.n * row; k += grid_stride()) {
        int64_t sample = quotient(k, row), in = k - sample * row;
        dx[k] = dy[sample * s.cells + in - quotient(in, s.cells) * s.cells];
    }
}

static int is_sound(const struct gpu_channel_sum *s)
{
    return s->n > 0 && s->terms > 0 && s->cells > 0;
}

extern "C" int gpu_channel_sum_forward(struct CUstream_st *stream, const struct gpu_channel_sum *s,
                                       const float *x, float *y)
{
    if (!is_sound(s) || x == nullptr || y == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_channel_sum, gpu_grid_blocks(s->n * s->cells, THREADS), THREADS, stream, *s,
                  x, y);
}

extern "C" int gpu_channel_sum_backward(struct CUstream_st *stream, const struct gpu_channel_sum *s,
                                        const float *dy, float *dx)
{
    if (!is_sound(s) || dy == nullptr || dx == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_channel_sum_backward, gpu_grid_blocks(s->n * s->terms * s->cells, THREADS),
                  THREADS, stream, *s, dy, dx);
}
