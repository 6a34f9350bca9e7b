/* net/rpc/stream.c - one Exchange call on the server; see server.h. advance_stream() examines the
 * state and starts the next operations of the call (bidi.h); every function that changes the state
 * calls it. When the call has ended, the handler is informed and the stream is freed. While a
 * message is processed, the answers to it are gathered into few frames (`corked`).
 *
 * The server does not read from a peer that sends requests and does not read answers: above
 * STREAM_MAX_QUEUE queued answers the next message is read only after half of them have been sent.
 * Queued payload is bounded (net_stream_set_limit); a peer with one request per chunk in flight
 * cannot reach the limit.
 *
 * If the member and this server read each other's memory (segment.h), payloads pass by reference.
 * The member's payloads are stored in its segment, which the stream finds by the member's
 * incarnation. The server's payloads are lent: the stream holds a reference to each chunk's last
 * answer until the chunk's next answer, because only the member's next request shows that the
 * member has read the last answer. */
#include "base/log.h"
#include "base/trace.h"
#include "net/rpc/bidi.h"
#include "net/rpc/send_queue.h"
#include "net/rpc/server_impl.h"
#include "net/security/security.h"
#include <grpc/support/alloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_MAX_QUEUE = 8192, STREAM_FIRST_LIMIT = 64 << 20 };

struct net_stream {
    struct net_server *server;
    grpc_call *call;
    char *peer;
    void *_Atomic user;
    _Atomic int refs;
    struct net_stream *next, *prev; /* links of the server's list, under its lock */
    bool stop_seen;                 /* net_server_stop has ended the stream; under the same lock */

    struct unauthenticated_call unauthenticated; /* used until a member sends a frame */
    _Atomic bool trusted;

    _Atomic bool local; /* the member and this server read each other's memory */
    struct net_span *spans;
    size_t spans_room;
    struct net_frame_head last_head; /* head of the frame that is being processed */
    /* segment of the member in `segment_owner`; NULL: it has none, or none was looked up */
    struct segment *segment;
    struct net_frame_head segment_owner; /* member whose segment was looked up last */
    /* start time, first chunk and its step of the frame that is being sent, for the trace */
    int64_t send_begin_ns, send_chunk, send_step;
    int send_member; /* member of that frame */

    pthread_mutex_t lock; /* guards the fields below */
    struct bidi bidi;
    struct send_queue queue;
    struct send_queue_item *spare; /* removed items, which are used again */
    long n_unanswered;
    size_t limit; /* bytes of payload that may wait in the queue */
    /* number of members that read this server's segment */
    enum { READER_NONE, READER_ONE, READER_MIXED } reads;
    struct net_frame_head reader; /* READER_ONE: the member that reads */
    struct buf **lent;            /* [n_lent] references to lent buffers, by chunk */
    size_t n_lent;
    bool half_closed, paused, corked, ending;
    grpc_status_code code;
    char text[FRAME_MAX_WHY + 1];
};

static void advance_stream(struct net_stream *s);

void net_stream_ref(struct net_stream *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

/* Frees the stream with its last reference; until then senders may use its call. */
void net_stream_unref(struct net_stream *s)
{
    struct net_server *server = s->server;
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    net_stream_trust(s, 0);
    unauthenticated_calls_leave(&server->unauthenticated, &s->unauthenticated);
    grpc_call_unref(s->call);
    for (struct send_queue_item *item = s->spare, *next; item; item = next) {
        next = item->next;
        free(item);
    }
    gpr_free(s->peer);
    free(s->spans);
    pthread_mutex_destroy(&s->lock);
    free(s);
    server_reply_call_gone(server);
}

static void list_remove(struct net_stream *s)
{
    pthread_mutex_lock(&s->server->lock);
    if (s->prev)
        s->prev->next = s->next;
    else
        s->server->streams = s->next;
    if (s->next)
        s->next->prev = s->prev;
    pthread_mutex_unlock(&s->server->lock);
}

static void drop_item(struct send_queue_item *item)
{
    if (item->release)
        item->release(item->owner);
    free(item->why);
    free(item);
}

/* Releases all lent buffers. No thread sends answers or reads requests any more. */
static void release_lent(struct net_stream *s)
{
    for (size_t i = 0; i < s->n_lent; i++)
        buf_unref(s->lent[i]);
    free(s->lent);
    s->lent = NULL;
    s->n_lent = 0;
    if (s->segment)
        peer_segments_drop(&s->server->peer_segments, s->segment_owner.member, s->segment);
    segment_unref(s->segment);
    s->segment = NULL;
}

static void drop_queue(struct net_stream *s)
{
    struct send_queue_item *item;
    do {
        pthread_mutex_lock(&s->lock);
        item = send_queue_pop(&s->queue);
        pthread_mutex_unlock(&s->lock);
        if (item)
            drop_item(item);
    } while (item);
}

static void on_ended(void *ctx, const char *reason)
{
    struct net_stream *s = ctx;
    struct net_server *server = s->server;
    list_remove(s);
    server->handler.stream_closed(server->handler.ctx, s);
    drop_queue(s);
    release_lent(s);
    net_stream_unref(s);
}

static void start_send(struct net_stream *s, struct send_queue_batch *batch)
{
    s->send_begin_ns = trace_begin();
    s->send_chunk = batch->items[0]->chunk;
    s->send_step = (int64_t)batch->items[0]->step;
    s->send_member = (int)batch->items[0]->head.member;
    grpc_byte_buffer *frame = send_queue_frame(batch);
    for (int i = 0; i < batch->n; i++)
        free(batch->items[i]->why);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < batch->n; i++) {
        batch->items[i]->next = s->spare;
        s->spare = batch->items[i];
    }
    pthread_mutex_unlock(&s->lock);
    bidi_send(&s->bidi, frame);
}

static void advance_stream(struct net_stream *s)
{
    struct send_queue_batch batch = {.n = 0};
    bool resume = false, end = false;
    pthread_mutex_lock(&s->lock);
    if (s->paused && !s->ending && !s->bidi.broken && s->queue.n <= STREAM_MAX_QUEUE / 2) {
        s->paused = false;
        bidi_begin_read(&s->bidi);
        resume = true;
    }
    bool gather = s->corked && s->queue.bytes < SEND_QUEUE_EAGER_BYTES;
    if (bidi_may_send(&s->bidi) && !gather) {
        if (send_queue_next(&s->queue, &batch)) {
            bidi_begin_send(&s->bidi);
        } else if (s->ending || (s->half_closed && s->n_unanswered <= 0)) {
            s->ending = end = true;
            bidi_begin_close(&s->bidi);
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (resume)
        bidi_read(&s->bidi);
    if (batch.n)
        start_send(s, &batch);
    if (end)
        bidi_close(&s->bidi, s->code, s->text);
}

static void on_written(void *ctx)
{
    const struct net_stream *s = ctx;
    trace_span(s->send_begin_ns, TRACE_SEND, "send frame", s->send_member, s->send_chunk,
               s->send_step);
}

static void on_sent(void *ctx)
{
    advance_stream(ctx);
}

static bool same_member(const struct net_frame_head *a, const struct net_frame_head *b)
{
    return a->member == b->member && a->incarnation == b->incarnation;
}

/* Notes that the sender reads this server's segment. If two members do so on one stream, no further
 * buffer is lent to either, since a request of one does not show that the other has read its
 * answer. The caller holds the lock. */
static void note_reader(struct net_stream *s, const struct net_frame_head *head)
{
    if (s->reads == READER_NONE) {
        s->reads = READER_ONE;
        s->reader = *head;
    } else if (!same_member(head, &s->reader)) {
        s->reads = READER_MIXED;
    }
}

/* Finds the sender's segment. Returns false if this process has not mapped it. */
static bool find_segment(struct net_stream *s, const struct net_frame_head *head)
{
    if (!s->segment || !same_member(head, &s->segment_owner)) {
        segment_unref(s->segment);
        s->segment = peer_segments_find(&s->server->peer_segments, head->member, head->incarnation);
        s->segment_owner = *head;
    }
    return s->segment != NULL;
}

/* Finds the payload in the sender's segment. Ends the stream and returns false if the segment or
 * the payload is missing. */
static bool find_payload(struct net_stream *s, const struct net_frame_head *head,
                         struct net_piece *piece, struct net_span *span)
{
    static const char outside[] = "shared_offset and shared_bytes are outside the segment";
    if (!find_segment(s, head)) { /* possible if the member joined two times at once */
        net_stream_end(s, GRPC_STATUS_FAILED_PRECONDITION,
                       "this server has no open segment of this member; join again");
        return false;
    }
    if (payload_find(s->segment, piece, span))
        return true;
    LOG_FEW("a piece from member %u at %s was refused, and its stream ends: %s", head->member,
            s->peer, outside);
    net_stream_fail(s, head, piece->chunk, outside);
    return false;
}

static enum status on_piece(void *ctx, const struct net_frame_head *head,
                            const struct net_piece *piece)
{
    struct net_stream *s = ctx;
    struct net_piece there;
    struct net_span span;
    s->last_head = *head;
    pthread_mutex_lock(&s->lock);
    bool over = s->ending || s->bidi.broken;
    s->n_unanswered++;
    if (piece->shared)
        note_reader(s, head);
    pthread_mutex_unlock(&s->lock);
    if (over)
        return ST_CANCELLED;
    int64_t begin = trace_begin();
    s->local = piece->shared && find_segment(s, head);
    bool is_unsummed = piece->crc32c == 0 && !net_stream_is_summed(s);
    if (piece->shared_offset || (is_unsummed && piece->payload.bytes > 0)) {
        there = *piece;
        there.unsummed = 1;
        piece = &there;
        if (there.shared_offset && !find_payload(s, head, &there, &span))
            return ST_CANCELLED;
        there.memory = there.shared_offset ? s->segment : NULL;
    }
    s->server->handler.piece(s->server->handler.ctx, s, head, piece);
    trace_end(begin, TRACE_RECEIVE, "receive chunk", NULL, piece->chunk, (int64_t)piece->step);
    return ST_OK;
}

static void handle_message(struct net_stream *s, grpc_byte_buffer *message)
{
    char why[256] = "out of memory";
    size_t n = 0;
    s->last_head = (struct net_frame_head){0, 0, 0};
    pthread_mutex_lock(&s->lock);
    s->corked = 1;
    pthread_mutex_unlock(&s->lock);
    enum status st = grpc_runtime_spans_of(message, &s->spans, &s->spans_room, &n);
    if (st == ST_OK)
        st = frame_decode(s->spans, n, &s->last_head, on_piece, s, why, sizeof why);
    grpc_byte_buffer_destroy(message);
    pthread_mutex_lock(&s->lock);
    s->corked = 0;
    pthread_mutex_unlock(&s->lock);
    if (st == ST_OK || st == ST_CANCELLED)
        return;
    LOG_FEW("a frame from %s was refused, and its stream ends: %s", s->peer, why);
    net_stream_fail(s, &s->last_head, 0, why);
}

static enum bidi_next on_received(void *ctx, grpc_byte_buffer *message)
{
    struct net_stream *s = ctx;
    if (message)
        handle_message(s, message);
    pthread_mutex_lock(&s->lock);
    s->half_closed = !message;
    s->paused = message && s->queue.n > STREAM_MAX_QUEUE;
    int again = !s->paused && !s->ending && !s->bidi.broken;
    pthread_mutex_unlock(&s->lock);
    advance_stream(s);
    return again ? BIDI_READ : BIDI_PAUSE;
}

static const struct bidi_handler stream_handler = {on_received, on_written, on_sent, on_ended};

void net_stream_open(struct net_server *server, grpc_call *call)
{
    struct net_stream *s = calloc(1, sizeof *s);
    if (!s) {
        LOG_FEW("a stream from a new peer was dropped: out of memory");
        grpc_call_unref(call);
        server_reply_call_gone(server);
        return;
    }
    s->server = server;
    s->call = call;
    grpc_call_ref(call); /* this reference belongs to the operations */
    s->peer = grpc_call_get_peer(call);
    atomic_init(&s->refs, 1);
    s->code = GRPC_STATUS_OK;
    s->limit = STREAM_FIRST_LIMIT;
    pthread_mutex_init(&s->lock, NULL);
    send_queue_init(&s->queue);
    bidi_init(&s->bidi, &stream_handler, s, &s->lock);
    pthread_mutex_lock(&server->lock);
    s->next = server->streams;
    if (s->next)
        s->next->prev = s;
    server->streams = s;
    s->stop_seen = server->stopping;
    bool stopping = server->stopping;
    pthread_mutex_unlock(&server->lock);
    unauthenticated_calls_enter(&server->unauthenticated, &s->unauthenticated, call);
    bidi_accept(&s->bidi, call);
    if (stopping)
        net_stream_end(s, GRPC_STATUS_UNAVAILABLE, "the server is stopping");
    bidi_release(&s->bidi);
}

struct net_stream *net_stream_next_to_stop(struct net_server *server)
{
    for (struct net_stream *s = server->streams; s; s = s->next) {
        if (s->stop_seen)
            continue;
        s->stop_seen = 1;
        net_stream_ref(s);
        return s;
    }
    return NULL;
}

void net_stream_end(struct net_stream *s, grpc_status_code code, const char *text)
{
    pthread_mutex_lock(&s->lock);
    if (!s->ending) {
        s->ending = 1;
        s->code = code;
        snprintf(s->text, sizeof s->text, "%s", text);
    }
    pthread_mutex_unlock(&s->lock);
    advance_stream(s);
}

static void release_buf(void *owner)
{
    send_queue_acquire();
    buf_unref(owner);
}

static struct send_queue_item *new_item(struct net_stream *s)
{
    pthread_mutex_lock(&s->lock);
    struct send_queue_item *item = s->spare;
    if (item)
        s->spare = item->next;
    pthread_mutex_unlock(&s->lock);
    if (!item)
        item = malloc(sizeof *item);
    if (item)
        memset(item, 0, sizeof *item);
    return item;
}

/* Ends the stream of a peer that does not read. The queued items are released first, because a peer
 * that does not read would keep them in memory without end. */
static void refuse_flood(struct net_stream *s, const struct net_frame_head *head)
{
    pthread_mutex_lock(&s->lock);
    size_t waits = s->queue.bytes;
    pthread_mutex_unlock(&s->lock);
    LOG_FEW(
        "%s requests answers faster than it reads them: %zu bytes are queued for this peer, and the server ends its stream",
        s->peer, waits);
    drop_queue(s);
    net_stream_fail(
        s, head, 0,
        "this peer requests answers faster than it reads them; send one request per chunk at a time");
    grpc_call_cancel(s->call, NULL);
}

/* Returns the buffer that is lent for the chunk. The reference then belongs to the caller, who
 * holds the lock. */
static struct buf *take_lent(struct net_stream *s, uint32_t chunk)
{
    struct buf *lent = chunk < s->n_lent ? s->lent[chunk] : NULL;
    if (lent)
        s->lent[chunk] = NULL;
    return lent;
}

/* Sets the position of the item's payload. The payload is passed by reference if the member reads
 * the segment that contains it. Then *lent receives the buffer that s->lent has held for this
 * chunk, and the caller must release it. Otherwise the item holds a reference to the payload. The
 * caller holds the lock. */
static void add_payload(struct net_stream *s, struct send_queue_item *item, struct buf *payload,
                        size_t offset, struct buf **lent)
{
    if (payload->shared && offset == 0 && s->reads == READER_ONE &&
        same_member(&item->head, &s->reader)) {
        size_t n = item->chunk + (size_t)1;
        if (n > s->n_lent) {
            n = n > 2 * s->n_lent ? n : 2 * s->n_lent;
            struct buf **more = realloc(s->lent, n * sizeof(struct buf *));
            for (; more && s->n_lent < n; s->n_lent++)
                more[s->n_lent] = NULL;
            s->lent = more ? more : s->lent;
        }
        if (item->chunk < s->n_lent) {
            *lent = take_lent(s, item->chunk);
            s->lent[item->chunk] = buf_ref(payload);
            item->shared_offset = payload->shared + offset;
            item->shared_stamp = segment_stamp(payload->data);
            item->crc32c = 0;
            return;
        }
    }
    item->data = (const char *)payload->data + offset;
    item->owner = buf_ref(payload);
    item->release = release_buf;
}

void net_stream_send(struct net_stream *s, const struct net_frame_head *head,
                     const struct net_piece *piece, struct buf *payload, size_t offset,
                     size_t bytes)
{
    net_stream_ref(s);
    struct buf *lent = NULL;
    struct send_queue_item *item = new_item(s);
    if (!item) {
        LOG_FEW("an answer to %s was dropped and its stream ended: out of memory", s->peer);
        net_stream_end(s, GRPC_STATUS_RESOURCE_EXHAUSTED, "the server is out of memory");
        net_stream_unref(s);
        return;
    }
    item->head = *head;
    item->kind = piece->kind;
    item->dtype = piece->dtype;
    item->chunk = piece->chunk;
    item->step = piece->step;
    item->weight = piece->weight;
    item->crc32c = piece->crc32c;
    item->samples = piece->samples;
    item->placed = piece->placed;
    item->rows = piece->rows;
    item->why = piece->why[0] ? strndup(piece->why, FRAME_MAX_WHY) : NULL;
    item->bytes = payload ? bytes : 0;
    pthread_mutex_lock(&s->lock);
    int drop = s->bidi.broken || s->ending;
    int full = !drop && bytes > 0 && s->queue.bytes + bytes > s->limit;
    s->n_unanswered -= piece->kind != PIECE_TAKEN;
    if (!drop && !full) {
        if (item->placed)
            lent = take_lent(s, item->chunk);
        if (item->bytes > 0)
            add_payload(s, item, payload, offset, &lent);
        send_queue_push(&s->queue, item);
    }
    pthread_mutex_unlock(&s->lock);
    buf_unref(lent);
    if (drop || full)
        drop_item(item);
    if (full)
        refuse_flood(s, head);
    else
        advance_stream(s);
    net_stream_unref(s);
}

void net_stream_set_limit(struct net_stream *s, size_t bytes)
{
    pthread_mutex_lock(&s->lock);
    s->limit = bytes;
    pthread_mutex_unlock(&s->lock);
}

void net_stream_trust(struct net_stream *s, bool trusted)
{
    int change = trusted - atomic_exchange(&s->trusted, trusted);
    if (!change)
        return;
    if (trusted)
        unauthenticated_calls_leave(&s->server->unauthenticated, &s->unauthenticated);
    else
        unauthenticated_calls_return(&s->server->unauthenticated, &s->unauthenticated, s->call);
    net_server_trusts(s->server, change);
}

void net_stream_fail(struct net_stream *s, const struct net_frame_head *head, uint32_t chunk,
                     const char *why)
{
    struct net_piece piece = {.kind = PIECE_REFUSED, .chunk = chunk};
    const struct net_frame_head none = {0, 0, 0};
    snprintf(piece.why, sizeof piece.why, "%s", why);
    net_stream_ref(s);
    net_stream_send(s, head ? head : &none, &piece, NULL, 0, 0);
    net_stream_end(s, GRPC_STATUS_INVALID_ARGUMENT, why);
    net_stream_unref(s);
}

void net_stream_close(struct net_stream *s, const char *why)
{
    net_stream_ref(s);
    net_stream_end(s, GRPC_STATUS_ABORTED, why);
    net_stream_unref(s);
}

bool net_stream_is_local(const struct net_stream *s)
{
    return s->local;
}

bool net_stream_is_summed(const struct net_stream *s)
{
    return !s->local && !security_has_tls();
}

const char *net_stream_peer(const struct net_stream *s)
{
    return s->peer;
}

void net_stream_set_user(struct net_stream *s, void *user)
{
    s->user = user;
}

void *net_stream_user(struct net_stream *s)
{
    return s->user;
}
