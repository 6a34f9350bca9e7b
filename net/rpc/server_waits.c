/* net/rpc/server_waits.c - calls that stay open, and the end of all calls when the server stops. A
 * Coordinate call stays open until the handler answers, possibly much later, or the server stops. A
 * Watch call receives one message and stays open until the client ends it, since the state of a
 * running server never changes. */
#include "net/rpc/server_impl.h"
#include "net/wire/message.h"
#include <stdbool.h>
#include <stdlib.h>

static const char not_coordinating[] =
    "this server orders no checkpoints: it is not ps:0, or has no --checkpoint_dir";

/* Removes the waiting Coordinate call with this number (0: any call) from the list. Returns the
 * call; NULL: no such call. */
static struct server_call *remove_control(struct net_server *s, uint64_t number)
{
    pthread_mutex_lock(&s->lock);
    struct server_call **at = &s->controls;
    while (*at && number && (*at)->number != number)
        at = &(*at)->next;
    struct server_call *c = *at;
    if (c)
        *at = c->next;
    pthread_mutex_unlock(&s->lock);
    return c;
}

void net_server_control_reply(struct net_server *s, uint64_t call,
                              const struct net_control_reply *answer)
{
    uint8_t *out = NULL;
    size_t n = 0;
    struct server_call *c = remove_control(s, call);
    if (!c)
        return;
    if (!answer) {
        server_reply_refuse(c, not_coordinating);
        return;
    }
    if (answer->later[0]) {
        server_reply_send(c, NULL, 0, GRPC_STATUS_UNAVAILABLE, answer->later);
        return;
    }
    enum status st = message_control_reply_pack(answer, &out, &n);
    server_reply_send_packed(c, st, out, n);
}

static void on_control_closed(struct grpc_runtime_op *op, bool ok)
{
    struct server_call *c =
        (struct server_call *)((char *)op - offsetof(struct server_call, close_op));
    struct net_server *s = c->server;
    if (c->number && remove_control(s, c->number)) { /* the call ended before its answer */
        if (s->handler.control_closed)
            s->handler.control_closed(s->handler.ctx, c->number);
        server_reply_op_done(c);
    }
    server_reply_op_done(c);
}

/* Watches for the end of a call that the handler has received, so that the handler first receives
 * the call and then its end. */
static void watch_control(struct server_call *c)
{
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close.data.recv_close_on_server.cancelled = &c->cancelled;
    grpc_runtime_op_init(&c->close_op, on_control_closed);
    if (!grpc_runtime_op_start(&c->close_op, c->call, &close, 1))
        on_control_closed(&c->close_op, false);
}

static void accept_control(struct server_call *c, const uint8_t *data, size_t bytes)
{
    struct net_server *s = c->server;
    struct net_control control;
    char why[MESSAGE_WHY_BYTES] = "out of memory";
    if (!s->handler.control) {
        server_reply_refuse(c, not_coordinating);
        return;
    }
    enum status st = message_control_unpack(data, bytes, &control, why);
    if (st == ST_NOMEM) { /* a refusal would end the caller's process, so the call only fails */
        server_reply_send_packed(c, st, NULL, 0);
        return;
    }
    if (st != ST_OK) {
        server_reply_refuse(c, why);
        return;
    }
    pthread_mutex_lock(&s->lock);
    bool stopping = s->stopping;
    if (!stopping) {
        c->number = ++s->n_controls;
        c->next = s->controls;
        s->controls = c;
    }
    uint64_t number = s->n_controls;
    pthread_mutex_unlock(&s->lock);
    if (stopping)
        server_reply_send(c, NULL, 0, GRPC_STATUS_UNAVAILABLE, "the server is stopping");
    else
        s->handler.control(s->handler.ctx, s, &control, number);
    message_control_free(&control);
}

void server_waits_serve_control(struct server_call *c, const uint8_t *data, size_t bytes)
{
    atomic_store(&c->n_ops, 2);
    accept_control(c, data, bytes);
    watch_control(c);
}

static void watch_op_done(struct server_call *c)
{
    if (atomic_fetch_sub_explicit(&c->n_ops, 1, memory_order_acq_rel) != 1)
        return;
    struct net_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->watches = c->next;
    if (c->next)
        c->next->prev = c->prev;
    pthread_mutex_unlock(&s->lock);
    server_reply_free_call(c);
}

static void on_watch_sent(struct grpc_runtime_op *op, bool ok)
{
    watch_op_done((struct server_call *)op);
}

static void on_watch_closed(struct grpc_runtime_op *op, bool ok)
{
    watch_op_done((struct server_call *)((char *)op - offsetof(struct server_call, close_op)));
}

void server_waits_watch(struct server_call *c, uint8_t *data, size_t bytes)
{
    struct net_server *s = c->server;
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)data, bytes);
    c->outgoing = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    free(data);
    atomic_store(&c->n_ops, 2);
    grpc_runtime_op_init(&c->op, on_watch_sent);
    grpc_runtime_op_init(&c->close_op, on_watch_closed);
    unauthenticated_calls_enter(&s->unauthenticated, &c->unauthenticated, c->call);
    pthread_mutex_lock(&s->lock);
    c->next = s->watches;
    if (c->next)
        c->next->prev = c;
    s->watches = c;
    c->stop_seen = 0;
    bool stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    if (stopping)
        grpc_call_cancel(c->call, NULL);
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close.data.recv_close_on_server.cancelled = &c->cancelled;
    grpc_op send = {.op = GRPC_OP_SEND_MESSAGE};
    send.data.send_message.send_message = c->outgoing;
    if (!grpc_runtime_op_start(&c->op, c->call, &send, 1))
        watch_op_done(c);
    if (!grpc_runtime_op_start(&c->close_op, c->call, &close, 1))
        watch_op_done(c);
}

/* Ends streams and watches one by one, since no lock may be held while gRPC is called. */
void server_waits_end_calls(struct net_server *s)
{
    for (;;) {
        pthread_mutex_lock(&s->lock);
        struct net_stream *stream = net_stream_next_to_stop(s);
        struct server_call *watch = s->watches;
        while (watch && watch->stop_seen)
            watch = watch->next;
        grpc_call *call = NULL;
        if (watch) {
            watch->stop_seen = 1;
            call = watch->call;
            grpc_call_ref(call);
        }
        pthread_mutex_unlock(&s->lock);
        struct server_call *control = remove_control(s, 0);
        if (control)
            server_reply_send(control, NULL, 0, GRPC_STATUS_UNAVAILABLE, "the server is stopping");
        if (stream) {
            net_stream_end(stream, GRPC_STATUS_UNAVAILABLE, "the server is stopping");
            net_stream_unref(stream);
        }
        if (call) {
            grpc_call_cancel(call, NULL);
            grpc_call_unref(call);
        }
        if (!stream && !call && !control)
            return;
    }
}
