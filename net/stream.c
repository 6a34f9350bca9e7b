/* net/stream.c - one Exchange call on the server; see server.h.
 *
 * Up to four operations are under way on a call: one message coming in, one going out, the wait
 * for the call's end, and at last the status. `n_ops` counts them; when it reaches zero nothing
 * more can happen, the handler is told and the stream goes. advance() looks at the state and starts
 * the one thing that should come next; whoever changes the state calls it.
 *
 * While a message is handled, its answers gather to few frames (`corked`).
 *
 * A peer that asks and does not read is not read from either: above STREAM_MAX_QUEUE answers the
 * next message is not fetched until half of them have gone out. And what waits for it is bounded
 * (net_stream_set_limit): a peer that has one request per chunk under way cannot come so far.
 *
 * Where the member and this server read each other's memory (shared.h), payloads cross by
 * reference. What the member sends so lies in its segment, which the stream looks up by
 * incarnation. What it is sent so is lent: the stream holds a reference to each chunk's last answer
 * until the next one, for by its next request the member says that it has read it. */
#include "base/log.h"
#include "base/trace.h"
#include "net/outq.h"
#include "net/server_impl.h"
#include "net/socket.h"
#include <grpc/support/alloc.h>
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
    struct net_stream *next, *prev; /* the server's list and its lock */
    int stop_seen;                  /* likewise */

    struct net_guest guest; /* until a member speaks over it */
    _Atomic int trusted;

    struct net_op recv_op, send_op, close_op, status_op;
    grpc_byte_buffer *incoming, *outgoing;
    int cancelled;
    int local; /* the peer is on this host */
    struct net_span *spans;
    size_t spans_room;
    struct net_frame_head last_head;              /* of the frame being handled */
    struct net_shared *segment;                   /* of the member in `lender`; NULL: none known */
    struct net_frame_head lender;                 /* likewise */
    int64_t send_begin_ns, send_chunk, send_step; /* of the frame going out, for the trace */
    int send_member;                              /* likewise */

    pthread_mutex_t lock; /* guards what follows */
    struct outq queue;
    struct net_out *spare; /* items to use again */
    int n_ops;
    long n_unanswered;
    size_t limit; /* bytes of payload that may wait in the queue */
    enum { READER_NONE, READER_ONE, READER_MIXED } reads; /* who reads this server's segment */
    struct net_frame_head reader;                         /* READER_ONE: that member */
    struct buf **lent;                                    /* by chunk: references, n_lent of them */
    size_t n_lent;
    int sending, half_closed, paused, corked, ending, dead;
    grpc_status_code code;
    char text[FRAME_MAX_WHY + 1];
};

static void advance(struct net_stream *s);

void net_stream_unref(struct net_stream *s)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (struct net_out *item = s->spare, *next; item; item = next) {
        next = item->next;
        free(item);
    }
    gpr_free(s->peer);
    free(s->spans);
    pthread_mutex_destroy(&s->lock);
    free(s);
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

static void drop_item(struct net_out *item)
{
    if (item->release)
        item->release(item->owner);
    free(item->why);
    free(item);
}

/* Nobody sends or reads any more. */
static void give_back(struct net_stream *s)
{
    for (size_t i = 0; i < s->n_lent; i++)
        buf_unref(s->lent[i]);
    free(s->lent);
    s->lent = NULL;
    s->n_lent = 0;
    if (s->segment)
        lenders_drop(&s->server->lenders, s->lender.member, s->segment);
    net_shared_unref(s->segment);
    s->segment = NULL;
}

static void drop_queue(struct net_stream *s)
{
    struct net_out *item;
    do {
        pthread_mutex_lock(&s->lock);
        item = outq_pop(&s->queue);
        pthread_mutex_unlock(&s->lock);
        if (item)
            drop_item(item);
    } while (item);
}

static void finish(struct net_stream *s)
{
    struct net_server *server = s->server;
    list_remove(s);
    server->handler.stream_closed(server->handler.ctx, s);
    net_stream_trust(s, 0);
    net_guests_leave(&server->guests, &s->guest);
    drop_queue(s);
    give_back(s);
    grpc_call_unref(s->call);
    net_stream_unref(s);
    net_server_call_gone(server);
}

static void op_finished(struct net_stream *s)
{
    pthread_mutex_lock(&s->lock);
    int last = --s->n_ops == 0;
    if (last)
        s->dead = 1;
    pthread_mutex_unlock(&s->lock);
    if (last)
        finish(s);
}

static void start_op(struct net_stream *s, struct net_op *op, const grpc_op *ops, size_t n)
{
    if (!net_op_start(op, s->call, ops, n))
        op->done(op, 0);
}

static void start_recv(struct net_stream *s)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &s->incoming;
    s->incoming = NULL;
    start_op(s, &s->recv_op, &op, 1);
}

static void start_status(struct net_stream *s)
{
    grpc_slice text = grpc_slice_from_copied_string(s->text);
    grpc_op op = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op.data.send_status_from_server.status = s->code;
    op.data.send_status_from_server.status_details = &text;
    start_op(s, &s->status_op, &op, 1);
    grpc_slice_unref(text);
}

static void start_send(struct net_stream *s, struct outq_batch *batch)
{
    s->send_begin_ns = trace_begin();
    s->send_chunk = batch->items[0]->chunk;
    s->send_step = (int64_t)batch->items[0]->step;
    s->send_member = (int)batch->items[0]->head.member;
    s->outgoing = outq_frame(batch);
    for (int i = 0; i < batch->n; i++)
        free(batch->items[i]->why);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < batch->n; i++) {
        batch->items[i]->next = s->spare;
        s->spare = batch->items[i];
    }
    pthread_mutex_unlock(&s->lock);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = s->outgoing;
    start_op(s, &s->send_op, &op, 1);
}

static void advance(struct net_stream *s)
{
    struct outq_batch batch = {.n = 0};
    int resume = 0, end = 0;
    pthread_mutex_lock(&s->lock);
    if (s->paused && !s->ending && !s->dead && s->queue.n <= STREAM_MAX_QUEUE / 2) {
        s->paused = 0;
        s->n_ops++;
        resume = 1;
    }
    int gather = s->corked && s->queue.bytes < OUTQ_EAGER_BYTES;
    if (!s->sending && !s->dead && !gather) {
        if (outq_take(&s->queue, &batch)) {
            s->sending = 1;
            s->n_ops++;
        } else if (s->ending || (s->half_closed && s->n_unanswered <= 0)) {
            s->ending = s->dead = end = 1;
            s->n_ops++;
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (resume)
        start_recv(s);
    if (batch.n)
        start_send(s, &batch);
    if (end)
        start_status(s);
}

static void on_sent(struct net_op *op, int ok)
{
    struct net_stream *s = (struct net_stream *)((char *)op - offsetof(struct net_stream, send_op));
    trace_span(s->send_begin_ns, TRACE_SEND, "send frame", s->send_member, s->send_chunk,
               s->send_step);
    grpc_byte_buffer_destroy(s->outgoing);
    pthread_mutex_lock(&s->lock);
    s->sending = 0;
    if (!ok)
        s->dead = 1;
    pthread_mutex_unlock(&s->lock);
    advance(s);
    op_finished(s);
}

static void on_status(struct net_op *op, int ok)
{
    op_finished((struct net_stream *)((char *)op - offsetof(struct net_stream, status_op)));
}

static void on_close(struct net_op *op, int ok)
{
    struct net_stream *s =
        (struct net_stream *)((char *)op - offsetof(struct net_stream, close_op));
    pthread_mutex_lock(&s->lock);
    s->dead = 1;
    pthread_mutex_unlock(&s->lock);
    op_finished(s);
}

static int same_member(const struct net_frame_head *a, const struct net_frame_head *b)
{
    return a->member == b->member && a->incarnation == b->incarnation;
}

/* The sender reads this server's segment. If two do on one stream, neither is lent anything more:
 * an answer to one says nothing of what the other has read. Under the lock. */
static void note_reader(struct net_stream *s, const struct net_frame_head *head)
{
    if (s->reads == READER_NONE) {
        s->reads = READER_ONE;
        s->reader = *head;
    } else if (!same_member(head, &s->reader)) {
        s->reads = READER_MIXED;
    }
}

/* Finds the payload in the sender's segment; 0 if there is none: the stream ends. */
static int find_payload(struct net_stream *s, const struct net_frame_head *head,
                        struct net_piece *piece, struct net_span *span)
{
    static const char outside[] = "shared_offset and shared_bytes do not lie in the segment";
    if (!s->segment || !same_member(head, &s->lender)) {
        net_shared_unref(s->segment);
        s->segment = lenders_find(&s->server->lenders, head->member, head->incarnation);
        s->lender = *head;
    }
    if (!s->segment) { /* by mishap: the member joined twice at once */
        net_stream_end(s, GRPC_STATUS_FAILED_PRECONDITION,
                       "no segment of this member is open here; join again");
        return 0;
    }
    if (payload_find(s->segment, piece, span))
        return 1;
    LOG_W("piece from member %u at %s refused, its stream ends: %s", head->member, s->peer,
          outside);
    net_stream_fail(s, head, piece->chunk, outside);
    return 0;
}

static enum status on_piece(void *ctx, const struct net_frame_head *head,
                            const struct net_piece *piece)
{
    struct net_stream *s = ctx;
    struct net_piece there;
    struct net_span span;
    s->last_head = *head;
    pthread_mutex_lock(&s->lock);
    int over = s->ending || s->dead;
    s->n_unanswered++;
    if (piece->shared)
        note_reader(s, head);
    pthread_mutex_unlock(&s->lock);
    if (over)
        return ST_CANCELLED;
    int64_t begin = trace_begin();
    if (piece->shared_offset || (s->local && piece->crc32c == 0 && piece->payload.bytes > 0)) {
        there = *piece;
        there.unsummed = 1;
        piece = &there;
        if (there.shared_offset && !find_payload(s, head, &there, &span))
            return ST_CANCELLED;
    }
    s->server->handler.piece(s->server->handler.ctx, s, head, piece);
    trace_end(begin, TRACE_RECEIVE, "receive chunk", NULL, piece->chunk, (int64_t)piece->step);
    return ST_OK;
}

static void handle_message(struct net_stream *s)
{
    char why[256] = "out of memory";
    size_t n = 0;
    s->last_head = (struct net_frame_head){0, 0, 0};
    pthread_mutex_lock(&s->lock);
    s->corked = 1;
    pthread_mutex_unlock(&s->lock);
    enum status st = net_spans_of(s->incoming, &s->spans, &s->spans_room, &n);
    if (st == ST_OK)
        st = frame_decode(s->spans, n, &s->last_head, on_piece, s, why, sizeof why);
    grpc_byte_buffer_destroy(s->incoming);
    pthread_mutex_lock(&s->lock);
    s->corked = 0;
    pthread_mutex_unlock(&s->lock);
    if (st == ST_OK || st == ST_CANCELLED)
        return;
    LOG_W("frame from %s refused, its stream ends: %s", s->peer, why);
    net_stream_fail(s, &s->last_head, 0, why);
}

static void on_recv(struct net_op *op, int ok)
{
    struct net_stream *s = (struct net_stream *)((char *)op - offsetof(struct net_stream, recv_op));
    int again = 0;
    if (ok && s->incoming) {
        handle_message(s);
        pthread_mutex_lock(&s->lock);
        s->paused = s->queue.n > STREAM_MAX_QUEUE;
        again = !s->paused && !s->ending && !s->dead;
        pthread_mutex_unlock(&s->lock);
    } else {
        pthread_mutex_lock(&s->lock);
        s->half_closed = 1;
        pthread_mutex_unlock(&s->lock);
    }
    advance(s);
    if (again)
        start_recv(s);
    else
        op_finished(s);
}

void net_stream_open(struct net_server *server, grpc_call *call)
{
    struct net_stream *s = calloc(1, sizeof *s);
    if (!s) {
        LOG_E("a stream from a new peer was dropped: out of memory");
        grpc_call_unref(call);
        net_server_call_gone(server);
        return;
    }
    s->server = server;
    s->call = call;
    s->peer = grpc_call_get_peer(call);
    s->local = net_socket_tune(s->peer);
    atomic_init(&s->refs, 2); /* the operations', and ours until the end of this function */
    s->n_ops = 3;
    s->code = GRPC_STATUS_OK;
    s->limit = STREAM_FIRST_LIMIT;
    pthread_mutex_init(&s->lock, NULL);
    outq_init(&s->queue);
    net_op_init(&s->recv_op, on_recv);
    net_op_init(&s->send_op, on_sent);
    net_op_init(&s->close_op, on_close);
    net_op_init(&s->status_op, on_status);
    pthread_mutex_lock(&server->lock);
    s->next = server->streams;
    if (s->next)
        s->next->prev = s;
    server->streams = s;
    s->stop_seen = server->stopping;
    int stopping = server->stopping;
    pthread_mutex_unlock(&server->lock);
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close.data.recv_close_on_server.cancelled = &s->cancelled;
    start_op(s, &s->close_op, &close, 1);
    grpc_op first = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    s->sending = 1; /* on_sent sees the first batch as a message that was sent */
    start_op(s, &s->send_op, &first, 1);
    net_guests_enter(&server->guests, &s->guest, call);
    start_recv(s);
    if (stopping)
        net_stream_end(s, GRPC_STATUS_UNAVAILABLE, "the server is stopping");
    net_stream_unref(s);
}

struct net_stream *net_stream_next_to_stop(struct net_server *server)
{
    for (struct net_stream *s = server->streams; s; s = s->next) {
        if (s->stop_seen)
            continue;
        s->stop_seen = 1;
        atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
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
    advance(s);
}

static void release_buf(void *owner)
{
    outq_take_back();
    buf_unref(owner);
}

static struct net_out *new_item(struct net_stream *s)
{
    pthread_mutex_lock(&s->lock);
    struct net_out *item = s->spare;
    if (item)
        s->spare = item->next;
    pthread_mutex_unlock(&s->lock);
    if (!item)
        item = malloc(sizeof *item);
    if (item)
        memset(item, 0, sizeof *item);
    return item;
}

/* What waits is let go first: a peer that does not read would hold it for ever. */
static void refuse_flood(struct net_stream *s, const struct net_frame_head *head)
{
    pthread_mutex_lock(&s->lock);
    size_t waits = s->queue.bytes;
    pthread_mutex_unlock(&s->lock);
    LOG_W("%s asks for more than it reads: %zu bytes wait for it; its stream ends", s->peer, waits);
    drop_queue(s);
    net_stream_fail(s, head, 0, "more was asked for than is read; one request per chunk at a time");
    grpc_call_cancel(s->call, NULL);
}

/* Fills in where the payload lies. It goes by reference if the member reads the segment in which it
 * lies; then *lent is what the chunk's place in s->lent held before, to be let go. Else the item
 * holds a reference. Under the lock. */
static void add_payload(struct net_stream *s, struct net_out *item, struct buf *payload,
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
            *lent = s->lent[item->chunk];
            s->lent[item->chunk] = buf_ref(payload);
            item->shared_offset = payload->shared + offset;
            item->shared_stamp = net_shared_stamp(payload->data);
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
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    struct buf *lent = NULL;
    struct net_out *item = new_item(s);
    if (!item) {
        LOG_E("an answer to %s was dropped and its stream ended: out of memory", s->peer);
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
    item->why = piece->why[0] ? strndup(piece->why, FRAME_MAX_WHY) : NULL;
    item->bytes = payload ? bytes : 0;
    pthread_mutex_lock(&s->lock);
    int drop = s->dead || s->ending;
    int full = !drop && bytes > 0 && s->queue.bytes + bytes > s->limit;
    s->n_unanswered -= piece->kind != PIECE_TAKEN;
    if (!drop && !full) {
        if (item->bytes > 0)
            add_payload(s, item, payload, offset, &lent);
        outq_put(&s->queue, item);
    }
    pthread_mutex_unlock(&s->lock);
    buf_unref(lent);
    if (drop || full)
        drop_item(item);
    if (full)
        refuse_flood(s, head);
    else
        advance(s);
    net_stream_unref(s);
}

void net_stream_set_limit(struct net_stream *s, size_t bytes)
{
    pthread_mutex_lock(&s->lock);
    s->limit = bytes;
    pthread_mutex_unlock(&s->lock);
}

void net_stream_trust(struct net_stream *s, int trusted)
{
    int change = trusted - atomic_exchange(&s->trusted, trusted);
    if (!change)
        return;
    if (trusted)
        net_guests_leave(&s->server->guests, &s->guest);
    else
        net_guests_return(&s->server->guests, &s->guest, s->call);
    net_server_trusts(s->server, change);
}

void net_stream_fail(struct net_stream *s, const struct net_frame_head *head, uint32_t chunk,
                     const char *why)
{
    struct net_piece piece = {.kind = PIECE_REFUSED, .chunk = chunk};
    const struct net_frame_head none = {0, 0, 0};
    snprintf(piece.why, sizeof piece.why, "%s", why);
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    net_stream_send(s, head ? head : &none, &piece, NULL, 0, 0);
    net_stream_end(s, GRPC_STATUS_INVALID_ARGUMENT, why);
    net_stream_unref(s);
}

int net_stream_is_local(const struct net_stream *s)
{
    return s->local;
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
