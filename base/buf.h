/* base/buf.h - a refcounted block of memory that crosses threads or the wire.
 * Owns:    its bytes, which do not change after a second reference exists (invariant I1).
 * Threads: any thread may ref and unref; a thread may write only while it holds the only reference.
 * Errors:  ST_NOMEM. */
#ifndef BASE_BUF_H
#define BASE_BUF_H
#include "base/status.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    void *data;   /* 64-byte aligned */
    size_t bytes; /* length of data */
    _Atomic int refs;
    /* called when the last reference ends, instead of freeing the block */
    void (*recycle)(struct buf *b, void *ctx);
    void *recycle_ctx;
    /* 1 + offset of `data` in a segment that peers can read (net/shm/segment.h), and that the block
     * does not free; 0: the block owns `data` */
    uint64_t shared;
};

/* Creates a block of `bytes` (may be 0), not cleared, with one reference. */
enum status buf_create(size_t bytes, struct buf **out);
struct buf *buf_ref(struct buf *b); /* returns b */
void buf_unref(struct buf *b);      /* NULL is fine */
/* Creates a block on memory that the caller owns. shared: see struct buf; not 0. */
enum status buf_create_shared(void *data, size_t bytes, uint64_t shared, struct buf **out);
/* frees the block even if it has references; only `recycle` may call it */
void buf_free(struct buf *b);

#endif
