/* kernels/cuda/layers/dropout.cu - dropout with random numbers that depend only on key, sample and
 * unit. They are the same numbers as those of base/rng.h, so that CPU and GPU towers drop the same
 * units. The backward computes the mask again instead of storing it. */
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 256 };

/* Returns the same value as rng_mix of base/rng.h; tests compare the two functions. */
static __device__ inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Launch: grid-stride over d.n * d.elems units, THREADS a block. Moves 8 bytes per unit. */
static __global__ void weir_dropout_apply(const float *x, float *y, struct gpu_dropout d)
{
    int64_t n = d.n * d.elems;
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        int64_t sample = quotient(k, d.elems), unit = k - sample * d.elems;
        uint64_t counter = d.position[sample] * (uint64_t)d.elems + (uint64_t)unit;
        uint64_t number = mix(d.key ^ mix(counter)) >> 40;
        y[k] = x[k] * (number < d.threshold ? 0.0f : d.scale);
    }
}

extern "C" int gpu_dropout_apply(struct CUstream_st *stream, const float *x, float *y,
                                 const struct gpu_dropout *d)
{
    if (x == nullptr || y == nullptr || d->position == nullptr || d->n < 1 || d->elems < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_dropout_apply, gpu_grid_blocks(d->n * d->elems, THREADS), THREADS, stream, x,
                  y, *d);
}
