/* kernels/cuda/layers/pool.cu - max and average pooling with any padding. cuDNN's pools do not
 * support TensorFlow's SAME, which may pad only on the right and at the bottom. In the backward,
 * the thread of an input cell adds the gradients of all windows over this cell in the windows'
 * order, so no two threads write to one cell. Adjacent 2x2 windows (tiles) do not overlap, so one
 * thread computes a whole tile.
 *
 * Launch of all kernels: grid-stride, THREADS a block. Forwards and kernels for tiles visit the
 * outputs; the other backwards visit the input cells. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/layers/window.cuh"

enum { THREADS = 256 };

/* Reads 4 bytes per cell of each window, writes 8 per output. */
static __global__ void weir_max_forward(const float *x, float *y, int32_t *winner,
                                        struct gpu_window w)
{
    int64_t out_plane = (int64_t)w.out_h * w.out_w, in_plane = (int64_t)w.in_h * w.in_w;
    int64_t n = w.planes * out_plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t plane = quotient(k, out_plane);
        int cell = (int)(k - plane * out_plane);
        const float *image = x + plane * in_plane;
        struct window at = window_at(w, cell / w.out_w, cell % w.out_w);
        int best = at.y0 * w.in_w + at.x0;
        for (int iy = at.y0; iy < at.y1; iy++)
            for (int ix = at.x0; ix < at.x1; ix++)
                best = image[iy * w.in_w + ix] > image[best] ? iy * w.in_w + ix : best;
        y[k] = image[best];
        winner[k] = best;
    }
}

/* Two cells of a row, read and written by one instruction. */
struct alignas(8) pair {
    float x, y;
};

/* Position of the tile of output k; rows are numbered consecutively over all planes. */
struct tile {
    /* index of the tile's upper pair in the input; the lower pair is out_w further */
    int64_t first;
    int cell; /* index of the tile's upper left cell in the plane */
};

static __device__ inline struct tile tile_at(const struct gpu_window &w, int64_t k)
{
    int64_t row = quotient(k, w.out_w);
    int ox = (int)(k - row * w.out_w), oy = (int)(row - quotient(row, w.out_h) * w.out_h);
    struct tile t = {row * w.in_w + ox, 2 * (oy * w.in_w + ox)};
    return t;
}

/* Moves 24 bytes per output: reads 16, writes 8. */
static __global__ void weir_max_tile_forward(const struct pair *x, float *y, int32_t *winner,
                                             struct gpu_window w)
{
    int64_t n = w.planes * w.out_h * w.out_w;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        struct tile t = tile_at(w, k);
        struct pair upper = x[t.first], lower = x[t.first + w.out_w];
        float cell[4] = {upper.x, upper.y, lower.x, lower.y};
        int at;
        y[k] = tile_max(cell, &at);
        winner[k] = t.cell + at % 2 + at / 2 * w.in_w;
    }
}

/* Moves 24 bytes per output (28 with y): reads 8 (12), writes 16. */
static __global__ void weir_max_tile_backward(const float *dy, const int32_t *winner,
                                              const float *y, struct pair *dx, struct gpu_window w)
{
    int64_t n = w.planes * w.out_h * w.out_w;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        struct tile t = tile_at(w, k);
        int at = winner[k] - t.cell;
        /* the addition turns -0 into 0 */
        float d = y == nullptr || y[k] > 0.0f ? 0.0f + dy[k] : 0.0f;
        struct pair upper = {at == 0 ? d : 0.0f, at == 1 ? d : 0.0f};
        struct pair lower = {at == w.in_w ? d : 0.0f, at == w.in_w + 1 ? d : 0.0f};
        dx[t.first] = upper;
        dx[t.first + w.out_w] = lower;
    }
}

static int is_pairs(const float *at)
{
    return (uintptr_t)at % sizeof(struct pair) == 0;
}

/* If the pool reads a relu, y is the pool's maxima, and the gradient of a maximum that is not above
 * 0 is 0; otherwise y is NULL. Reads 8 bytes (12 with y) per window over a cell, writes 4 per
 * cell. */
static __global__ void weir_max_backward(const float *dy, const int32_t *winner, const float *y,
                                         float *dx, struct gpu_window w)
{
    int64_t out_plane = (int64_t)w.out_h * w.out_w, in_plane = (int64_t)w.in_h * w.in_w;
    int64_t n = w.planes * in_plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t plane = quotient(k, in_plane), first = plane * out_plane;
        int cell = (int)(k - plane * in_plane), iy = cell / w.in_w, ix = cell % w.in_w;
        int oy1 = window_last(iy, w.pad_h, w.stride_h, w.out_h);
        int ox1 = window_last(ix, w.pad_w, w.stride_w, w.out_w);
        float sum = 0.0f;
        for (int oy = window_first(iy, w.pad_h, w.kernel_h, w.stride_h); oy <= oy1; oy++)
            for (int ox = window_first(ix, w.pad_w, w.kernel_w, w.stride_w); ox <= ox1; ox++) {
                int64_t at = first + (int64_t)oy * w.out_w + ox;
                int counts = winner[at] == cell && (y == nullptr || y[at] > 0.0f);
                sum += counts ? dy[at] : 0.0f;
            }
        dx[k] = sum;
    }
}

/* Reads 4 bytes per cell of each window, writes 4 per output. */
static __global__ void weir_avg_forward(const float *x, float *y, struct gpu_window w)
{
    int64_t out_plane = (int64_t)w.out_h * w.out_w, in_plane = (int64_t)w.in_h * w.in_w;
    int64_t n = w.planes * out_plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t plane = quotient(k, out_plane);
        int cell = (int)(k - plane * out_plane);
        const float *image = x + plane * in_plane;
        struct window at = window_at(w, cell / w.out_w, cell % w.out_w);
        float sum = 0.0f;
        for (int iy = at.y0; iy < at.y1; iy++)
            for (int ix = at.x0; ix < at.x1; ix++)
                sum += image[iy * w.in_w + ix];
        y[k] = sum / (float)((at.y1 - at.y0) * (at.x1 - at.x0));
    }
}

/* Reads 4 bytes per window over a cell, writes 4 per cell. */
static __global__ void weir_avg_backward(const float *dy, float *dx, struct gpu_window w)
{
    int64_t out_plane = (int64_t)w.out_h * w.out_w, in_plane = (int64_t)w.in_h * w.in_w;
    int64_t n = w.planes * in_plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t plane = quotient(k, in_plane), first = plane * out_plane;
        int cell = (int)(k - plane * in_plane), iy = cell / w.in_w, ix = cell % w.in_w;
        int oy1 = window_last(iy, w.pad_h, w.stride_h, w.out_h);
        int ox1 = window_last(ix, w.pad_w, w.stride_w, w.out_w);
        float sum = 0.0f;
        for (int oy = window_first(iy, w.pad_h, w.kernel_h, w.stride_h); oy <= oy1; oy++)
            for (int ox = window_first(ix, w.pad_w, w.kernel_w, w.stride_w); ox <= ox1; ox++) {
                struct window at = window_at(w, oy, ox);
                sum += dy[first + (int64_t)oy * w.out_w + ox] /
                       (float)((at.y1 - at.y0) * (at.x1 - at.x0));
            }
        dx[k] = sum;
    }
}

static int64_t in_cells(const struct gpu_window *w)
{
    return w->planes * w->in_h * w->in_w;
}

extern "C" int gpu_pool_max_forward(struct CUstream_st *stream, const float *x, float *y,
                                    int32_t *winner, const struct gpu_window *w)
{
    if (x == nullptr || y == nullptr || winner == nullptr || !gpu_window_is_sound(w))
        return GPU_KERNEL_REFUSED;
    if (gpu_window_is_tile(w) && is_pairs(x))
        return LAUNCH(weir_max_tile_forward, gpu_grid_blocks(gpu_window_cells(w), THREADS), THREADS,
                      stream, (const struct pair *)x, y, winner, *w);
    return LAUNCH(weir_max_forward, gpu_grid_blocks(gpu_window_cells(w), THREADS), THREADS, stream,
                  x, y, winner, *w);
}

extern "C" int gpu_pool_max_backward(struct CUstream_st *stream, const float *dy,
                                     const int32_t *winner, const float *y, float *dx,
                                     const struct gpu_window *w)
{
    if (dy == nullptr || winner == nullptr || dx == nullptr || !gpu_window_is_sound(w))
        return GPU_KERNEL_REFUSED;
    if (gpu_window_is_tile(w) && is_pairs(dx))
        return LAUNCH(weir_max_tile_backward, gpu_grid_blocks(gpu_window_cells(w), THREADS),
                      THREADS, stream, dy, winner, y, (struct pair *)dx, *w);
    return LAUNCH(weir_max_backward, gpu_grid_blocks(in_cells(w), THREADS), THREADS, stream, dy,
                  winner, y, dx, *w);
}

extern "C" int gpu_pool_avg_forward(struct CUstream_st *stream, const float *x, float *y,
                                    const struct gpu_window *w)
{
    if (x == nullptr || y == nullptr || !gpu_window_is_sound(w))
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_avg_forward, gpu_grid_blocks(gpu_window_cells(w), THREADS), THREADS, stream,
                  x, y, *w);
}

extern "C" int gpu_pool_avg_backward(struct CUstream_st *stream, const float *dy, float *dx,
                                     const struct gpu_window *w)
{
    if (dy == nullptr || dx == nullptr || !gpu_window_is_sound(w))
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_avg_backward, gpu_grid_blocks(in_cells(w), THREADS), THREADS, stream, dy, dx,
                  *w);
}
