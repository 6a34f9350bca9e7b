/* net/security/http2_frames.h - finds the frame heads in the bytes of one direction of an HTTP/2
 * connection. The bytes may arrive in pieces of any size. Payloads are skipped by their length:
 * they are neither read nor copied.
 * Owns:    nothing.
 * Threads: one at a time for each struct http2_frames.
 * Errors:  none. Bytes that are not HTTP/2 yield heads without meaning. */
#ifndef NET_SECURITY_HTTP2_FRAMES_H
#define NET_SECURITY_HTTP2_FRAMES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP2_HEAD_BYTES = 9, HTTP2_PREFACE_BYTES = 24 };
enum {
    HTTP2_DATA = 0,
    HTTP2_HEADERS = 1,
    HTTP2_RST_STREAM = 3,
    HTTP2_SETTINGS = 4,
    HTTP2_CONTINUATION = 9
};
enum { HTTP2_END_STREAM = 1, HTTP2_END_HEADERS = 4, HTTP2_MAX_SETTINGS_BYTES = 16 << 10 };

struct http2_frame {
    uint32_t bytes; /* bytes of the frame's payload */
    uint32_t stream;
    uint8_t kind, flags;
};

struct http2_frames {
    /* bytes to skip before the next head: the remainder of a payload, or, at the start, of a
     * client's preface */
    uint32_t skip;
    uint32_t n_head; /* bytes of the next head that have arrived */
    uint8_t head[HTTP2_HEAD_BYTES];
};

/* Advances *at to the end of the next frame head, fills *frame and returns true. Returns false if
 * the bytes end before that; the next call then receives the bytes that follow. */
bool http2_frames_next(struct http2_frames *f, const uint8_t **at, const uint8_t *end,
                       struct http2_frame *frame);

/* First bytes of each client's connection. */
extern const uint8_t http2_frames_preface[HTTP2_PREFACE_BYTES];
/* Returns true if a client may send this frame directly after its preface: it must be SETTINGS, of
 * a valid size. */
bool http2_frames_is_first(const struct http2_frame *frame);
/* Returns true if the n bytes begin with a preface, followed by the head of a frame that may be the
 * first one. */
bool http2_frames_has_begun(const uint8_t *bytes, size_t n);

#endif
