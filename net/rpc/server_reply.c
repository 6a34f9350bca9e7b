/* net/rpc/server_reply.c - see server_impl.h: answers calls with one request and one reply.
 *
 * A peer may send many requests without reading any answer. So the bytes of all answers in flight
 * are limited: the server does not send an answer that would exceed the limit, and ends calls whose
 * peers have not read their answers for a while. */
#include "base/clock.h"
#include "base/log.h"
#include "net/rpc/server_impl.h"
#include <grpc/support/alloc.h>
#include <stdbool.h>
#include <stdlib.h>

enum { REPLY_STALE_MS = 5000, REPLY_END_AT_ONCE = 16, REPLY_COST_BYTES = 4096 };

void server_reply_call_gone(struct net_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->n_calls--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Subtracts an answer that has been sent from the answers in flight. */
static void forget_reply(struct server_call *c)
{
    struct net_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    if (c->reply_bytes > 0) {
        s->reply_bytes -= c->reply_bytes;
        c->reply_bytes = 0;
        if (c->prev)
            c->prev->next = c->next;
        else
            s->replies = c->next;
        if (c->next)
            c->next->prev = c->prev;
    }
    pthread_mutex_unlock(&s->lock);
}

void server_reply_free_call(struct server_call *c)
{
    struct net_server *s = c->server;
    forget_reply(c);
    unauthenticated_calls_leave(&s->unauthenticated, &c->unauthenticated);
    if (c->incoming)
        grpc_byte_buffer_destroy(c->incoming);
    if (c->outgoing)
        grpc_byte_buffer_destroy(c->outgoing);
    if (c->call)
        grpc_call_unref(c->call);
    grpc_call_details_destroy(&c->details);
    grpc_metadata_array_destroy(&c->metadata);
    free(c);
    server_reply_call_gone(s);
}

void server_reply_op_done(struct server_call *c)
{
    if (atomic_fetch_sub_explicit(&c->n_ops, 1, memory_order_acq_rel) == 1)
        server_reply_free_call(c);
}

static void reply_over(struct server_call *c)
{
    if (atomic_load(&c->n_ops) > 0)
        server_reply_op_done(c);
    else
        server_reply_free_call(c);
}

void server_reply_done(struct grpc_runtime_op *op, bool ok)
{
    reply_over((struct server_call *)op);
}

/* Lists, with references, the calls whose answers have been in flight for too long. Returns the
 * number of these calls. The caller holds the lock. */
static int stale_replies(struct net_server *s, grpc_call *list[REPLY_END_AT_ONCE])
{
    int64_t before_ns = clock_deadline_ns(-REPLY_STALE_MS);
    int n = 0;
    for (struct server_call *c = s->replies; c && n < REPLY_END_AT_ONCE; c = c->next) {
        if (c->reply_ns < before_ns) {
            grpc_call_ref(c->call);
            list[n++] = c->call;
        }
    }
    return n;
}

bool server_reply_count(struct server_call *c, size_t bytes)
{
    struct net_server *s = c->server;
    grpc_call *stale[REPLY_END_AT_ONCE];
    int n = 0;
    pthread_mutex_lock(&s->lock);
    bool fits = !s->replies || s->reply_bytes + bytes + REPLY_COST_BYTES <= s->max_reply_bytes;
    if (fits) {
        c->reply_bytes = bytes + REPLY_COST_BYTES;
        c->reply_ns = clock_now_ns();
        s->reply_bytes += c->reply_bytes;
        c->prev = NULL;
        c->next = s->replies;
        if (c->next)
            c->next->prev = c;
        s->replies = c;
    } else {
        n = stale_replies(s, stale);
    }
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < n; i++) {
        grpc_call_cancel(stale[i], NULL);
        grpc_call_unref(stale[i]);
    }
    if (!fits)
        grpc_call_cancel_with_status(c->call, GRPC_STATUS_UNAVAILABLE,
                                     "the server holds too many answers that clients have not read",
                                     NULL);
    return fits;
}

void server_reply_send(struct server_call *c, uint8_t *data, size_t bytes, grpc_status_code code,
                       const char *text)
{
    grpc_op ops[3] = {{.op = GRPC_OP_RECV_CLOSE_ON_SERVER},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_SEND_MESSAGE}};
    if (!server_reply_count(c, data ? bytes : 0)) {
        free(data);
        data = NULL;
    }
    grpc_slice details = grpc_slice_from_copied_string(text);
    ops[0].data.recv_close_on_server.cancelled = &c->cancelled;
    ops[1].data.send_status_from_server.status = code;
    ops[1].data.send_status_from_server.status_details = &details;
    if (data) {
        grpc_slice slice = grpc_slice_new(data, bytes, free);
        c->outgoing = grpc_raw_byte_buffer_create(&slice, 1);
        grpc_slice_unref(slice);
        ops[2].data.send_message.send_message = c->outgoing;
    }
    grpc_runtime_op_init(&c->op, server_reply_done);
    bool skip = atomic_load(&c->n_ops) > 0; /* Coordinate: close_op receives the call's end */
    bool ok = grpc_runtime_op_start(&c->op, c->call, ops + skip, (data ? 3 : 2) - skip);
    grpc_slice_unref(details);
    if (!ok)
        reply_over(c);
}

void server_reply_send_packed(struct server_call *c, enum status st, uint8_t *data, size_t n)
{
    if (st == ST_OK)
        server_reply_send(c, data, n, GRPC_STATUS_OK, "");
    else
        server_reply_send(c, NULL, 0, GRPC_STATUS_RESOURCE_EXHAUSTED, status_text(st));
}

void server_reply_refuse(struct server_call *c, const char *why)
{
    static struct log_kind kinds[N_METHODS];
    char *peer = grpc_call_get_peer(c->call);
    log_write_few(&kinds[c->method], LOG_LEVEL_WARN, "%s from %s refused: %s",
                  server_method_paths[c->method], peer, why);
    gpr_free(peer);
    server_reply_send(c, NULL, 0, GRPC_STATUS_INVALID_ARGUMENT, why);
}
