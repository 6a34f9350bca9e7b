/* net/wire/lacking.h - marks of the parameters for which a contribution has no gradient. A chunk
 * has one bit for each of its parameters, in their order: bit k % 8 of byte k / 8 is set if the
 * contribution lacks the gradient of the chunk's parameter k. The unused bits of the last byte are
 * 0. A contribution that lacks all gradients of a chunk has no payload. In every other payload the
 *    elements of the marked parameters are 0.
 *
 * The servers update a parameter unless all contributions of weight above 0 lack its gradient. If
 * only some lack it, their gradients count as zeros.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  none. */
#ifndef NET_WIRE_LACKING_H
#define NET_WIRE_LACKING_H
#include "net/wire/chunks.h"
#include "net/wire/payload.h"

enum { LACKING_MAX_BYTES = CHUNKS_PACK_BYTES / 4 / 8 }; /* the most bytes of one chunk's marks */

/* Returns the number of parameters of which the chunk has elements. */
int lacking_n_params(const struct chunks *c, int chunk);
static inline size_t lacking_bytes(int n_params)
{
    return ((size_t)n_params + 7) / 8;
}
/* Returns the offset of a chunk's marks in the block that contains the marks of all chunks;
 * lacking_total returns the size of that block. */
static inline size_t lacking_at(const struct chunks *c, int chunk)
{
    return (size_t)c->chunks[chunk].param / 8 + (size_t)chunk;
}
static inline size_t lacking_total(const struct chunks *c)
{
    return (size_t)c->n_params / 8 + (size_t)c->n_chunks + 1;
}
static inline bool lacking_has(const uint8_t *marks, int k)
{
    return marks[k / 8] >> (k % 8) & 1;
}
static inline void lacking_set(uint8_t *marks, int k)
{
    marks[k / 8] = (uint8_t)(marks[k / 8] | 1 << (k % 8));
}
/* Returns true if any of the n_params marks is set. */
bool lacking_any(const uint8_t *marks, int n_params);
bool lacking_all(const uint8_t *marks, int n_params); /* true: all marks are set */
/* Returns true if some mark is set and all unused bits are 0. */
bool lacking_is_valid(const uint8_t *marks, int n_params);
/* Returns the index of the chunk's first parameter that is marked although the payload has a finite
 * number other than 0 for it; -1: no such parameter. The payload has all elements of the chunk. */
int lacking_first_filled(const struct chunks *c, int chunk, const uint8_t *marks,
                         const struct net_payload *payload, enum dtype dtype);
/* Sets in `to` the marks that are set in both `a` and `b`. `to` may be one of them. */
void lacking_and(uint8_t *to, const uint8_t *a, const uint8_t *b, int n_params);

#endif
