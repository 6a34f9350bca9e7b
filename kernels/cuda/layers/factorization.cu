/* kernels/cuda/layers/factorization.cu - the factorization machine: for each sample the sum of the
 * scalar products of all pairs of columns. A column is multiplied by the sum of the columns before
 * it; its gradient is that sum, plus the sum of the columns after it. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/layers/rows.h"

enum { WARP = 32, THREADS = 256 };

/* Launch: a block of one warp per sample. Moves 4 bytes per value, and 4 per sample. */
static __global__ void weir_factorization(struct gpu_factorization f, float *y)
{
    __shared__ float part[WARP];
    const float *x = f.x + blockIdx.x * f.columns * f.units;
    int me = (int)threadIdx.x;
    float sum = 0.0f;
    for (int64_t u = me; u < f.units; u += WARP) {
        float before = 0.0f;
        for (int64_t k = u; k < f.columns * f.units; k += f.units) {
            sum += x[k] * before;
            before += x[k];
        }
    }
    part[me] = sum;
    for (int half = WARP / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half)
            part[me] += part[me + half];
    }
    if (me == 0)
        y[blockIdx.x] = part[0];
}

/* Launch: grid-stride over the units of all samples, THREADS a block. Reads x twice, writes dx
 * twice and reads it once: 20 bytes per value, and 4 per sample and unit. */
static __global__ void weir_factorization_backward(struct gpu_factorization f, const float *dy,
                                                   float *dx)
{
    for (int64_t k = grid_first(); k < f.n * f.units; k += grid_stride()) {
        int64_t sample = quotient(k, f.units);
        int64_t first = sample * f.columns * f.units + k - sample * f.units;
        float before = 0.0f, after = 0.0f, d = dy[sample];
        for (int64_t c = 0; c < f.columns; c++) {
            dx[first + c * f.units] = before;
            before += f.x[first + c * f.units];
        }
        for (int64_t c = f.columns - 1; c >= 0; c--) {
            dx[first + c * f.units] = d * (dx[first + c * f.units] + after);
            after += f.x[first + c * f.units];
        }
    }
}

static int is_sound(const struct gpu_factorization *f)
{
    return f->n > 0 && f->n <= INT32_MAX && f->columns > 0 && f->units > 0 && f->x != nullptr;
}

extern "C" int gpu_factorization_forward(struct CUstream_st *stream,
                                         const struct gpu_factorization *f, float *y)
{
    if (!is_sound(f) || y == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_factorization, (unsigned)f->n, WARP, stream, *f, y);
}

extern "C" int gpu_factorization_backward(struct CUstream_st *stream,
                                          const struct gpu_factorization *f, const float *dy,
                                          float *dx)
{
    if (!is_sound(f) || dy == nullptr || dx == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_factorization_backward, gpu_grid_blocks(f->n * f->units, THREADS), THREADS,
                  stream, *f, dy, dx);
}
