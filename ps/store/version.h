/* ps/store/version.h - one version of a chunk: its value and slots, from which the optimizer
 * continues, and its wire form for members. In an fp32 job the value and the wire form are one
 * buffer.
 * Owns:    a reference to each buffer; they are immutable (I1).
 * Threads: none of its own; the store keeps it under its chunk's lock.
 * Errors:  none. */
#ifndef PS_STORE_VERSION_H
#define PS_STORE_VERSION_H
#include "base/buf.h"
#include "kernels/vector/dtype.h"
#include <stdbool.h>
#include <stdint.h>

struct chunk_version {
    struct buf *value; /* value in fp32; NULL: there is no such version */
    struct buf *wire;  /* wire form of the value, in `dtype` */
    struct buf *slots; /* slots of the optimizer, one after the other; NULL: none, or released */
    /* uint64_t for each parameter of the chunk: number of updates in which no contribution had a
     * gradient for it, and which Adam therefore does not count; NULL: all are 0 */
    struct buf *idle;
    enum dtype dtype;
    bool kept;       /* equal to the version before, since the chunk had no turn (fragments.h) */
    bool summed;     /* crc32c is set */
    uint32_t crc32c; /* checksum of wire */
};

static inline void chunk_version_drop(struct chunk_version *v)
{
    buf_unref(v->value);
    buf_unref(v->wire);
    buf_unref(v->slots);
    buf_unref(v->idle);
    v->value = v->wire = v->slots = v->idle = NULL;
}

#endif
