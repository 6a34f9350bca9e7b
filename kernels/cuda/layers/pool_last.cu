/* kernels/cuda/layers/pool_last.cu - max pools of tensors that are stored channels last,
 * [sample][y][x][channel]. Neighbouring threads have neighbouring channels. Comparisons and
 * additions have the same order as in pool.cu, so the results have the same bits. The output, the
 * winners and dy are stored channels last or in planes, as the following layers require.
 *
 * Launch of all kernels: grid-stride, THREADS a block. Forwards and kernels for tiles visit the
 * outputs; the other backward visits the input cells. The kernels move the same number of bytes as
 * the kernels of pool.cu. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/conv/channels_kernels.h"
#include "kernels/cuda/layers/window.cuh"

enum { THREADS = 256 };

/* Returns the index of (sample, cell, channel) in the output. */
static __device__ inline int64_t out_at(const struct gpu_pool_last &p, int64_t sample, int64_t cell,
                                        int64_t channel)
{
    int64_t plane = (int64_t)p.window.out_h * p.window.out_w;
    return p.out_last ? (sample * plane + cell) * p.channels + channel
                      : (sample * p.channels + channel) * plane + cell;
}

static __global__ void weir_max_last_forward(const float *x, float *y, int32_t *winner,
                                             struct gpu_pool_last p)
{
    const struct gpu_window &w = p.window;
    int64_t out_plane = (int64_t)w.out_h * w.out_w, in_plane = (int64_t)w.in_h * w.in_w;
    int64_t n = w.planes * out_plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t at = quotient(k, p.channels), channel = k - at * p.channels;
        int64_t sample = quotient(at, out_plane);
        int cell = (int)(at - sample * out_plane);
        const float *image = x + sample * in_plane * p.channels + channel;
        struct window in = window_at(w, cell / w.out_w, cell % w.out_w);
        int best = in.y0 * w.in_w + in.x0;
        float most = image[best * p.channels];
        for (int iy = in.y0; iy < in.y1; iy++)
            for (int ix = in.x0; ix < in.x1; ix++) {
                float v = image[(iy * w.in_w + ix) * p.channels];
                best = v > most ? iy * w.in_w + ix : best;
                most = v > most ? v : most;
            }
        int64_t to = out_at(p, sample, cell, channel);
        y[to] = most;
        winner[to] = best;
    }
}

static __global__ void weir_max_last_backward(const float *dy, const int32_t *winner,
                                              const float *y, float *dx, struct gpu_pool_last p)
{
    const struct gpu_window &w = p.window;
    int64_t in_plane = (int64_t)w.in_h * w.in_w, n = w.planes * in_plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t at = quotient(k, p.channels), channel = k - at * p.channels;
        int64_t sample = quotient(at, in_plane);
        int cell = (int)(at - sample * in_plane), iy = cell / w.in_w, ix = cell % w.in_w;
        int oy1 = window_last(iy, w.pad_h, w.stride_h, w.out_h);
        int ox1 = window_last(ix, w.pad_w, w.stride_w, w.out_w);
        float sum = 0.0f;
        for (int oy = window_first(iy, w.pad_h, w.kernel_h, w.stride_h); oy <= oy1; oy++)
            for (int ox = window_first(ix, w.pad_w, w.kernel_w, w.stride_w); ox <= ox1; ox++) {
                int64_t from = out_at(p, sample, oy * w.out_w + ox, channel);
                int counts = winner[from] == cell && (y == nullptr || y[from] > 0.0f);
                sum += counts ? dy[from] : 0.0f;
            }
        dx[k] = sum;
    }
}

/* Position of a tile; first: index of its upper left cell in x. */
struct tile {
    int64_t first, sample;
    /* index of the upper left cell in the image, and of the output cell in its plane */
    int cell, out_cell;
};

static __device__ inline struct tile tile_at(const struct gpu_pool_last &p, int64_t at,
                                             int64_t channel)
{
    const struct gpu_window &w = p.window;
    int64_t row = quotient(at, w.out_w), sample = quotient(row, w.out_h);
    int ox = (int)(at - row * w.out_w), oy = (int)(row - sample * w.out_h);
    struct tile t = {(2 * row * w.in_w + 2 * ox) * p.channels + channel, sample,
                     2 * (oy * w.in_w + ox), oy * w.out_w + ox};
    return t;
}

static __global__ void weir_max_last_tile_forward(const float *x, float *y, int32_t *winner,
                                                  struct gpu_pool_last p)
{
    const struct gpu_window &w = p.window;
    int64_t n = w.planes * w.out_h * w.out_w, below = w.in_w * p.channels;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t at = quotient(k, p.channels), channel = k - at * p.channels;
        struct tile t = tile_at(p, at, channel);
        const float *from = x + t.first;
        float cell[4] = {from[0], from[p.channels], from[below], from[below + p.channels]};
        int which;
        int64_t to = out_at(p, t.sample, t.out_cell, channel);
        y[to] = tile_max(cell, &which);
        winner[to] = t.cell + which % 2 + which / 2 * w.in_w;
    }
}

static __global__ void weir_max_last_tile_backward(const float *dy, const int32_t *winner,
                                                   const float *y, float *dx,
                                                   struct gpu_pool_last p)
{
    const struct gpu_window &w = p.window;
    int64_t n = w.planes * w.out_h * w.out_w, below = w.in_w * p.channels;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t at = quotient(k, p.channels), channel = k - at * p.channels;
        struct tile t = tile_at(p, at, channel);
        int64_t from = out_at(p, t.sample, t.out_cell, channel);
        int which = winner[from] - t.cell;
        /* the addition turns -0 into 0 */
        float d = y == nullptr || y[from] > 0.0f ? 0.0f + dy[from] : 0.0f;
        float *to = dx + t.first;
        to[0] = which == 0 ? d : 0.0f;
        to[p.channels] = which == 1 ? d : 0.0f;
        to[below] = which == w.in_w ? d : 0.0f;
        to[below + p.channels] = which == w.in_w + 1 ? d : 0.0f;
    }
}

static int pool_is_sound(const struct gpu_pool_last *p)
{
    return gpu_window_is_sound(&p->window) && p->channels > 0 &&
           p->window.planes % p->channels == 0;
}

extern "C" int gpu_pool_last_forward(struct CUstream_st *stream, const float *x, float *y,
                                     int32_t *winner, const struct gpu_pool_last *p)
{
    if (x == nullptr || y == nullptr || winner == nullptr || !pool_is_sound(p))
        return GPU_KERNEL_REFUSED;
    unsigned blocks = gpu_grid_blocks(gpu_window_cells(&p->window), THREADS);
    if (gpu_window_is_tile(&p->window))
        return LAUNCH(weir_max_last_tile_forward, blocks, THREADS, stream, x, y, winner, *p);
    return LAUNCH(weir_max_last_forward, blocks, THREADS, stream, x, y, winner, *p);
}

extern "C" int gpu_pool_last_backward(struct CUstream_st *stream, const float *dy,
                                      const int32_t *winner, const float *y, float *dx,
                                      const struct gpu_pool_last *p)
{
    if (dy == nullptr || winner == nullptr || dx == nullptr || !pool_is_sound(p))
        return GPU_KERNEL_REFUSED;
    if (gpu_window_is_tile(&p->window))
        return LAUNCH(weir_max_last_tile_backward,
                      gpu_grid_blocks(gpu_window_cells(&p->window), THREADS), THREADS, stream, dy,
                      winner, y, dx, *p);
    int64_t n = p->window.planes * p->window.in_h * p->window.in_w;
    return LAUNCH(weir_max_last_backward, gpu_grid_blocks(n, THREADS), THREADS, stream, dy, winner,
                  y, dx, *p);
}
