/* kernels/cuda/layers/layer_norm.cu - normalization over the values of a sample, with sums in
 * doubles. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/layers/rows.h"

enum { THREADS = 128 };

/* Returns the sum of `mine` over the block's threads, added in a fixed order; all threads receive
 * it. */
static __device__ inline double block_sum(double *part, double mine)
{
    __syncthreads(); /* all threads have read the earlier sum */
    part[threadIdx.x] = mine;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    __syncthreads();
    return part[0];
}

/* Launch: a block of THREADS threads per sample. Reads x three times (mean, variance, output) and
 * writes y: 16 bytes per value, plus gamma and beta. */
static __global__ void weir_norm_forward(struct gpu_layer_norm l, const float *beta, float *y)
{
    __shared__ double part[THREADS];
    const float *x = l.x + blockIdx.x * l.elems;
    double sum = 0.0, squares = 0.0;
    for (int64_t k = threadIdx.x; k < l.elems; k += THREADS)
        sum += (double)x[k];
    double mean = block_sum(part, sum) / (double)l.elems;
    for (int64_t k = threadIdx.x; k < l.elems; k += THREADS)
        squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    double variance = block_sum(part, squares) / (double)l.elems;
    float m = (float)mean, inverse = (float)(1.0 / sqrt(variance + l.epsilon));
    for (int64_t k = threadIdx.x; k < l.elems; k += THREADS)
        y[blockIdx.x * l.elems + k] = (x[k] - m) * inverse * l.gamma[k] + beta[k];
    if (threadIdx.x == 0) {
        l.mean[blockIdx.x] = m;
        l.inverse[blockIdx.x] = inverse;
    }
}

/* Launch: a block of THREADS threads per sample. Reads x and dy twice and writes dx: 20 bytes per
 * value, plus gamma twice. */
static __global__ void weir_norm_backward(struct gpu_layer_norm l, const float *dy_all, float *dx)
{
    __shared__ double part[THREADS];
    const float *x = l.x + blockIdx.x * l.elems, *dy = dy_all + blockIdx.x * l.elems;
    float mean = l.mean[blockIdx.x], inverse = l.inverse[blockIdx.x];
    double sum = 0.0, dot = 0.0;
    for (int64_t k = threadIdx.x; k < l.elems; k += THREADS) {
        double g = (double)dy[k] * (double)l.gamma[k];
        sum += g;
        dot += g * (double)((x[k] - mean) * inverse);
    }
    float shift = (float)(block_sum(part, sum) / (double)l.elems);
    float slope = (float)(block_sum(part, dot) / (double)l.elems);
    for (int64_t k = threadIdx.x; k < l.elems; k += THREADS)
        dx[blockIdx.x * l.elems + k] =
            inverse * (dy[k] * l.gamma[k] - shift - (x[k] - mean) * inverse * slope);
}

/* Computes the gradients of gamma and beta; samples are added in their order. Launch: grid-stride
 * over the values of a sample, THREADS a block. Reads 8 bytes per sample and value, writes 8 per
 * value. */
static __global__ void weir_norm_params(struct gpu_layer_norm l, const float *dy, float *dgamma,
                                        float *dbeta)
{
    for (int64_t k = grid_first(); k < l.elems; k += grid_stride()) {
        float gamma = 0.0f, beta = 0.0f;
        for (int64_t s = 0; s < l.n; s++) {
            float d = dy[s * l.elems + k];
            gamma += d * ((l.x[s * l.elems + k] - l.mean[s]) * l.inverse[s]);
            beta += d;
        }
        dgamma[k] = gamma;
        dbeta[k] = beta;
    }
}

static int is_sound(const struct gpu_layer_norm *l)
{
    return l->x != nullptr && l->gamma != nullptr && l->mean != nullptr && l->inverse != nullptr &&
           l->n > 0 && l->n <= INT32_MAX && l->elems > 0;
}

extern "C" int gpu_layer_norm_forward(struct CUstream_st *stream, const struct gpu_layer_norm *l,
                                      const float *beta, float *y)
{
    if (!is_sound(l) || beta == nullptr || y == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_norm_forward, (unsigned)l->n, THREADS, stream, *l, beta, y);
}

extern "C" int gpu_layer_norm_backward(struct CUstream_st *stream, const struct gpu_layer_norm *l,
                                       const float *dy, float *dx)
{
    if (!is_sound(l) || dy == nullptr || dx == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_norm_backward, (unsigned)l->n, THREADS, stream, *l, dy, dx);
}

extern "C" int gpu_layer_norm_params(struct CUstream_st *stream, const struct gpu_layer_norm *l,
                                     const float *dy, float *dgamma, float *dbeta)
{
    if (!is_sound(l) || dy == nullptr || dgamma == nullptr || dbeta == nullptr)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_norm_params, gpu_grid_blocks(l->elems, THREADS), THREADS, stream, *l, dy,
                  dgamma, dbeta);
}
