/* base/digest.c - computes CRC-32C by ISA-L and SHA-256 by libcrypto; see digest.h. */
#include "base/digest.h"
#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <stdio.h>

#ifdef __x86_64__
#include <immintrin.h>

/* ISA-L leaves values in the upper halves of the vector registers. Until these halves are cleared,
 * each scalar floating-point operation of this thread depends on the previous operation, and lasts
 * up to seven times as long. */
__attribute__((target("avx"))) static void clear_upper_halves(void)
{
    _mm256_zeroupper();
}

static void clean_registers(void)
{
    if (__builtin_cpu_supports("avx"))
        clear_upper_halves();
}
#else
static void clean_registers(void)
{
}
#endif

uint32_t digest_crc32c(uint32_t crc, const void *data, size_t n)
{
    /* ISA-L's length is an int, and ISA-L requires that the caller inverts the value before and
     * after the call */
    const unsigned char *p = data;
    crc = ~crc;
    while (n > 0) {
        int part = n > (1 << 30) ? (1 << 30) : (int)n;
        crc = crc32_iscsi((unsigned char *)p, part, crc);
        p += part;
        n -= (size_t)part;
    }
    clean_registers();
    return ~crc;
}

/* Returns the digest as OpenSSL's type. struct digest_sha256 itself is never defined. */
static EVP_MD_CTX *ctx_of(struct digest_sha256 *d)
{
    return (EVP_MD_CTX *)d;
}

enum status digest_sha256_create(struct digest_sha256 **out)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return ST_NOMEM;
    }
    *out = (struct digest_sha256 *)ctx;
    return ST_OK;
}

void digest_sha256_update(struct digest_sha256 *d, const void *data, size_t n)
{
    CHECK(EVP_DigestUpdate(ctx_of(d), data, n) == 1);
}

void digest_sha256_hex(struct digest_sha256 *d, char hex[65])
{
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    CHECK(EVP_DigestFinal_ex(ctx_of(d), md, &n) == 1 && n == 32);
    for (unsigned int i = 0; i < n; i++) {
        hex[2 * i] = "0123456789abcdef"[md[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[md[i] & 15];
    }
    hex[2 * n] = 0;
}

void digest_sha256_destroy(struct digest_sha256 *d)
{
    EVP_MD_CTX_free(ctx_of(d));
}
