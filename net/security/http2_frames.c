/* net/security/http2_frames.c - see http2_frames.h. */
#include "net/security/http2_frames.h"
#include <stddef.h>

static uint32_t big_endian(const uint8_t *from, int n)
{
    uint32_t value = 0;
    for (int i = 0; i < n; i++)
        value = value << 8 | from[i];
    return value;
}

bool http2_frames_next(struct http2_frames *f, const uint8_t **at, const uint8_t *end,
                       struct http2_frame *frame)
{
    size_t n = (size_t)(end - *at);
    if (n <= f->skip) {
        f->skip -= (uint32_t)n;
        *at = end;
        return false;
    }
    *at += f->skip;
    f->skip = 0;
    while (*at < end && f->n_head < HTTP2_HEAD_BYTES)
        f->head[f->n_head++] = *(*at)++;
    if (f->n_head < HTTP2_HEAD_BYTES)
        return false;
    *frame = (struct http2_frame){.bytes = big_endian(f->head, 3),
                                  .kind = f->head[3],
                                  .flags = f->head[4],
                                  .stream = big_endian(f->head + 5, 4) & 0x7fffffff};
    f->skip = frame->bytes;
    f->n_head = 0;
    return true;
}
