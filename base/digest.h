/* base/digest.h - checksums: CRC-32C (RFC 3720 B.4, by Intel's ISA-L) for bytes on the wire and on
 * disk, SHA-256 (by OpenSSL's libcrypto) to name a set of parameters.
 * Threads: any; a struct digest_sha256 belongs to one thread. Errors: ST_NOMEM. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the start) over n bytes: crc(a|b) == f(f(0, a), b).
 * Check value: the CRC-32C of "123456789" is 0xe3069283. */
uint32_t digest_crc32c(uint32_t crc, const void *data, size_t n);

struct digest_sha256;
enum status digest_sha256_create(struct digest_sha256 **out);
void digest_sha256_update(struct digest_sha256 *d, const void *data, size_t n);
/* ends the digest and writes it as text */
void digest_sha256_hex(struct digest_sha256 *d, char hex[65]);
void digest_sha256_destroy(struct digest_sha256 *d); /* NULL is fine */

#endif
