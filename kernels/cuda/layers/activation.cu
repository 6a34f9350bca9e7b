/* kernels/cuda/layers/activation.cu - sigmoid, tanh, gelu, silu, leaky_relu
 * (kernels/reference_activation.h) and their gradients, value by value. exp may overflow to
 * infinity, but only in a divisor, so the result stays finite. */
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/layers/rows.h"

enum { THREADS = 256 };

static __device__ inline float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Returns the distribution function of the standard normal distribution. */
static __device__ inline float normal(float x)
{
    return 0.5f * erfcf(-0.70710678f * x);
}

static __device__ inline float value(const struct gpu_activation &a, float x)
{
    switch (a.kind) {
    case GPU_SIGMOID:
        return sigmoid(x);
    case GPU_TANH:
        return tanhf(x);
    case GPU_GELU:
        return x * normal(x);
    case GPU_SILU:
        return x * sigmoid(x);
    default:
        return x > 0.0f ? x : x * a.slope;
    }
}

static __device__ inline float derivative(const struct gpu_activation &a, float x)
{
    float s;
    switch (a.kind) {
    case GPU_SIGMOID:
        s = sigmoid(x);
        return s * (1.0f - s);
    case GPU_TANH:
        s = tanhf(x);
        return 1.0f - s * s;
    case GPU_GELU:
        return normal(x) + x * 0.39894228f * expf(-0.5f * x * x);
    case GPU_SILU:
        s = sigmoid(x);
        return s * (1.0f + x * (1.0f - s));
    default:
        return x > 0.0f ? 1.0f : a.slope;
    }
}

/* Launch: grid-stride over a.n values, THREADS a block. Moves 8 bytes per value. */
static __global__ void weir_activation_forward(struct gpu_activation a, const float *x, float *y)
{
    for (int64_t k = grid_first(); k < a.n; k += grid_stride())
        y[k] = value(a, x[k]);
}

/* Launch: grid-stride over a.n values, THREADS a block. Moves 12 bytes per value. */
static __global__ void weir_activation_backward(struct gpu_activation a, const float *x,
                                                const float *dy, float *dx)
{
    for (int64_t k = grid_first(); k < a.n; k += grid_stride())
        dx[k] = derivative(a, x[k]) * dy[k];
}

extern "C" int gpu_activation_forward(struct CUstream_st *stream, const struct gpu_activation *a,
                                      const float *x, float *y)
{
    if (x == nullptr || y == nullptr || a->n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_activation_forward, gpu_grid_blocks(a->n, THREADS), THREADS, stream, *a, x,
                  y);
}

extern "C" int gpu_activation_backward(struct CUstream_st *stream, const struct gpu_activation *a,
                                       const float *x, const float *dy, float *dx)
{
    if (x == nullptr || dy == nullptr || dx == nullptr || a->n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_activation_backward, gpu_grid_blocks(a->n, THREADS), THREADS, stream, *a, x,
                  dy, dx);
}
