/* kernels/cuda/cast.cu - floats to bfloat16 (the upper half of a float, to nearest, ties to even)
 * and back. */
#include "kernels/cuda/grid.cuh"

enum { THREADS = 256 };

union bits {
    float f;
    uint32_t u;
};

static __global__ void cast_down(const float *src, uint16_t *dst, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        union bits v;
        v.f = src[k];
        int is_nan = (v.u & 0x7fffffffu) > 0x7f800000u;
        uint32_t rounded = v.u + 0x7fffu + (v.u >> 16 & 1u);
        dst[k] = (uint16_t)((is_nan ? v.u | 0x400000u : rounded) >> 16);
    }
}

static __global__ void cast_up(const uint16_t *src, float *dst, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        union bits v;
        v.u = (uint32_t)src[k] << 16;
        dst[k] = v.f;
    }
}

int cuda_cast_down(struct CUstream_st *stream, const float *src, uint16_t *dst, int64_t n)
{
    if (src == nullptr || dst == nullptr || n < 1)
        return CUDA_KERNEL_REFUSED;
    return LAUNCH(cast_down, cuda_blocks(n, THREADS), THREADS, stream, src, dst, n);
}

int cuda_cast_up(struct CUstream_st *stream, const uint16_t *src, float *dst, int64_t n)
{
    if (src == nullptr || dst == nullptr || n < 1)
        return CUDA_KERNEL_REFUSED;
    return LAUNCH(cast_up, cuda_blocks(n, THREADS), THREADS, stream, src, dst, n);
}
