/* ps/store/version.h - one version of a chunk: its value and slots, which the optimizer goes on
 * from, and what members are sent. In an fp32 job value and what is sent are one buffer.
 * Owns:    a reference to each buffer; they are immutable (I1).
 * Threads: none of its own; the store keeps it under its chunk's lock. Errors: none. */
#ifndef PS_STORE_VERSION_H
#define PS_STORE_VERSION_H
#include "base/buf.h"
#include "kernels/vector/dtype.h"
#include <stdint.h>

struct chunk_version {
    struct buf *value; /* fp32; NULL: there is no such version */
    struct buf *wire;  /* of `dtype` */
    struct buf *slots; /* the optimizer's, one after the other; NULL: there are none (any more) */
    enum dtype dtype;
    int kept;        /* 1: it is the one before, since the chunk had no turn (fragments.h) */
    int summed;      /* 1: crc32c is known: once for all answers */
    uint32_t crc32c; /* of wire */
};

static inline void chunk_version_drop(struct chunk_version *v)
{
    buf_unref(v->value);
    buf_unref(v->wire);
    buf_unref(v->slots);
    v->value = v->wire = v->slots = NULL;
}

#endif
