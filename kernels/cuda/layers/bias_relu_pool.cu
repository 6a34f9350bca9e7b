/* kernels/cuda/layers/bias_relu_pool.cu - bias, relu and max pool of a convolution's output in one
 * pass, which writes the maxima and their cells. The results have the same bits as those of bias.cu
 * followed by pool.cu: values are compared after the relu, so in a window of zeros the first cell
 * is the maximum. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/layers/window.cuh"

enum { THREADS = 256 };

static __device__ inline float lifted(float x, float bias)
{
    float v = x + bias;
    return !(v > 0.0f) ? 0.0f : v;
}

/* Launch: grid-stride over the output cells, THREADS a block. Reads 4 bytes per cell of each
 * window, writes 8 per output. */
static __global__ void weir_bias_relu_pool(const float *x, const float *bias, int64_t channels,
                                           float *y, int32_t *winner, struct gpu_window w)
{
    int64_t out_plane = (int64_t)w.out_h * w.out_w, in_plane = (int64_t)w.in_h * w.in_w;
    int64_t n = w.planes * out_plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t plane = quotient(k, out_plane);
        int cell = (int)(k - plane * out_plane);
        const float *image = x + plane * in_plane;
        float b = bias[plane - quotient(plane, channels) * channels];
        struct window at = window_at(w, cell / w.out_w, cell % w.out_w);
        int best = at.y0 * w.in_w + at.x0;
        float most = lifted(image[best], b);
        for (int iy = at.y0; iy < at.y1; iy++)
            for (int ix = at.x0; ix < at.x1; ix++) {
                float v = lifted(image[iy * w.in_w + ix], b);
                best = v > most ? iy * w.in_w + ix : best;
                most = v > most ? v : most;
            }
        y[k] = most;
        winner[k] = best;
    }
}

/* Computes windows of 2x2 adjacent cells. Launch: as weir_bias_relu_pool. Moves 24 bytes per
 * output. */
static __global__ void weir_bias_relu_tile(const float *x, const float *bias, int64_t channels,
                                           float *y, int32_t *winner, struct gpu_window w)
{
    int64_t n = w.planes * w.out_h * w.out_w;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t row = quotient(k, w.out_w), plane = quotient(row, w.out_h);
        int ox = (int)(k - row * w.out_w), oy = (int)(row - plane * w.out_h);
        const float *from = x + 2 * row * w.in_w + 2 * ox;
        float b = bias[plane - quotient(plane, channels) * channels];
        float cell[4] = {lifted(from[0], b), lifted(from[1], b), lifted(from[w.in_w], b),
                         lifted(from[w.in_w + 1], b)};
        int at;
        y[k] = tile_max(cell, &at);
        winner[k] = 2 * (oy * w.in_w + ox) + at % 2 + at / 2 * w.in_w;
    }
}

extern "C" int gpu_bias_relu_pool(struct CUstream_st *stream, const float *x,
                                  const struct gpu_bias *bias, float *y, int32_t *winner,
                                  const struct gpu_window *w)
{
    if (x == nullptr || bias->values == nullptr || bias->channels < 1 || y == nullptr ||
        winner == nullptr || !gpu_window_is_sound(w))
        return GPU_KERNEL_REFUSED;
    if (gpu_window_is_tile(w))
        return LAUNCH(weir_bias_relu_tile, gpu_grid_blocks(gpu_window_cells(w), THREADS), THREADS,
                      stream, x, bias->values, bias->channels, y, winner, *w);
    return LAUNCH(weir_bias_relu_pool, gpu_grid_blocks(gpu_window_cells(w), THREADS), THREADS,
                  stream, x, bias->values, bias->channels, y, winner, *w);
}
