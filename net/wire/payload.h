/* net/wire/payload.h - the payload of a piece, which programs check, sum and decode in place, in
 * spans that may end anywhere.
 * Owns:    nothing; a payload is a position in spans that the caller keeps.
 * Threads: any.
 * Errors:  none. */
#ifndef NET_WIRE_PAYLOAD_H
#define NET_WIRE_PAYLOAD_H
#include "kernels/vector/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct segment;
struct net_piece;

/* A slice of a received message. */
struct net_span {
    const uint8_t *data;
    size_t n;
};

/* A run of bytes inside a list of spans. */
struct net_payload {
    const struct net_span *span; /* first span */
    size_t skip;                 /* bytes of the first span that are before the run */
    size_t bytes;                /* length of the run */
};

/* Sets *span to the piece's payload in the sender's segment, and the payload to that span. Returns
 * false if the position is not inside the segment, `segment` is NULL, or the piece contains a
 * payload as well. */
bool payload_find(const struct segment *segment, struct net_piece *piece, struct net_span *span);
/* Returns `bytes` bytes of the payload, from offset `skip` on. The payload has that many. */
struct net_payload payload_part(const struct net_payload *p, size_t skip, size_t bytes);
/* Returns the CRC-32C of the payload. */
uint32_t payload_crc32c(const struct net_payload *p);
/* Returns the index of the first of n elements that is not finite; SIZE_MAX: none. */
size_t payload_first_bad(const struct net_payload *p, enum dtype d, size_t n);
/* Returns the index of the first of n elements that is not finite or whose magnitude is above
 * `limit` (finite, above 0); SIZE_MAX: none. */
size_t payload_first_above(const struct net_payload *p, enum dtype d, size_t n, float limit);
/* Calls fn for runs of the payload's n elements of dtype d, in order. fn's `src` may have any
 * alignment; its `first` is an index of an element and a multiple of `unit`. `unit` is a multiple
 * of d's block and at most DTYPE_BLOCK_MAX. Elements that lie partly in one span and partly in the
 * next are joined before the call. The payload must have dtype_bytes(d, n) bytes. */
void payload_each_run(const struct net_payload *p, enum dtype d, size_t n, size_t unit,
                      void (*fn)(void *ctx, size_t first, const void *src, size_t n), void *ctx);
/* Copies the whole payload to dst. */
void payload_copy(const struct net_payload *p, void *dst);
/* Decodes the whole payload, n elements of dtype d, to dst. crc: NULL, or receives the payload's
 * CRC-32C, which is computed while the bytes are in cache. */
void payload_decode(const struct net_payload *p, enum dtype d, size_t n, float *dst, uint32_t *crc);

#endif
