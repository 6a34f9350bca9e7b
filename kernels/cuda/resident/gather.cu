/* kernels/cuda/resident/gather.cu - copies a batch from the data set on the device. Pixels become
 * floats by a true division, as on the CPU.
 *
 * Launch of both kernels: a block of THREADS threads per sample. There are at most 32768 blocks; if
 * there are more samples, each block visits several. Moves 5 bytes per pixel, and a few bytes per
 * sample for item, label and position. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/resident/steps.h"

enum { THREADS = 128 };

static __device__ inline void gather_one(const struct gpu_gather &g, int64_t sample, int64_t item)
{
    const uint8_t *image = g.images + item * g.pixels;
    float *x = g.x + sample * g.pixels;
    for (int64_t k = threadIdx.x; k < g.pixels; k += THREADS)
        x[k] = (float)image[k] / 255.0f;
    if (threadIdx.x == 0)
        g.label[sample] = g.labels[item];
}

static __global__ void weir_gather_items(struct gpu_gather g, const uint32_t *item)
{
    for (int64_t sample = blockIdx.x; sample < g.n; sample += gridDim.x)
        gather_one(g, sample, item[sample]);
}

static __global__ void weir_gather_step(struct gpu_gather g, struct gpu_gather_order o)
{
    uint64_t base = o.first + *o.step * o.stride;
    for (int64_t sample = blockIdx.x; sample < g.n; sample += gridDim.x) {
        uint64_t position = base + (uint64_t)sample, pass = position / (uint64_t)o.n_items;
        gather_one(g, sample, o.item[pass & 1][position - pass * (uint64_t)o.n_items]);
        if (threadIdx.x == 0)
            o.position[sample] = position;
    }
}

static int is_sound(const struct gpu_gather *g)
{
    return g->images != nullptr && g->labels != nullptr && g->x != nullptr && g->label != nullptr &&
           g->n > 0 && g->pixels > 0;
}

extern "C" int gpu_gather_items(struct CUstream_st *stream, const struct gpu_gather *g,
                                const uint32_t *item)
{
    if (!is_sound(g) || item == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_gather_items, gpu_grid_blocks(g->n, 1), THREADS, stream, *g, item);
}

extern "C" int gpu_gather_step(struct CUstream_st *stream, const struct gpu_gather *g,
                               const struct gpu_gather_order *o)
{
    if (!is_sound(g) || o->item[0] == nullptr || o->item[1] == nullptr || o->step == nullptr ||
        o->position == nullptr || o->n_items < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_gather_step, gpu_grid_blocks(g->n, 1), THREADS, stream, *g, *o);
}
