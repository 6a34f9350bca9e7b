/* net/security/http2_frames.c - see http2_frames.h. */
#include "net/security/http2_frames.h"
#include <string.h>

const uint8_t http2_frames_preface[HTTP2_PREFACE_BYTES] = {
    'P', 'R', 'I',  ' ',  '*',  ' ',  'H', 'T', 'T',  'P',  '/',  '2',
    '.', '0', '\r', '\n', '\r', '\n', 'S', 'M', '\r', '\n', '\r', '\n'};

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

bool http2_frames_is_first(const struct http2_frame *f)
{
    enum { ACK = 1, SETTING_BYTES = 6 };
    return f->kind == HTTP2_SETTINGS && !(f->flags & ACK) && f->stream == 0 &&
           f->bytes <= HTTP2_MAX_SETTINGS_BYTES && f->bytes % SETTING_BYTES == 0;
}

bool http2_frames_has_begun(const uint8_t *bytes, size_t n)
{
    struct http2_frames walk = {.skip = HTTP2_PREFACE_BYTES};
    struct http2_frame first;
    const uint8_t *at = bytes;
    return n >= HTTP2_PREFACE_BYTES &&
           memcmp(bytes, http2_frames_preface, HTTP2_PREFACE_BYTES) == 0 &&
           http2_frames_next(&walk, &at, bytes + n, &first) && http2_frames_is_first(&first);
}
