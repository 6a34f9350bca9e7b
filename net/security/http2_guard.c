/* net/security/http2_guard.c - see http2_guard.h.
 *
 * A stream is open from the client's HEADERS until one side resets it, or the server has sent the
 * end of the stream. (After its trailers a server with gRPC sends at most a reset.) The lock is
 * held only while a stream begins or ends, not for payloads. */
#include "net/security/http2_guard.h"
#include "base/clock.h"
#include "base/log.h"
#include <stdatomic.h>

enum { HOSTS = 64 };
_Static_assert(HTTP2_MAX_OPEN == 512, "texts[STREAMS] names the limit");
_Static_assert(HTTP2_MAX_UNUSED == 100, "the line of http2_guard_is_flooding names the limit");
static const int64_t second_ns = 1000000000;

enum offence { NONE, FOREIGN, BLOCK, STREAMS, RESETS, HOST_RESETS };
static const char *const texts[] = {
    [FOREIGN] = "it does not speak HTTP/2",
    [BLOCK] = "it sent a header of more than 64 KB or 16 frames (CONTINUATION flood)",
    [STREAMS] = "it opened more than 512 calls at once on one connection",
    [RESETS] = "it reset more than 100 calls in a second (HTTP/2 rapid reset)",
    [HOST_RESETS] = "its host reset more than 400 calls in a second (HTTP/2 rapid reset)",
};

/* Hosts of clients that reset streams, were cut off or left connections unused. */
static struct host {
    uint64_t host;
    int64_t used_ns;
    struct http2_rate resets, unused;
    struct line {
        bool is_logged;
        int64_t logged_ns;
    } cut, flood;
} hosts[HOSTS];
static pthread_mutex_t hosts_lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns the host's entry. A new entry replaces the least recently used one. The caller holds
 * hosts_lock. */
static struct host *host_of(const struct peer_address *from, int64_t now)
{
    struct host *h = hosts;
    for (int i = 0; i < HOSTS; i++) {
        if (hosts[i].host == from->host && hosts[i].used_ns) {
            h = &hosts[i];
            h->used_ns = now;
            return h;
        }
        if (hosts[i].used_ns < h->used_ns)
            h = &hosts[i];
    }
    *h = (struct host){.host = from->host, .used_ns = now};
    return h;
}

/* Returns true if a line may be logged now, which is at most once a minute. The caller holds
 * hosts_lock. */
static bool is_line_due(struct line *l, int64_t now)
{
    if (l->is_logged && now - l->logged_ns < 60 * second_ns)
        return false;
    *l = (struct line){.is_logged = true, .logged_ns = now};
    return true;
}

/* Counts one event, and returns the number of events in this second. */
static int rate_add(struct http2_rate *r, int64_t now)
{
    if (now - r->since_ns >= second_ns)
        *r = (struct http2_rate){.since_ns = now};
    return ++r->n;
}

void http2_guard_init(struct http2_guard *g)
{
    pthread_mutex_init(&g->lock, NULL);
}

void http2_guard_free(struct http2_guard *g)
{
    pthread_mutex_destroy(&g->lock);
}

void http2_guard_count_unused(const struct peer_address *from)
{
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&hosts_lock);
    rate_add(&host_of(from, now)->unused, now);
    pthread_mutex_unlock(&hosts_lock);
}

bool http2_guard_is_flooding(const struct peer_address *from)
{
    static struct log_kind kind;
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&hosts_lock);
    struct host *h = host_of(from, now);
    bool is_flooding = h->unused.n > HTTP2_MAX_UNUSED && now - h->unused.since_ns < second_ns;
    bool is_due = is_flooding && is_line_due(&h->flood, now);
    pthread_mutex_unlock(&hosts_lock);
    if (is_due)
        log_write_few(
            &kind, LOG_LEVEL_WARN,
            "the host of the client at %s floods this server: more than 100 of its connections in a second ended without a call; more in that second are closed at once",
            from->text);
    return is_flooding;
}

void http2_guard_end(struct http2_guard *g)
{
    if (!atomic_load_explicit(&g->has_opened, memory_order_relaxed))
        http2_guard_count_unused(&g->from);
}

void http2_guard_begin(struct http2_guard *g, const struct peer_address *from)
{
    atomic_load_explicit(&g->received, memory_order_acquire);
    atomic_load_explicit(&g->sent, memory_order_acquire);
    pthread_mutex_lock(&g->lock);
    g->n_open = 0;
    g->resets = (struct http2_rate){.n = 0};
    pthread_mutex_unlock(&g->lock);
    g->from = *from;
    g->in = (struct http2_frames){.skip = 0};
    g->n_preface = 0;
    g->has_settings = false;
    g->out = (struct http2_frames){.skip = 0};
    g->block_bytes = g->block_frames = g->newest = 0;
    atomic_store(&g->has_opened, false);
    atomic_store(&g->is_cut, false);
}

bool http2_guard_is_cut(struct http2_guard *g)
{
    return atomic_load_explicit(&g->is_cut, memory_order_acquire);
}

static void cut_client(struct http2_guard *g, enum offence offence)
{
    static struct log_kind kind;
    int64_t now = clock_now_ns();
    atomic_store_explicit(&g->is_cut, true, memory_order_release);
    pthread_mutex_lock(&hosts_lock);
    bool is_due = is_line_due(&host_of(&g->from, now)->cut, now);
    pthread_mutex_unlock(&hosts_lock);
    if (is_due)
        log_write_few(
            &kind, LOG_LEVEL_WARN,
            "the client at %s is cut off: %s; the log names its host at most once a minute",
            g->from.text, texts[offence]);
}

/* Adds a stream, unless the client has too many streams open. */
static enum offence open_stream(struct http2_guard *g, uint32_t stream)
{
    if (stream <= g->newest)
        return NONE; /* these HEADERS are the trailers of an open stream */
    g->newest = stream;
    atomic_store_explicit(&g->has_opened, true, memory_order_relaxed);
    pthread_mutex_lock(&g->lock);
    bool has_room = g->n_open < HTTP2_MAX_OPEN;
    if (has_room)
        g->open[g->n_open++] = stream;
    pthread_mutex_unlock(&g->lock);
    return has_room ? NONE : STREAMS;
}

/* Removes a stream; false: it was not open. Searches from the newest stream, which is the most
 * likely one. The caller holds the lock. */
static bool close_stream(struct http2_guard *g, uint32_t stream)
{
    for (int i = g->n_open - 1; i >= 0; i--)
        if (g->open[i] == stream) {
            g->open[i] = g->open[--g->n_open];
            return true;
        }
    return false;
}

/* Counts a reset. A server's reset counts only if the stream was still open: servers with gRPC also
 * send a reset after their trailers if the client has not finished the call. */
static enum offence reset_stream(struct http2_guard *g, uint32_t stream, bool is_client)
{
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&g->lock);
    bool was_open = close_stream(g, stream);
    int n = was_open || is_client ? rate_add(&g->resets, now) : 0;
    pthread_mutex_unlock(&g->lock);
    if (n == 0)
        return NONE;
    pthread_mutex_lock(&hosts_lock);
    int n_host = rate_add(&host_of(&g->from, now)->resets, now);
    pthread_mutex_unlock(&hosts_lock);
    if (n > HTTP2_MAX_RESETS)
        return RESETS;
    return n_host > HTTP2_MAX_HOST_RESETS && n > HTTP2_SPARED_RESETS ? HOST_RESETS : NONE;
}

/* Advances *at to the end of the preface, or of the bytes. */
static enum offence judge_preface(struct http2_guard *g, const uint8_t **at, const uint8_t *end)
{
    while (*at < end && g->n_preface < HTTP2_PREFACE_BYTES)
        if (*(*at)++ != http2_frames_preface[g->n_preface++])
            return FOREIGN;
    return NONE;
}

static enum offence judge_received(struct http2_guard *g, const struct http2_frame *f)
{
    if (!g->has_settings) {
        g->has_settings = true;
        return http2_frames_is_first(f) ? NONE : FOREIGN;
    }
    if (f->kind == HTTP2_RST_STREAM)
        return reset_stream(g, f->stream, true);
    if (f->kind != HTTP2_HEADERS && f->kind != HTTP2_CONTINUATION)
        return NONE;
    if (f->kind == HTTP2_HEADERS)
        g->block_bytes = g->block_frames = 0;
    g->block_bytes += f->bytes; /* cannot overflow: 16 frames of 24 bits */
    if (++g->block_frames > HTTP2_MAX_BLOCK_FRAMES || g->block_bytes > HTTP2_MAX_BLOCK_BYTES)
        return BLOCK;
    return f->kind == HTTP2_HEADERS ? open_stream(g, f->stream) : NONE;
}

bool http2_guard_received(struct http2_guard *g, const void *bytes, size_t n)
{
    const uint8_t *at = bytes, *end = at + n;
    struct http2_frame frame;
    enum offence offence;
    if (http2_guard_is_cut(g))
        return false;
    atomic_load_explicit(&g->received, memory_order_acquire);
    offence = judge_preface(g, &at, end);
    while (offence == NONE && http2_frames_next(&g->in, &at, end, &frame))
        offence = judge_received(g, &frame);
    atomic_store_explicit(&g->received, 1, memory_order_release);
    if (offence != NONE)
        cut_client(g, offence);
    return offence == NONE;
}

void http2_guard_sent(struct http2_guard *g, const void *bytes, size_t n)
{
    const uint8_t *at = bytes, *end = at + n;
    struct http2_frame frame;
    enum offence offence = NONE;
    atomic_load_explicit(&g->sent, memory_order_acquire);
    while (http2_frames_next(&g->out, &at, end, &frame)) {
        if (frame.kind == HTTP2_RST_STREAM && offence == NONE) {
            offence = reset_stream(g, frame.stream, false);
        } else if ((frame.kind == HTTP2_HEADERS || frame.kind == HTTP2_DATA) &&
                   frame.flags & HTTP2_END_STREAM) {
            pthread_mutex_lock(&g->lock);
            close_stream(g, frame.stream);
            pthread_mutex_unlock(&g->lock);
        }
    }
    atomic_store_explicit(&g->sent, 1, memory_order_release);
    if (offence != NONE && !http2_guard_is_cut(g))
        cut_client(g, offence);
}
