/* kernels/cuda/conv/pad.cu - copies images with padding, for convolutions that pad one side more
 * than the other, which cuDNN's descriptors cannot express. */
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 256 };

/* Launch: grid-stride over the padded cells, THREADS a block. Writes 4 bytes per padded cell, reads
 * 4 per image cell. */
static __global__ void weir_pad_set(const float *x, float *padded, struct gpu_frame f)
{
    int64_t plane = (int64_t)f.padded_h * f.padded_w, n = f.planes * plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t image = quotient(k, plane);
        int cell = (int)(k - image * plane);
        int iy = cell / f.padded_w - f.lo_h, ix = cell % f.padded_w - f.lo_w;
        int inside = iy >= 0 && iy < f.h && ix >= 0 && ix < f.w;
        padded[k] = inside ? x[(image * f.h + iy) * f.w + ix] : 0.0f;
    }
}

/* Launch: grid-stride over the image cells, THREADS a block. Moves 8 bytes per image cell. */
static __global__ void weir_pad_cut(const float *padded, float *x, struct gpu_frame f)
{
    int64_t plane = (int64_t)f.h * f.w, n = f.planes * plane;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t image = quotient(k, plane);
        int cell = (int)(k - image * plane);
        int64_t row = image * f.padded_h + cell / f.w + f.lo_h;
        x[k] = padded[row * f.padded_w + cell % f.w + f.lo_w];
    }
}

static int frame_is_sound(const struct gpu_frame *f)
{
    return f->planes > 0 && f->h > 0 && f->w > 0 && f->lo_h >= 0 && f->lo_w >= 0 &&
           f->padded_h >= f->h + f->lo_h && f->padded_w >= f->w + f->lo_w &&
           (int64_t)f->padded_h * f->padded_w <= INT32_MAX;
}

extern "C" int gpu_pad_set(struct CUstream_st *stream, const float *x, float *padded,
                           const struct gpu_frame *f)
{
    if (x == nullptr || padded == nullptr || !frame_is_sound(f))
        return GPU_KERNEL_REFUSED;
    int64_t n = f->planes * f->padded_h * f->padded_w;
    return LAUNCH(weir_pad_set, gpu_grid_blocks(n, THREADS), THREADS, stream, x, padded, *f);
}

extern "C" int gpu_pad_cut(struct CUstream_st *stream, const float *padded, float *x,
                           const struct gpu_frame *f)
{
    if (padded == nullptr || x == nullptr || !frame_is_sound(f))
        return GPU_KERNEL_REFUSED;
    int64_t n = f->planes * f->h * f->w;
    return LAUNCH(weir_pad_cut, gpu_grid_blocks(n, THREADS), THREADS, stream, padded, x, *f);
}
