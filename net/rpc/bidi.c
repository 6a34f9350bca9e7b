/* net/rpc/bidi.c - see bidi.h. At most four operations are pending: receiving a message, sending a
 * message, the wait for the call's end, and a client's metadata or a server's status. A server's
 * metadata counts as its first message, so that no message overtakes it. */
#include "net/rpc/bidi.h"
#include "net/rpc/credentials.h"
#include "net/rpc/reasons.h"
#include <stdbool.h>
#include <stdio.h>

static void forget_call(struct bidi *b)
{
    grpc_call_unref(b->call);
    b->call = NULL;
    if (b->incoming)
        grpc_byte_buffer_destroy(b->incoming);
    b->incoming = NULL;
    grpc_metadata_array_destroy(&b->initial);
    grpc_metadata_array_destroy(&b->trailing);
    grpc_slice_unref(b->details);
}

void bidi_release(struct bidi *b)
{
    pthread_mutex_lock(b->lock);
    int last = --b->n_ops == 0;
    b->broken |= last;
    pthread_mutex_unlock(b->lock);
    if (!last)
        return;
    char reason[REASON_BYTES];
    grpc_runtime_slice_text(b->details, reason, sizeof reason);
    net_reason_explain(reason, sizeof reason);
    if (!reason[0])
        snprintf(reason, sizeof reason, "the server ended the stream (status %d)", (int)b->code);
    forget_call(b);
    b->handler->ended(b->ctx, reason);
}

static void start_op(struct bidi *b, struct grpc_runtime_op *op, const grpc_op *ops, size_t n)
{
    if (!grpc_runtime_op_start(op, b->call, ops, n))
        op->done(op, false);
}

static void on_meta(struct grpc_runtime_op *op, bool ok)
{
    bidi_release((struct bidi *)((char *)op - offsetof(struct bidi, meta_op)));
}

static void on_status(struct grpc_runtime_op *op, bool ok)
{
    bidi_release((struct bidi *)((char *)op - offsetof(struct bidi, status_op)));
}

static void on_end(struct grpc_runtime_op *op, bool ok)
{
    struct bidi *b = (struct bidi *)((char *)op - offsetof(struct bidi, end_op));
    pthread_mutex_lock(b->lock);
    b->broken = 1;
    pthread_mutex_unlock(b->lock);
    bidi_release(b);
}

static void on_sent(struct grpc_runtime_op *op, bool ok)
{
    struct bidi *b = (struct bidi *)((char *)op - offsetof(struct bidi, send_op));
    if (b->outgoing)
        grpc_byte_buffer_destroy(b->outgoing);
    if (b->handler->written)
        b->handler->written(b->ctx);
    pthread_mutex_lock(b->lock);
    b->sending = 0;
    b->broken |= !ok;
    pthread_mutex_unlock(b->lock);
    b->handler->sent(b->ctx);
    bidi_release(b);
}

static void on_recv(struct grpc_runtime_op *op, bool ok)
{
    struct bidi *b = (struct bidi *)((char *)op - offsetof(struct bidi, recv_op));
    grpc_byte_buffer *message = ok ? b->incoming : NULL;
    if (message)
        b->incoming = NULL;
    enum bidi_next next = b->handler->received(b->ctx, message);
    if (message && next == BIDI_READ) {
        bidi_read(b);
        return;
    }
    if (message && next == BIDI_CANCEL)
        grpc_call_cancel(b->call, NULL);
    bidi_release(b);
}

void bidi_init(struct bidi *b, const struct bidi_handler *handler, void *ctx, pthread_mutex_t *lock)
{
    *b = (struct bidi){.handler = handler, .ctx = ctx, .lock = lock};
    grpc_runtime_op_init(&b->meta_op, on_meta);
    grpc_runtime_op_init(&b->recv_op, on_recv);
    grpc_runtime_op_init(&b->send_op, on_sent);
    grpc_runtime_op_init(&b->end_op, on_end);
    grpc_runtime_op_init(&b->status_op, on_status);
}

static void set_call(struct bidi *b, grpc_call *call, int n_ops, bool sending)
{
    b->call = call;
    b->outgoing = NULL;
    grpc_metadata_array_init(&b->initial);
    grpc_metadata_array_init(&b->trailing);
    b->details = grpc_empty_slice();
    b->code = GRPC_STATUS_OK;
    pthread_mutex_lock(b->lock);
    b->n_ops = n_ops;
    b->sending = sending;
    b->broken = 0;
    pthread_mutex_unlock(b->lock);
}

void bidi_open(struct bidi *b, grpc_call *call)
{
    grpc_op meta[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                       {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    grpc_op end = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    struct credentials_metadata shown;
    credentials_metadata_init(&shown);
    /* three batches, and the operation that stands for the caller until bidi_release */
    set_call(b, call, 4, false);
    meta[0].data.send_initial_metadata.metadata = &shown.entry;
    meta[0].data.send_initial_metadata.count = shown.n;
    meta[1].data.recv_initial_metadata.recv_initial_metadata = &b->initial;
    end.data.recv_status_on_client.trailing_metadata = &b->trailing;
    end.data.recv_status_on_client.status = &b->code;
    end.data.recv_status_on_client.status_details = &b->details;
    start_op(b, &b->meta_op, meta, 2);
    credentials_metadata_free(&shown);
    start_op(b, &b->end_op, &end, 1);
    bidi_read(b);
}

void bidi_accept(struct bidi *b, grpc_call *call)
{
    grpc_op meta = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    grpc_op end = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    set_call(b, call, 4, 1);
    end.data.recv_close_on_server.cancelled = &b->cancelled;
    start_op(b, &b->end_op, &end, 1);
    start_op(b, &b->send_op, &meta, 1);
    bidi_read(b);
}

bool bidi_may_send(const struct bidi *b)
{
    return b->n_ops > 0 && !b->sending && !b->broken;
}

void bidi_begin_send(struct bidi *b)
{
    b->sending = 1;
    b->n_ops++;
}

void bidi_send(struct bidi *b, grpc_byte_buffer *message)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    b->outgoing = message;
    op.data.send_message.send_message = message;
    start_op(b, &b->send_op, &op, 1);
}

void bidi_begin_read(struct bidi *b)
{
    b->n_ops++;
}

void bidi_read(struct bidi *b)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &b->incoming;
    b->incoming = NULL;
    start_op(b, &b->recv_op, &op, 1);
}

void bidi_begin_close(struct bidi *b)
{
    b->broken = 1;
    b->n_ops++;
}

void bidi_close(struct bidi *b, grpc_status_code code, const char *text)
{
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op op = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op.data.send_status_from_server.status = code;
    op.data.send_status_from_server.status_details = &details;
    start_op(b, &b->status_op, &op, 1);
    grpc_slice_unref(details);
}
