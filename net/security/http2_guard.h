/* net/security/http2_guard.h - cuts off a client that uses HTTP/2 to wear a server down, before
 * gRPC receives the bytes. gRPC 1.51 creates a call for each stream that a client opens and resets
 * at once (CVE-2023-44487), and, with each frame that continues an unfinished header, parses that
 * header again from its start (CVE-2023-33953).
 *
 * A guard follows the frame heads of both directions of one connection. Its limits are far above
 * what Weir's programs and other gRPC clients need:
 *   - a client begins with the preface of HTTP/2 and a SETTINGS frame;
 *   - a header block has at most 64 KB in 16 frames; gRPC refuses metadata above 8 KB anyway;
 *   - a client has at most 512 streams open, twice the number that the server's SETTINGS allow.
 *     Weir's programs have two streams open on most connections;
 *   - at most 100 streams a second are reset, by the client or by the server. In normal use only
 *     calls that failed are reset.
 * Resets are also counted for each host, so that a client cannot avoid the limit with new
 * connections. If a host has more than 400 resets in a second, each of its connections with more
 * than 4 of these resets is cut off.
 *
 * A new connection costs gRPC far more time than it costs the client. A connection that ends before
 * its client has opened a stream is counted for the client's host. If a host has more than 100 such
 * connections in a second, it is flooding, and the server refuses its new connections
 * (net/rpc/guarded_sockets.h) for the rest of that second.
 *
 * Owns:    nothing but its lock.
 * Threads: at any time at most one thread receives and at most one thread sends.
 * Errors:  none. A connection that is cut off is logged, at most once a minute for each host. */
#ifndef NET_SECURITY_HTTP2_GUARD_H
#define NET_SECURITY_HTTP2_GUARD_H
#include "net/security/http2_frames.h"
#include "net/security/peer_address.h"
#include <pthread.h>
#include <stddef.h>

enum {
    HTTP2_MAX_BLOCK_BYTES = 64 << 10,
    HTTP2_MAX_BLOCK_FRAMES = 16,
    HTTP2_MAX_STREAMS = 256, /* the limit that gRPC sends to clients */
    /* A client may receive the end of a stream, and open the next stream, before the thread that
     * sent the end has recorded it. */
    HTTP2_MAX_OPEN = 2 * HTTP2_MAX_STREAMS,
    HTTP2_MAX_RESETS = 100,
    HTTP2_MAX_HOST_RESETS = 400,
    HTTP2_SPARED_RESETS = 4,
    HTTP2_MAX_UNUSED = 100, /* connections a second from one host that end without a stream */
};

struct http2_rate {
    int64_t since_ns; /* beginning of the second in which events are counted */
    int n;
};

struct http2_guard {
    struct peer_address from;
    _Atomic bool is_cut;
    _Atomic bool has_opened; /* the client has opened at least one stream */
    /* stored after each check and loaded before the next check, so that a thread sees the fields
     * that another thread has written */
    _Atomic int received, sent;
    struct http2_frames in, out;
    uint32_t n_preface;                 /* bytes of the client's preface that have arrived */
    bool has_settings;                  /* the client's first frame has arrived */
    uint32_t block_bytes, block_frames; /* size of the header block that is being received */
    uint32_t newest;                    /* highest number of a stream that the client has opened */

    pthread_mutex_t lock; /* guards the fields below */
    uint32_t open[HTTP2_MAX_OPEN];
    int n_open;
    struct http2_rate resets;
};

/* Initializes the lock; http2_guard_begin sets the other fields. */
void http2_guard_init(struct http2_guard *g);
void http2_guard_free(struct http2_guard *g);
/* Counts a connection that the client closed, or the server refused, before it was used. */
void http2_guard_count_unused(const struct peer_address *from);
/* Returns true if the host is flooding, and logs it at most once a minute for each host. */
bool http2_guard_is_flooding(const struct peer_address *from);
/* Starts to guard a new connection. */
void http2_guard_begin(struct http2_guard *g, const struct peer_address *from);

/* Checks n bytes from the client. Returns false if the client is cut off: then gRPC must receive
 * neither these bytes nor any later ones. */
bool http2_guard_received(struct http2_guard *g, const void *bytes, size_t n);
/* Checks n bytes that were sent to the client. */
void http2_guard_sent(struct http2_guard *g, const void *bytes, size_t n);
/* Notes that the connection has ended. */
void http2_guard_end(struct http2_guard *g);
/* Returns true if the client was cut off, because of bytes of either direction. */
bool http2_guard_is_cut(struct http2_guard *g);

#endif
