/* kernels/vector/dtype.c - the conversions of dtype.h. The loops have no branches, because
 * compilers do not vectorise branches: both cases are computed, and a mask selects the result.
 * Integers are compared as signed, because SSE2 has no unsigned comparison. Additions in floats
 * round fp16's subnormals; this requires the processor's default mode, round to nearest. No
 * addition has a subnormal float as an operand or result, so a mode that flushes subnormals to zero
 * changes nothing. Three loops are written by hand with intrinsics, for machines on which the
 * compiler's code is slower. They compute the same bits; the plain loops convert the elements that
 * do not fill a vector. */
#include "kernels/vector/dtype.h"
#include "kernels/vector/clones.h"
#include "kernels/vector/float_bits.h"
#include "kernels/vector/packed.h"
#include "kernels/vector/quant.h"
#include "kernels/vector/topk.h"
#include <stdint.h>
#include <string.h>

/* Instruction sets of the machine, checked at run time or fixed by the build. */
#if VECTOR_HAS_CLONES
#define HAS_AVX512 __builtin_cpu_supports("avx512f")
#define HAS_F16C (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
#elif defined(__AVX512F__)
#define HAS_AVX512 1
#define HAS_F16C 1
#elif defined(__AVX2__) && defined(__F16C__)
#define HAS_AVX512 0
#define HAS_F16C 1
#endif
#ifdef HAS_F16C
#include <immintrin.h>
#endif

struct VECTOR_PACKED packed_half {
    uint16_t v;
};

const char *dtype_name(enum dtype d)
{
    static const char *const names[DTYPE_N_KINDS] = {"fp32", "bf16", "fp16",
                                                     "int8", "int4", "topk"};
    return (unsigned)d < DTYPE_N_KINDS ? names[d] : "unknown";
}

/* Returns the number of bits of a value in an integer format; 0 for other formats. */
static int quant_bits(enum dtype d)
{
    return d == DTYPE_INT8 ? 8 : d == DTYPE_INT4 ? 4 : 0;
}

static int read_name(const char *name, size_t n, enum dtype *out)
{
    for (int i = 0; i < DTYPE_N_KINDS; i++) {
        *out = (enum dtype)i;
        if (strlen(dtype_name(*out)) == n && !memcmp(name, dtype_name(*out), n))
            return 1;
    }
    return 0;
}

int dtype_read_two(const char *text, enum dtype *first, enum dtype *second)
{
    const char *comma = strchr(text, ','), *rest = comma ? comma + 1 : text;
    return read_name(text, comma ? (size_t)(comma - text) : strlen(text), first) &&
           read_name(rest, strlen(rest), second);
}

size_t dtype_bytes(enum dtype d, size_t n)
{
    if (quant_bits(d))
        return quant_bytes(quant_bits(d), n);
    if (d == DTYPE_TOPK)
        return topk_bytes(n);
    return n * (d == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
}

size_t dtype_block(enum dtype d)
{
    _Static_assert((int)DTYPE_BLOCK_MAX == (int)QUANT_BLOCK, "the largest block");
    _Static_assert((int)DTYPE_BLOCK_MAX == (int)TOPK_BLOCK, "likewise");
    return quant_bits(d) || d == DTYPE_TOPK ? DTYPE_BLOCK_MAX : 1;
}

/* Returns all ones if a < b, for values below 2^31. */
static inline uint32_t mask_less(uint32_t a, uint32_t b)
{
    return -(uint32_t)((int32_t)a < (int32_t)b);
}

static inline uint32_t choose_bits(uint32_t mask, uint32_t yes, uint32_t no)
{
    return (yes & mask) | (no & ~mask);
}

static const uint32_t sign_bit = 0x80000000u, infinity = 0x7f800000u;

/* Removes the lowest `bits` bits and rounds to nearest, ties to even: adds half an ulp minus 1, and
 * 1 more if the remaining number is odd. A carry out of the fraction increments the exponent, up to
 * infinity. */
static inline uint32_t round_off(uint32_t u, int bits)
{
    return (u + ((1u << (bits - 1)) - 1) + ((u >> bits) & 1)) >> bits;
}

VECTOR_CLONES static void encode_bf16_plain(struct packed_half *dst, const float *src, size_t n)
{
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        uint32_t u = bits_of(src[i]);
        uint32_t is_nan = mask_less(infinity, u & ~sign_bit);
        dst[i].v = (uint16_t)choose_bits(is_nan, u >> 16 | 0x40, round_off(u, 16));
    }
}

VECTOR_CLONES static void decode_bf16(float *dst, const struct packed_half *src, size_t n)
{
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        dst[i] = float_of((uint32_t)src[i].v << 16);
}

/* The biased exponents of fp16 are smaller by 112 than those of fp32, and its fractions are shorter
 * by 13 bits. */
static const uint32_t rebias = 112u << 23, smallest_normal = 113u << 23;

VECTOR_CLONES static void encode_f16_plain(struct packed_half *dst, const float *src, size_t n)
{
    /* the ulp of 0.5 is fp16's smallest subnormal, so the fraction of x + 0.5 is the rounded
     * code */
    const uint32_t half = 126u << 23, too_large = 143u << 23 /* 65536 */;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        uint32_t u = bits_of(src[i]), a = u & ~sign_bit;
        uint32_t normal = round_off(a - rebias, 13);
        uint32_t small = bits_of(float_of(a) + 0.5f) - half;
        uint32_t nan = 0x7e00u | (a >> 13 & 0x1ffu);
        uint32_t large = choose_bits(mask_less(infinity, a), nan, 0x7c00u);
        uint32_t code = choose_bits(mask_less(a, smallest_normal), small, normal);
        code = choose_bits(mask_less(a, too_large), code, large);
        dst[i].v = (uint16_t)(code | (u & sign_bit) >> 16);
    }
}

VECTOR_CLONES static void decode_f16_plain(float *dst, const struct packed_half *src, size_t n)
{
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        uint32_t h = src[i].v, a = h & 0x7fffu;
        uint32_t normal = (a << 13) + rebias;
        /* adds a leading one before the fraction and subtracts it again, which is exact */
        uint32_t small = bits_of(float_of((a << 13) + smallest_normal) - float_of(smallest_normal));
        uint32_t u = choose_bits(mask_less(a, 0x400u), small, normal);
        u += mask_less(0x7bffu, a) & rebias;
        u |= mask_less(0x7c00u, a) & 0x400000u; /* quiet */
        dst[i] = float_of(u | (h & 0x8000u) << 16);
    }
}

#ifdef HAS_F16C
/* Each of these functions returns the number of elements that it converted. The conversion
 * instruction rounds. */
__attribute__((target("avx512f"))) static size_t encode_f16_avx512(struct packed_half *dst,
                                                                   const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_loadu_ps(src + i);
        _mm256_storeu_si256((__m256i_u *)(dst + i),
                            _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    return i;
}

__attribute__((target("avx512f"))) static size_t
decode_f16_avx512(float *dst, const struct packed_half *src, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i v = _mm256_loadu_si256((const __m256i_u *)(src + i));
        _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(v));
    }
    return i;
}

/* Written by hand because GCC 12 does not use the narrowing store without AVX-512BW. The conversion
 * instruction of AVX512_BF16 is not used, because it flushes subnormals. */
__attribute__((target("avx512f"))) static size_t encode_bf16_avx512(struct packed_half *dst,
                                                                    const float *src, size_t n)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff), inf = _mm512_set1_epi32(0x7f800000);
    const __m512i below_half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
    const __m512i quiet = _mm512_set1_epi32(0x40);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i u = _mm512_loadu_si512(src + i), high = _mm512_srli_epi32(u, 16);
        __mmask16 is_nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, no_sign), inf);
        __m512i sum =
            _mm512_add_epi32(_mm512_add_epi32(u, below_half), _mm512_and_si512(high, one));
        __m512i code = _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), is_nan, high, quiet);
        _mm256_storeu_si256((__m256i_u *)(dst + i), _mm512_cvtepi32_epi16(code));
    }
    return i;
}

__attribute__((target("avx2,f16c"))) static size_t encode_f16_avx2(struct packed_half *dst,
                                                                   const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(src + i);
        _mm_storeu_si128((__m128i_u *)(dst + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

__attribute__((target("avx2,f16c"))) static size_t
decode_f16_avx2(float *dst, const struct packed_half *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i v = _mm_loadu_si128((const __m128i_u *)(src + i));
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(v));
    }
    return i;
}

static size_t encode_bf16_first(struct packed_half *dst, const float *src, size_t n)
{
    return HAS_AVX512 ? encode_bf16_avx512(dst, src, n) : 0;
}

static size_t encode_f16_first(struct packed_half *dst, const float *src, size_t n)
{
    if (HAS_AVX512)
        return encode_f16_avx512(dst, src, n);
    if (HAS_F16C)
        return encode_f16_avx2(dst, src, n);
    return 0;
}

static size_t decode_f16_first(float *dst, const struct packed_half *src, size_t n)
{
    if (HAS_AVX512)
        return decode_f16_avx512(dst, src, n);
    if (HAS_F16C)
        return decode_f16_avx2(dst, src, n);
    return 0;
}
#else
static size_t encode_bf16_first(struct packed_half *dst, const float *src, size_t n)
{
    return 0;
}

static size_t encode_f16_first(struct packed_half *dst, const float *src, size_t n)
{
    return 0;
}

static size_t decode_f16_first(float *dst, const struct packed_half *src, size_t n)
{
    return 0;
}
#endif

static void encode_bf16(struct packed_half *dst, const float *src, size_t n)
{
    size_t done = encode_bf16_first(dst, src, n);
    encode_bf16_plain(dst + done, src + done, n - done);
}

static void encode_f16(struct packed_half *dst, const float *src, size_t n)
{
    size_t done = encode_f16_first(dst, src, n);
    encode_f16_plain(dst + done, src + done, n - done);
}

static void decode_f16(float *dst, const struct packed_half *src, size_t n)
{
    size_t done = decode_f16_first(dst, src, n);
    decode_f16_plain(dst + done, src + done, n - done);
}

void dtype_encode(enum dtype d, void *dst, const float *src, size_t n)
{
    if (d == DTYPE_BF16)
        encode_bf16(dst, src, n);
    else if (d == DTYPE_F16)
        encode_f16(dst, src, n);
    else if (quant_bits(d))
        quant_encode(quant_bits(d), dst, src, NULL, n);
    else if (d == DTYPE_TOPK)
        topk_encode(dst, src, NULL, n);
    else if (n)
        memcpy(dst, src, n * sizeof *src);
}

void dtype_encode_residual(enum dtype d, void *dst, const float *src, float *residual, size_t n)
{
    if (d == DTYPE_TOPK)
        topk_encode(dst, src, residual, n);
    else
        quant_encode(quant_bits(d), dst, src, residual, n);
}

void dtype_encode_change(enum dtype d, void *dst, const float *old, float *value, float *residual,
                         size_t n)
{
    if (d == DTYPE_TOPK)
        topk_encode_change(dst, old, value, residual, n);
    else
        quant_encode_change(quant_bits(d), dst, old, value, residual, n);
}

void dtype_add(enum dtype d, float *dst, const void *src, size_t n)
{
    if (d == DTYPE_TOPK)
        topk_add(dst, src, n);
    else
        quant_add(quant_bits(d), dst, src, n);
}

void dtype_decode(enum dtype d, float *dst, const void *src, size_t n)
{
    if (d == DTYPE_BF16)
        decode_bf16(dst, src, n);
    else if (d == DTYPE_F16)
        decode_f16(dst, src, n);
    else if (quant_bits(d))
        quant_decode(quant_bits(d), dst, src, n);
    else if (d == DTYPE_TOPK)
        topk_decode(dst, src, n);
    else if (n)
        memcpy(dst, src, n * sizeof *dst);
}
