/* kernels/cuda/common/cast.cu - converts floats to bfloat16 and back, and to fp16. Integer
 * arithmetic yields exactly the bits that kernels/vector/dtype.c yields on the host, even for a
 * NaN.
 *
 * Launch of each kernel: grid-stride over n values, THREADS a block. Moves 6n bytes: 4 bytes per
 * float and 2 bytes per 16-bit value. */
#include "kernels/cuda/common/bf16.cuh"
#include "kernels/cuda/common/grid.cuh"

enum { THREADS = 256 };

static __global__ void weir_cast_down(const float *src, uint16_t *dst, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride())
        dst[k] = bf16_of(src[k]);
}

static __global__ void weir_cast_up(const uint16_t *src, float *dst, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride())
        dst[k] = bf16_value(src[k]);
}

/* Removes the lowest `bits` bits and rounds to nearest, ties to even: adds half an ulp minus 1, and
 * 1 more if the remaining number is odd. */
static __device__ inline uint32_t round_off(uint32_t u, int bits)
{
    return (u + ((1u << (bits - 1)) - 1) + (u >> bits & 1u)) >> bits;
}

/* Returns the fp16 code of a float that is not negative; a: bits of the float. */
static __device__ inline uint32_t half_of(uint32_t a)
{
    const uint32_t infinity = 0x7f800000u, too_large = 143u << 23 /* 65536 */;
    const uint32_t smallest_normal = 113u << 23, rebias = 112u << 23;
    if (a > infinity)
        return 0x7e00u | (a >> 13 & 0x1ffu);
    if (a >= too_large)
        return 0x7c00u;
    if (a >= smallest_normal)
        return round_off(a - rebias, 13);
    /* a subnormal has an ulp of 2^-24, so the fraction with its leading one is shifted to the
     * right */
    int shift = 126 - (int)(a >> 23);
    return shift > 25 ? 0 : round_off((a & 0x7fffffu) | 0x800000u, shift);
}

static __global__ void weir_cast_half(const float *src, uint16_t *dst, int64_t n)
{
    for (int64_t k = grid_first(); k < n; k += grid_stride()) {
        union bits v;
        v.f = src[k];
        dst[k] = (uint16_t)(half_of(v.u & 0x7fffffffu) | v.u >> 31 << 15);
    }
}

extern "C" int gpu_cast_down(struct CUstream_st *stream, const float *src, uint16_t *dst, int64_t n)
{
    if (src == nullptr || dst == nullptr || n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_cast_down, gpu_grid_blocks(n, THREADS), THREADS, stream, src, dst, n);
}

extern "C" int gpu_cast_up(struct CUstream_st *stream, const uint16_t *src, float *dst, int64_t n)
{
    if (src == nullptr || dst == nullptr || n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_cast_up, gpu_grid_blocks(n, THREADS), THREADS, stream, src, dst, n);
}

extern "C" int gpu_cast_half(struct CUstream_st *stream, const float *src, uint16_t *dst, int64_t n)
{
    if (src == nullptr || dst == nullptr || n < 1)
        return GPU_KERNEL_REFUSED;
    return LAUNCH(weir_cast_half, gpu_grid_blocks(n, THREADS), THREADS, stream, src, dst, n);
}
