/* base/buf.c - the header and the bytes of a block are one allocation; see buf.h. */
#include "base/buf.h"
#include "base/aligned.h"

enum status buf_create(size_t bytes, struct buf **out)
{
    struct buf *b = calloc(1, sizeof *b);
    if (!b)
        return ST_NOMEM;
    b->data = aligned_take(bytes);
    if (!b->data) {
        free(b);
        return ST_NOMEM;
    }
    b->bytes = bytes;
    atomic_init(&b->refs, 1);
    *out = b;
    return ST_OK;
}

enum status buf_create_shared(void *data, size_t bytes, uint64_t shared, struct buf **out)
{
    struct buf *b = calloc(1, sizeof *b);
    if (!b)
        return ST_NOMEM;
    b->data = data;
    b->bytes = bytes;
    b->shared = shared;
    atomic_init(&b->refs, 1);
    *out = b;
    return ST_OK;
}

struct buf *buf_ref(struct buf *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void buf_free(struct buf *b)
{
    if (!b->shared)
        free(b->data);
    free(b);
}

void buf_unref(struct buf *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (b->recycle)
        b->recycle(b, b->recycle_ctx);
    else
        buf_free(b);
}
