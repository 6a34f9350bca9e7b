/* net/unary.c - see unary.h. */
#include "net/unary.h"
#include "net/rt.h"
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct net_unary {
    grpc_channel *channel;
    grpc_completion_queue *queue;
    pthread_mutex_t lock; /* guards the two below */
    grpc_call *call;      /* under way; NULL: none */
    int cancelled;        /* since the last call ended */
};

enum status net_unary_create(const char *addr, int max_reply_bytes, struct net_unary **out)
{
    struct net_unary *u = calloc(1, sizeof *u);
    if (!u)
        return ST_NOMEM;
    net_rt_init();
    pthread_mutex_init(&u->lock, NULL);
    u->queue = grpc_completion_queue_create_for_pluck(NULL);
    u->channel = net_channel_create(addr, max_reply_bytes);
    if (!u->channel) {
        net_unary_destroy(u);
        return ST_NOMEM;
    }
    *out = u;
    return ST_OK;
}

void net_unary_destroy(struct net_unary *u)
{
    if (!u)
        return;
    if (u->channel)
        grpc_channel_destroy(u->channel);
    grpc_completion_queue_shutdown(u->queue);
    grpc_completion_queue_destroy(u->queue);
    pthread_mutex_destroy(&u->lock);
    free(u);
    net_rt_shutdown();
}

/* What a call brings back. */
struct result {
    grpc_byte_buffer *message;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details;
};

/* One batch, waited for: it ends at the call's deadline at the latest. */
static void run_call(struct net_unary *u, grpc_call *call, const struct net_unary_bytes *request,
                     struct result *r)
{
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)request->data, request->n);
    grpc_byte_buffer *out = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[1].data.send_message.send_message = out;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &r->initial;
    ops[4].data.recv_message.recv_message = &r->message;
    ops[5].data.recv_status_on_client.trailing_metadata = &r->trailing;
    ops[5].data.recv_status_on_client.status = &r->code;
    ops[5].data.recv_status_on_client.status_details = &r->details;
    grpc_slice_unref(slice);
    if (grpc_call_start_batch(call, ops, 6, r, NULL) == GRPC_CALL_OK)
        grpc_completion_queue_pluck(u->queue, r, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    else
        r->code = GRPC_STATUS_INTERNAL;
    grpc_byte_buffer_destroy(out);
}

static enum status status_of(grpc_status_code code)
{
    switch (code) {
    case GRPC_STATUS_CANCELLED:
        return ST_CANCELLED;
    case GRPC_STATUS_DEADLINE_EXCEEDED:
        return ST_DEADLINE;
    case GRPC_STATUS_INVALID_ARGUMENT:
    case GRPC_STATUS_UNIMPLEMENTED:
        return ST_PROTOCOL;
    default:
        return ST_UNAVAILABLE;
    }
}

static grpc_call *begin(struct net_unary *u, const char *method, int64_t deadline_ms)
{
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
    grpc_call *call =
        grpc_channel_create_call(u->channel, NULL, GRPC_PROPAGATE_DEFAULTS, u->queue,
                                 grpc_slice_from_static_string(method), NULL, deadline, NULL);
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
    struct result r = {.code = GRPC_STATUS_INTERNAL, .details = grpc_empty_slice()};
    grpc_metadata_array_init(&r.initial);
    grpc_metadata_array_init(&r.trailing);
    run_call(u, call, request, &r);
    end(u, call);
    net_status_text(r.details, details, sizeof details);
    if (r.code != GRPC_STATUS_OK)
        st = status_of(r.code);
    else if (r.message)
        st = net_bytes_of(r.message, &reply->data, &reply->n);
    if (st != ST_OK)
        snprintf(why, MESSAGE_WHY_BYTES, "%s", details[0] ? details : "no answer");
    if (r.message)
        grpc_byte_buffer_destroy(r.message);
    grpc_metadata_array_destroy(&r.initial);
    grpc_metadata_array_destroy(&r.trailing);
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
