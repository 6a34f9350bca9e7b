/* kernels/cuda/layers/multiply.cu - the product of several tensors, and its gradients: the product
 * of the other tensors, without a division, so values may be 0. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/layers/rows.h"

enum { THREADS = 256, MOST_INPUTS = 16 };

/* Launch: grid-stride over m.n values, THREADS a block. Moves 4 bytes per value and input, and 4
 * more. */
static __global__ void weir_multiply(struct gpu_multiply m, float *y)
{
    for (int64_t k = grid_first(); k < m.n; k += grid_stride()) {
        float v = m.x[0][k];
        for (int j = 1; j < m.n_inputs; j++)
            v *= m.x[j][k];
        y[k] = v;
    }
}

/* Launch: as weir_multiply. Moves 4 bytes per value and input, and 4 more. */
static __global__ void weir_multiply_backward(struct gpu_multiply m, int skip, const float *dy,
                                              float *dx)
{
    for (int64_t k = grid_first(); k < m.n; k += grid_stride()) {
        float v = dy[k];
        for (int j = 0; j < m.n_inputs; j++)
            v *= j == skip ? 1.0f : m.x[j][k];
        dx[k] = v;
    }
}

static int is_sound(const struct gpu_multiply *m)
{
    int sound = m->n > 0 && m->n_inputs >= 2 && m->n_inputs <= MOST_INPUTS;
    for (int j = 0; sound && j < m->n_inputs; j++)
        sound = m->x[j] != nullptr;
    return sound;
}

extern "C" int gpu_multiply_forward(struct CUstream_st *stream, const struct gpu_multiply *m,
                                    float *y)
{
    if (!is_sound(m) || y == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_multiply, gpu_grid_blocks(m->n, THREADS), THREADS, stream, *m, y);
}

extern "C" int gpu_multiply_backward(struct CUstream_st *stream, const struct gpu_multiply *m,
                                     int k, const float *dy, float *dx)
{
    if (!is_sound(m) || k < 0 || k >= m->n_inputs || dy == nullptr || dx == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_multiply_backward, gpu_grid_blocks(m->n, THREADS), THREADS, stream, *m, k,
                  dy, dx);
}
