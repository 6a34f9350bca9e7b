/* net/wire/payload.c - see payload.h. */
#include "net/wire/payload.h"
#include "base/digest.h"
#include "kernels/vector/finite.h"
#include "net/shm/segment.h"
#include "net/wire/frame.h"
#include <float.h>
#include <stdbool.h>
#include <string.h>

/* Position in a payload: its next span, the bytes to skip in it, and the bytes left. */
struct walk {
    const struct net_span *span;
    size_t skip, left;
};

/* Finds the payload's next run of bytes; returns its length, 0 at the end. */
static size_t next_run(struct walk *w, const uint8_t **data)
{
    while (w->left > 0) {
        size_t n = w->span->n - w->skip;
        *data = w->span->data + w->skip;
        w->span++;
        w->skip = 0;
        if (n > w->left)
            n = w->left;
        w->left -= n;
        if (n > 0)
            return n;
    }
    return 0;
}

bool payload_find(const struct segment *segment, struct net_piece *piece, struct net_span *span)
{
    if (piece->shared_offset == 0 || piece->payload.bytes > 0)
        return false;
    span->data = segment_at(segment, piece->shared_offset - 1, piece->shared_bytes);
    span->n = piece->shared_bytes;
    piece->payload = (struct net_payload){span, 0, span->n};
    return span->data != NULL;
}

struct net_payload payload_part(const struct net_payload *p, size_t skip, size_t bytes)
{
    struct net_payload part = {p->span, p->skip + skip, bytes};
    while (bytes > 0 && part.skip >= part.span->n)
        part.skip -= part.span++->n;
    return part;
}

uint32_t payload_crc32c(const struct net_payload *p)
{
    struct walk w = {p->span, p->skip, p->bytes};
    const uint8_t *data;
    uint32_t crc = 0;
    for (size_t n; (n = next_run(&w, &data)) > 0;)
        crc = digest_crc32c(crc, data, n);
    return crc;
}

/* Bytes of elements that lie partly in one span and partly in the next, until the elements are
 * complete. */
struct cut {
    uint8_t bytes[DTYPE_BLOCK_MAX * sizeof(float)];
    size_t n;
};

/* Appends bytes to the elements in `c`, which are complete when there are `whole` bytes. Returns
 * the number of bytes appended. */
static size_t join_cut(struct cut *c, size_t whole, const uint8_t *data, size_t n)
{
    size_t more = whole - c->n < n ? whole - c->n : n;
    memcpy(c->bytes + c->n, data, more);
    c->n += more;
    return more;
}

void payload_each_run(const struct net_payload *p, enum dtype d, size_t n, size_t unit,
                      void (*fn)(void *ctx, size_t first, const void *src, size_t n), void *ctx)
{
    struct walk w = {p->span, p->skip, p->bytes};
    struct cut cut = {.n = 0};
    const uint8_t *data;
    const size_t unit_bytes = dtype_bytes(d, unit);
    size_t first = 0;
    for (size_t have; (have = next_run(&w, &data)) > 0 && first < n;) {
        size_t m = n - first < unit ? n - first : unit;
        if (cut.n > 0) {
            size_t whole = dtype_bytes(d, m), used = join_cut(&cut, whole, data, have);
            data += used;
            have -= used;
            if (cut.n < whole)
                continue;
            fn(ctx, first, cut.bytes, m);
            first += m;
            cut.n = 0;
        }
        size_t elems = have / unit_bytes * unit, left = n - first;
        /* these bytes end the last unit, which may be shorter */
        if (elems > left || dtype_bytes(d, left) <= have)
            elems = left;
        if (elems > 0)
            fn(ctx, first, data, elems);
        first += elems;
        size_t used = dtype_bytes(d, elems);
        if (first < n)
            join_cut(&cut, unit_bytes, data + used, have - used);
    }
}

struct search {
    enum dtype dtype;
    float limit;
    size_t bad;
};

static void search_run(void *ctx, size_t first, const void *src, size_t n)
{
    struct search *s = ctx;
    size_t at = s->bad == SIZE_MAX ? finite_first_above(s->dtype, src, n, s->limit) : n;
    if (at < n)
        s->bad = first + at;
}

size_t payload_first_above(const struct net_payload *p, enum dtype d, size_t n, float limit)
{
    struct search s = {d, limit, SIZE_MAX};
    payload_each_run(p, d, n, dtype_block(d), search_run, &s);
    return s.bad;
}

size_t payload_first_bad(const struct net_payload *p, enum dtype d, size_t n)
{
    return payload_first_above(p, d, n, FLT_MAX);
}

struct decoding {
    enum dtype dtype;
    float *dst;
};

static void decode_run(void *ctx, size_t first, const void *src, size_t n)
{
    const struct decoding *d = ctx;
    dtype_decode(d->dtype, d->dst + first, src, n);
}

static void copy(const struct net_payload *p, void *dst, uint32_t *crc)
{
    struct walk w = {p->span, p->skip, p->bytes};
    const uint8_t *data;
    uint8_t *to = dst;
    for (size_t n; (n = next_run(&w, &data)) > 0; to += n) {
        if (crc)
            *crc = digest_crc32c(*crc, data, n);
        memcpy(to, data, n);
    }
}

void payload_copy(const struct net_payload *p, void *dst)
{
    copy(p, dst, NULL);
}

void payload_decode(const struct net_payload *p, enum dtype d, size_t n, float *dst, uint32_t *crc)
{
    struct decoding to = {d, dst};
    if (crc)
        *crc = 0;
    if (d == DTYPE_F32) {
        copy(p, dst, crc);
        return;
    }
    if (crc)
        *crc = payload_crc32c(p);
    payload_each_run(p, d, n, dtype_block(d), decode_run, &to);
}
