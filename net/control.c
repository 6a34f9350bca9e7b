/* net/control.c - see control.h. The caller's own thread waits for its call, on a queue that serves
 * nobody else. */
#include "net/control.h"
#include "net/message.h"
#include "net/rt.h"
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct net_control_client {
    grpc_channel *channel;
    grpc_completion_queue *queue;
    pthread_mutex_t lock; /* guards the two below */
    grpc_call *call;      /* under way; NULL: none */
    int cancelled;        /* since the last call ended */
};

enum status net_control_create(const char *addr, struct net_control_client **out)
{
    struct net_control_client *c = calloc(1, sizeof *c);
    if (!c)
        return ST_NOMEM;
    net_rt_init();
    pthread_mutex_init(&c->lock, NULL);
    c->queue = grpc_completion_queue_create_for_pluck(NULL);
    c->channel = net_channel_create(addr);
    if (!c->channel) {
        net_control_destroy(c);
        return ST_NOMEM;
    }
    *out = c;
    return ST_OK;
}

void net_control_destroy(struct net_control_client *c)
{
    if (!c)
        return;
    if (c->channel)
        grpc_channel_destroy(c->channel);
    grpc_completion_queue_shutdown(c->queue);
    grpc_completion_queue_destroy(c->queue);
    pthread_mutex_destroy(&c->lock);
    free(c);
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
static void run_call(struct net_control_client *c, grpc_call *call, const uint8_t *data,
                     size_t bytes, struct result *r)
{
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)data, bytes);
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
        grpc_completion_queue_pluck(c->queue, r, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    else
        r->code = GRPC_STATUS_INTERNAL;
    grpc_byte_buffer_destroy(out);
}

static enum status read_result(const struct result *r, const char *details,
                               struct net_control_reply *reply, char why[CONTROL_TEXT_BYTES])
{
    char text[MESSAGE_WHY_BYTES] = "no answer";
    uint8_t *data = NULL;
    size_t bytes = 0;
    enum status st = ST_UNAVAILABLE;
    if (r->code == GRPC_STATUS_OK && r->message) {
        st = net_bytes_of(r->message, &data, &bytes);
        if (st == ST_OK)
            st = message_unpack_control_reply(data, bytes, reply, text) == ST_OK ? ST_OK
                                                                                 : ST_PROTOCOL;
        free(data);
    } else {
        snprintf(text, sizeof text, "%s", details);
        if (r->code == GRPC_STATUS_CANCELLED)
            st = ST_CANCELLED;
        else if (r->code == GRPC_STATUS_DEADLINE_EXCEEDED)
            st = ST_DEADLINE;
        else if (r->code == GRPC_STATUS_INVALID_ARGUMENT || r->code == GRPC_STATUS_UNIMPLEMENTED)
            st = ST_PROTOCOL;
    }
    if (st != ST_OK)
        snprintf(why, CONTROL_TEXT_BYTES, "%.*s", CONTROL_TEXT_BYTES - 1, text);
    return st;
}

static grpc_call *begin(struct net_control_client *c, int64_t deadline_ms)
{
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
    grpc_call *call = grpc_channel_create_call(
        c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue,
        grpc_slice_from_static_string("/weir.v1.Weir/Coordinate"), NULL, deadline, NULL);
    pthread_mutex_lock(&c->lock);
    int go = !c->cancelled;
    c->cancelled = 0;
    c->call = go ? call : NULL;
    pthread_mutex_unlock(&c->lock);
    if (!go)
        grpc_call_unref(call);
    return go ? call : NULL;
}

enum status net_control_call(struct net_control_client *c, const struct net_control *request,
                             int64_t deadline_ms, struct net_control_reply *reply,
                             char why[CONTROL_TEXT_BYTES])
{
    uint8_t *data = NULL;
    size_t bytes = 0;
    snprintf(why, CONTROL_TEXT_BYTES, "cancelled");
    grpc_call *call = begin(c, deadline_ms);
    if (!call)
        return ST_CANCELLED;
    struct result r = {.code = GRPC_STATUS_INTERNAL, .details = grpc_empty_slice()};
    grpc_metadata_array_init(&r.initial);
    grpc_metadata_array_init(&r.trailing);
    enum status st = message_pack_control(request, &data, &bytes);
    if (st == ST_OK)
        run_call(c, call, data, bytes, &r);
    pthread_mutex_lock(&c->lock);
    c->call = NULL;
    c->cancelled = 0;
    pthread_mutex_unlock(&c->lock);
    grpc_call_unref(call);
    char details[MESSAGE_WHY_BYTES];
    net_status_text(r.details, details, sizeof details);
    if (st == ST_OK)
        st = read_result(&r, details, reply, why);
    if (r.message)
        grpc_byte_buffer_destroy(r.message);
    grpc_metadata_array_destroy(&r.initial);
    grpc_metadata_array_destroy(&r.trailing);
    free(data);
    return st;
}

void net_control_cancel(struct net_control_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->cancelled = 1;
    grpc_call *call = c->call;
    if (call)
        grpc_call_ref(call);
    pthread_mutex_unlock(&c->lock);
    if (!call)
        return;
    grpc_call_cancel(call, NULL);
    grpc_call_unref(call);
}
