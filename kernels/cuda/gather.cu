/* kernels/cuda/gather.cu - a batch out of the data set that lies on the device: one block a sample.
 * Pixels become floats by a true division, as on the CPU. */
#include "kernels/cuda/grid.cuh"

enum { THREADS = 128 };

static __global__ void gather_items(struct cuda_gather g)
{
    for (int64_t sample = blockIdx.x; sample < g.n; sample += gridDim.x) {
        int64_t item = g.item[sample];
        const uint8_t *image = g.images + item * g.pixels;
        float *x = g.x + sample * g.pixels;
        for (int64_t k = threadIdx.x; k < g.pixels; k += THREADS)
            x[k] = (float)image[k] / 255.0f;
        if (threadIdx.x == 0)
            g.label[sample] = g.labels[item];
    }
}

int cuda_gather_items(struct CUstream_st *stream, const struct cuda_gather *g)
{
    if (g->images == nullptr || g->labels == nullptr || g->item == nullptr || g->x == nullptr ||
        g->label == nullptr || g->n < 1 || g->pixels < 1)
        return CUDA_KERNEL_REFUSED;
    return LAUNCH(gather_items, cuda_blocks(g->n, 1), THREADS, stream, *g);
}
