/* kernels/cuda/common/bf16.cuh - converts a float to bfloat16 (its upper half, rounded to nearest,
 * ties to even) and back. The results, even for a NaN, have the same bits as those of
 * kernels/vector/dtype.c. */
#ifndef KERNELS_CUDA_COMMON_BF16_CUH
#define KERNELS_CUDA_COMMON_BF16_CUH
#include "kernels/cuda/common/launch.cuh"

union bits {
    float f;
    uint32_t u;
};

static __device__ inline uint16_t bf16_of(float value)
{
    union bits v;
    v.f = value;
    int is_nan = (v.u & 0x7fffffffu) > 0x7f800000u;
    uint32_t rounded = v.u + 0x7fffu + (v.u >> 16 & 1u);
    return (uint16_t)((is_nan ? v.u | 0x400000u : rounded) >> 16);
}

static __device__ inline float bf16_value(uint16_t value)
{
    union bits v;
    v.u = (uint32_t)value << 16;
    return v.f;
}

#endif
