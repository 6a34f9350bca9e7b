/* net/rpc/server.c - see server.h. Calls are accepted without registered methods: some slots wait
 * for a call of any method, each accepted call starts the wait of another slot, and a call's
 * message is read only after its method is known. Most calls are one request and one reply
 * (server_methods.c, server_reply.c); Coordinate and Watch stay open (server_waits.c); Exchange is
 * in stream.c. */
#include "base/clock.h"
#include "base/log.h"
#include "net/rpc/accept.h"
#include "net/rpc/admit.h"
#include "net/rpc/guarded_sockets.h"
#include "net/rpc/listen.h"
#include "net/rpc/server_impl.h"
#include "net/security/http2_guard.h"
#include <stdbool.h>
#include <stdlib.h>

enum {
    SERVER_SLOTS = 32,
    SERVER_REPLY_BYTES = 256 << 20,
    SERVER_IDLE_MS = 60000,
};

/* Memory that gRPC may use: quota_base for unknown callers and connections, and quota_per_stream
 * for each member's stream, whose windows can hold twice bandwidth times delay. Both are far above
 * the actual need. If more memory is needed, gRPC ends calls. */
static const size_t quota_base = (size_t)2 << 30, quota_per_stream = (size_t)256 << 20;

const char *const server_method_paths[N_METHODS] = {
    [METHOD_JOIN] = "/weir.v1.Weir/Join",
    [METHOD_LEAVE] = "/weir.v1.Weir/Leave",
    [METHOD_CONTROL] = "/weir.v1.Weir/Coordinate",
    [METHOD_STATUS] = "/weir.v1.Weir/Status",
    [METHOD_COMMAND] = "/weir.v1.Weir/Command",
    [METHOD_FETCH] = "/weir.v1.Weir/Fetch",
    [METHOD_SQUARES] = "/weir.v1.Weir/Squares",
    [METHOD_GATE] = "/weir.v1.Region/Gate",
    [METHOD_EVALUATE] = "/weir.v1.Weir/Evaluate",
    [METHOD_REPORT] = "/weir.v1.Reports/Report",
    [METHOD_CHECK] = "/grpc.health.v1.Health/Check",
    [METHOD_WATCH] = "/grpc.health.v1.Health/Watch",
    [METHOD_EXCHANGE] = "/weir.v1.Weir/Exchange",
};

static void arm_slot(struct net_server *s);

static void on_message(struct grpc_runtime_op *op, bool ok)
{
    struct server_call *c = (struct server_call *)op;
    uint8_t *data = NULL;
    size_t bytes = 0;
    unauthenticated_calls_leave(&c->server->unauthenticated, &c->unauthenticated);
    if (!ok || !c->incoming) {
        server_reply_send(c, NULL, 0, GRPC_STATUS_INVALID_ARGUMENT,
                          "the request carries no message");
        return;
    }
    if (grpc_runtime_bytes_of(c->incoming, &data, &bytes) != ST_OK) {
        server_reply_send(c, NULL, 0, GRPC_STATUS_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    grpc_byte_buffer_destroy(c->incoming);
    c->incoming = NULL;
    server_methods_serve(c, data, bytes);
    free(data);
}

static void start_unary(struct server_call *c)
{
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_MESSAGE}};
    ops[1].data.recv_message.recv_message = &c->incoming;
    grpc_runtime_op_init(&c->op, on_message);
    unauthenticated_calls_enter(&c->server->unauthenticated, &c->unauthenticated, c->call);
    if (!grpc_runtime_op_start(&c->op, c->call, ops, 2))
        server_reply_free_call(c);
}

/* Ends the call with this status before its message is read. */
static void reply_at_once(struct server_call *c, grpc_status_code code, const char *text)
{
    grpc_op first = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op ops[3] = {
        first, {.op = GRPC_OP_RECV_CLOSE_ON_SERVER}, {.op = GRPC_OP_SEND_STATUS_FROM_SERVER}};
    ops[1].data.recv_close_on_server.cancelled = &c->cancelled;
    ops[2].data.send_status_from_server.status = code;
    ops[2].data.send_status_from_server.status_details = &details;
    grpc_runtime_op_init(&c->op, server_reply_done);
    server_reply_count(c, 0);
    bool ok = grpc_runtime_op_start(&c->op, c->call, ops, 3);
    grpc_slice_unref(details);
    if (!ok)
        server_reply_free_call(c);
}

/* Serves a call whose method is known and permitted to the caller. */
static void serve_call(struct server_call *c)
{
    struct net_server *s = c->server;
    if (c->method != METHOD_EXCHANGE) {
        start_unary(c);
        return;
    }
    grpc_call *call = c->call;
    pthread_mutex_lock(&s->lock);
    s->n_calls++; /* counts the stream; free_call subtracts the slot */
    pthread_mutex_unlock(&s->lock);
    c->call = NULL;
    server_reply_free_call(c);
    net_stream_open(s, call);
}

static void on_call(struct grpc_runtime_op *op, bool ok)
{
    struct server_call *c = (struct server_call *)op;
    struct net_server *s = c->server;
    if (!ok) { /* the server stops, or the call ended before it was accepted */
        pthread_mutex_lock(&s->lock);
        bool stopping = s->stopping;
        pthread_mutex_unlock(&s->lock);
        if (!stopping)
            arm_slot(s);
        server_reply_free_call(c);
        return;
    }
    arm_slot(s);
    char why[ADMIT_WHY_BYTES];
    int m = 0;
    while (m < N_METHODS && grpc_slice_str_cmp(c->details.method, server_method_paths[m]))
        m++;
    c->method = (enum server_method)m;
    grpc_status_code code = GRPC_STATUS_UNIMPLEMENTED;
    if (m < N_METHODS)
        code = admit_call(c, why);
    if (code == GRPC_STATUS_OK)
        serve_call(c);
    else
        reply_at_once(c, code, m < N_METHODS ? why : "no such method");
}

static void arm_slot(struct net_server *s)
{
    struct server_call *c = calloc(1, sizeof *c);
    if (!c) {
        LOG_E("out of memory: this server can wait for one incoming call fewer");
        return;
    }
    c->server = s;
    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->metadata);
    grpc_runtime_op_init(&c->op, on_call);
    pthread_mutex_lock(&s->lock);
    s->n_calls++;
    pthread_mutex_unlock(&s->lock);
    grpc_runtime_op_arm(&c->op);
    grpc_completion_queue *q = grpc_runtime_pollers_queue(s->pollers);
    if (grpc_server_request_call(s->server, &c->call, &c->details, &c->metadata, q, q, &c->op) !=
        GRPC_CALL_OK)
        server_reply_free_call(c);
}

static void on_shutdown(struct grpc_runtime_op *op, bool ok)
{
    struct net_server *s =
        (struct net_server *)((char *)op - offsetof(struct net_server, shutdown_op));
    pthread_mutex_lock(&s->lock);
    s->shut = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Sets gRPC's quota for the latest number of members' streams. gRPC is called without the lock, by
 * one thread at a time. */
void net_server_trusts(struct net_server *s, int more)
{
    pthread_mutex_lock(&s->lock);
    s->n_trusted += more;
    bool mine = !s->resizing;
    s->resizing = 1;
    for (int n = s->n_trusted - 1; mine && n != s->n_trusted;) {
        n = s->n_trusted;
        pthread_mutex_unlock(&s->lock);
        grpc_resource_quota_resize(s->quota, quota_base + (size_t)n * quota_per_stream);
        pthread_mutex_lock(&s->lock);
    }
    if (mine)
        s->resizing = 0;
    pthread_mutex_unlock(&s->lock);
}

static grpc_server *make_server(grpc_resource_quota *quota)
{
    static const struct grpc_runtime_setting settings[] = {
        {GRPC_ARG_ALLOW_REUSEPORT, 0},
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, GRPC_RUNTIME_MAX_MESSAGE_BYTES},
        {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, FETCH_MESSAGE_BYTES},
        {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000},
        {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2},
        {GRPC_ARG_KEEPALIVE_TIME_MS, 20000},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000}, /* equals KEEPALIVE_ANSWER_MS of channel.c */
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 20000},
        {GRPC_ARG_MAX_CONCURRENT_STREAMS, HTTP2_MAX_STREAMS},
        {GRPC_ARG_MAX_CONNECTION_IDLE_MS, SERVER_IDLE_MS},
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
    };
    enum { N = sizeof settings / sizeof settings[0] };
    grpc_arg args[N + 1];
    grpc_channel_args list = grpc_runtime_args(settings, N, args);
    args[list.num_args++] =
        (grpc_arg){.type = GRPC_ARG_POINTER,
                   .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
                   .value.pointer = {.p = quota, .vtable = grpc_resource_quota_arg_vtable()}};
    return grpc_server_create(&list, NULL);
}

enum status net_server_bind(const struct net_server_config *cfg, struct net_server **out)
{
    enum status st = net_listen_check(cfg->addr);
    if (st != ST_OK)
        return st;
    struct net_server *s = calloc(1, sizeof *s);
    if (!s) {
        LOG_E("cannot listen on %s: out of memory", cfg->addr);
        return ST_NOMEM;
    }
    grpc_runtime_init();
    net_accept_keep_room();
    s->handler = cfg->handler;
    s->admin = cfg->admin;
    s->max_reply_bytes = cfg->max_reply_bytes > 0 ? cfg->max_reply_bytes : SERVER_REPLY_BYTES;
    peer_segments_init(&s->peer_segments);
    unauthenticated_calls_init(&s->unauthenticated, cfg->max_unauthenticated_calls);
    pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->changed);
    grpc_runtime_op_init(&s->shutdown_op, on_shutdown);
    TRY(grpc_runtime_pollers_create(cfg->n_threads > 0 ? cfg->n_threads : 2, &s->pollers));
    s->quota = grpc_resource_quota_create("server");
    grpc_resource_quota_resize(s->quota, quota_base);
    s->server = make_server(s->quota);
    grpc_server_register_completion_queue(s->server, grpc_runtime_pollers_queue(s->pollers), NULL);
    TRY(net_listen(s->server, cfg->addr, &cfg->pause, &s->certificate, &s->port));
    guarded_sockets_add_port(s->port);
    *out = s;
done:
    if (st != ST_OK)
        net_server_destroy(s);
    return st;
}

void net_server_start(struct net_server *s, const struct net_admin_handlers *admin)
{
    if (admin)
        s->admin = *admin;
    grpc_server_start(s->server);
    s->started = 1;
    for (int i = 0; i < SERVER_SLOTS; i++)
        arm_slot(s);
}

enum status net_server_create(const struct net_server_config *cfg, struct net_server **out)
{
    struct net_server *s = NULL;
    enum status st = net_server_bind(cfg, &s);
    if (st != ST_OK)
        return st;
    net_server_start(s, NULL);
    *out = s;
    return ST_OK;
}

int net_server_port(const struct net_server *s)
{
    return s->port;
}

void net_server_stop(struct net_server *s, int64_t grace_ms)
{
    pthread_mutex_lock(&s->lock);
    bool idle = !s->started || s->stopping;
    s->stopping = 1;
    pthread_mutex_unlock(&s->lock);
    if (idle)
        return;
    grpc_runtime_op_arm(&s->shutdown_op);
    grpc_server_shutdown_and_notify(s->server, grpc_runtime_pollers_queue(s->pollers),
                                    &s->shutdown_op);
    server_waits_end_calls(s);
    int64_t deadline = clock_deadline_ns(grace_ms);
    pthread_mutex_lock(&s->lock);
    while (!s->shut && clock_cond_wait(&s->changed, &s->lock, deadline) == 0)
        ;
    int shut = s->shut;
    pthread_mutex_unlock(&s->lock);
    if (!shut)
        grpc_server_cancel_all_calls(s->server);
    /* Every call is over or cancelled, so its last operation ends even if the peer does nothing. */
    pthread_mutex_lock(&s->lock);
    while (!s->shut || s->n_calls > 0)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void net_server_destroy(struct net_server *s)
{
    if (!s)
        return;
    guarded_sockets_remove_port(s->port);
    net_server_stop(s, 0);
    if (s->server && !s->started) {
        grpc_runtime_op_arm(&s->shutdown_op);
        grpc_server_shutdown_and_notify(s->server, grpc_runtime_pollers_queue(s->pollers),
                                        &s->shutdown_op);
    }
    grpc_runtime_pollers_destroy(s->pollers);
    if (s->server)
        grpc_server_destroy(s->server);
    if (s->quota)
        grpc_resource_quota_unref(s->quota);
    unauthenticated_calls_free(&s->unauthenticated);
    peer_segments_free(&s->peer_segments);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    grpc_runtime_shutdown();
}
