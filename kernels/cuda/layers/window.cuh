/* kernels/cuda/layers/window.cuh - positions of a pool's windows, for the kernels that read
 * them. */
#ifndef KERNELS_CUDA_LAYERS_WINDOW_CUH
#define KERNELS_CUDA_LAYERS_WINDOW_CUH
#include "kernels/cuda/common/launch.cuh"

/* Window of an output cell in the image; y1 and x1 are the first row and column after it. */
struct window {
    int y0, y1, x0, x1;
};

static __device__ inline struct window window_at(const struct gpu_window &w, int oy, int ox)
{
    int y0 = oy * w.stride_h - w.pad_h, x0 = ox * w.stride_w - w.pad_w;
    int y1 = y0 + w.kernel_h, x1 = x0 + w.kernel_w;
    struct window at = {y0 < 0 ? 0 : y0, y1 > w.in_h ? w.in_h : y1, x0 < 0 ? 0 : x0,
                        x1 > w.in_w ? w.in_w : x1};
    return at;
}

/* Returns true for adjacent windows of 2x2 cells that cover the image. Nearly all pools have such
 * windows. They need no division by numbers that are unknown at compile time; such divisions are
 * the largest cost of a pool's kernel. */
static inline int gpu_window_is_tile(const struct gpu_window *w)
{
    return w->kernel_h == 2 && w->kernel_w == 2 && w->stride_h == 2 && w->stride_w == 2 &&
           w->pad_h == 0 && w->pad_w == 0 && w->in_h == 2 * w->out_h && w->in_w == 2 * w->out_w;
}

/* Returns the maximum of a tile's cells, which are ordered from upper left to lower right. *at:
 * index, 0 to 3, of the first cell with the maximum. */
static __device__ inline float tile_max(const float cell[4], int *at)
{
    float most = cell[0];
    *at = 0;
    UNROLL
    for (int i = 1; i < 4; i++) {
        *at = cell[i] > most ? i : *at;
        most = cell[i] > most ? cell[i] : most;
    }
    return most;
}

/* Returns the first (window_first) or the last window along one axis that covers cell i. */
static __device__ inline int window_first(int i, int pad, int kernel, int stride)
{
    /* the first window that covers cell i starts at this cell or after it */
    int before = i + pad - kernel + 1;
    return before > 0 ? (before + stride - 1) / stride : 0;
}

static __device__ inline int window_last(int i, int pad, int stride, int n_windows)
{
    int last = (i + pad) / stride;
    return last < n_windows ? last : n_windows - 1;
}

/* Returns true if each window has at least one cell of the image, and the indices of a plane's
 * cells fit in 31 bits. */
static inline int gpu_window_is_sound(const struct gpu_window *w)
{
    return w->planes > 0 && w->in_h > 0 && w->in_w > 0 && w->out_h > 0 && w->out_w > 0 &&
           w->kernel_h > 0 && w->kernel_w > 0 && w->stride_h > 0 && w->stride_w > 0 &&
           w->pad_h >= 0 && w->pad_w >= 0 && w->pad_h < w->kernel_h && w->pad_w < w->kernel_w &&
           (int64_t)(w->out_h - 1) * w->stride_h - w->pad_h < w->in_h &&
           (int64_t)(w->out_w - 1) * w->stride_w - w->pad_w < w->in_w &&
           (int64_t)w->in_h * w->in_w <= INT32_MAX && (int64_t)w->out_h * w->out_w <= INT32_MAX;
}

static inline int64_t gpu_window_cells(const struct gpu_window *w)
{
    return w->planes * w->out_h * w->out_w;
}

#endif
