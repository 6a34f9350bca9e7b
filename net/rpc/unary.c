/* net/rpc/unary.c - see unary.h. */
#include "net/rpc/unary.h"
#include "net/rpc/channel.h"
#include "net/rpc/unary_batch.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct net_unary {
    struct net_channel *channel;
    grpc_completion_queue *queue;
    pthread_mutex_t lock; /* guards the fields below */
    grpc_call *call;      /* active call; NULL: none */
    bool cancelled;       /* net_unary_cancel was called since the last call ended */
};

enum status net_unary_create(const char *addr, int max_reply_bytes, struct net_unary **out)
{
    struct net_unary *u = calloc(1, sizeof *u);
    if (!u)
        return ST_NOMEM;
    grpc_runtime_init();
    pthread_mutex_init(&u->lock, NULL);
    u->queue = grpc_completion_queue_create_for_pluck(NULL);
    enum status st = net_channel_create(addr, max_reply_bytes, &u->channel);
    if (st != ST_OK) {
        net_unary_destroy(u);
        return st;
    }
    *out = u;
    return ST_OK;
}

void net_unary_destroy(struct net_unary *u)
{
    if (!u)
        return;
    net_channel_destroy(u->channel);
    grpc_completion_queue_shutdown(u->queue);
    grpc_completion_queue_destroy(u->queue);
    pthread_mutex_destroy(&u->lock);
    free(u);
    grpc_runtime_shutdown();
}

/* Makes the call and waits until it has ended, which happens at its deadline at the latest. */
static void run_call(struct net_unary *u, grpc_call *call, const struct net_unary_bytes *request,
                     struct unary_batch *b)
{
    grpc_op ops[UNARY_BATCH_OPS];
    unary_batch_init(b, request->data, request->n, ops);
    if (grpc_call_start_batch(call, ops, UNARY_BATCH_OPS, b, NULL) == GRPC_CALL_OK)
        grpc_completion_queue_pluck(u->queue, b, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
}

static enum status status_of(grpc_status_code code)
{
    switch (code) {
    case GRPC_STATUS_CANCELLED:
        return ST_CANCELLED;
    case GRPC_STATUS_DEADLINE_EXCEEDED:
        return ST_DEADLINE;
    case GRPC_STATUS_PERMISSION_DENIED:
    case GRPC_STATUS_UNAUTHENTICATED:
        return ST_REFUSED;
    case GRPC_STATUS_INVALID_ARGUMENT:
    case GRPC_STATUS_UNIMPLEMENTED:
        return ST_PROTOCOL;
    default:
        return ST_UNAVAILABLE;
    }
}

static grpc_call *begin(struct net_unary *u, const char *method, int64_t deadline_ms)
{
    grpc_call *call =
        net_channel_call(u->channel, u->queue, method, deadline_ms > 0 ? deadline_ms : 1);
    pthread_mutex_lock(&u->lock);
    int go = !u->cancelled;
    u->cancelled = 0;
    u->call = go ? call : NULL;
    pthread_mutex_unlock(&u->lock);
    if (!go)
        grpc_call_unref(call);
    return go ? call : NULL;
}

static void end(struct net_unary *u, grpc_call *call)
{
    pthread_mutex_lock(&u->lock);
    u->call = NULL;
    u->cancelled = 0;
    pthread_mutex_unlock(&u->lock);
    grpc_call_unref(call);
}

enum status net_unary_call(struct net_unary *u, const char *method,
                           const struct net_unary_bytes *request, int64_t deadline_ms,
                           struct net_unary_bytes *reply, char why[MESSAGE_WHY_BYTES])
{
    enum status st = ST_UNAVAILABLE;
    char details[MESSAGE_WHY_BYTES];
    grpc_call *call = begin(u, method, deadline_ms);
    if (!call) {
        snprintf(why, MESSAGE_WHY_BYTES, "cancelled");
        return ST_CANCELLED;
    }
    struct unary_batch b;
    run_call(u, call, request, &b);
    end(u, call);
    unary_batch_end(&b, details, sizeof details);
    if (b.code != GRPC_STATUS_OK)
        st = status_of(b.code);
    else if (b.incoming)
        st = grpc_runtime_bytes_of(b.incoming, &reply->data, &reply->n);
    if (st != ST_OK)
        snprintf(why, MESSAGE_WHY_BYTES, "%s", details[0] ? details : "no answer");
    if (b.incoming)
        grpc_byte_buffer_destroy(b.incoming);
    return st;
}

void net_unary_cancel(struct net_unary *u)
{
    pthread_mutex_lock(&u->lock);
    u->cancelled = 1;
    grpc_call *call = u->call;
    if (call)
        grpc_call_ref(call);
    pthread_mutex_unlock(&u->lock);
    if (!call)
        return;
    grpc_call_cancel(call, NULL);
    grpc_call_unref(call);
}

enum status net_unary_end(struct net_unary_messages *m, enum status st,
                          char why[CONTROL_TEXT_BYTES])
{
    if (st != ST_OK)
        snprintf(why, CONTROL_TEXT_BYTES, "%.*s", CONTROL_TEXT_BYTES - 1, m->why);
    free(m->request.data);
    free(m->reply.data);
    return st == ST_INVALID ? ST_PROTOCOL : st;
}
