/* net/server.c - see server.h.
 *
 * Calls are taken without registered methods: some slots stand armed for any method, a call that
 * takes one arms the next, and nothing of a call's message is read before its method is known.
 * Most are one message in, one out (server_reply.c), and so is Coordinate, whose answer may come
 * much later, from the handler or when the server stops; Watch sends one message and stays until
 * the client goes (the state of a running server never changes); Exchange is in stream.c. */
#include "base/clock.h"
#include "base/log.h"
#include "net/accept.h"
#include "net/message.h"
#include "net/server_impl.h"
#include "net/socket.h"
#include <errno.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SERVER_SLOTS = 32,
    SERVER_HEALTH_NAME_BYTES = 128,
    SERVER_HOST_BYTES = 256,
    SERVER_REPLY_BYTES = 256 << 20,
    SERVER_CALLS = 256, /* open on one connection; our clients have two */
    SERVER_IDLE_MS = 60000,
};

/* What gRPC may have: for guests and connections, and for each member's stream, whose windows can
 * hold twice bandwidth times delay. Far above what either takes; above it gRPC ends calls. */
static const size_t quota_base = (size_t)2 << 30, quota_per_stream = (size_t)256 << 20;

static const char *const method_paths[N_METHODS] = {
    [METHOD_JOIN] = "/weir.v1.Weir/Join",
    [METHOD_LEAVE] = "/weir.v1.Weir/Leave",
    [METHOD_CONTROL] = "/weir.v1.Weir/Coordinate",
    [METHOD_STATUS] = "/weir.v1.Weir/Status",
    [METHOD_COMMAND] = "/weir.v1.Weir/Command",
    [METHOD_FETCH] = "/weir.v1.Weir/Fetch",
    [METHOD_CHECK] = "/grpc.health.v1.Health/Check",
    [METHOD_WATCH] = "/grpc.health.v1.Health/Watch",
    [METHOD_EXCHANGE] = "/weir.v1.Weir/Exchange",
};

static void arm_slot(struct net_server *s);

/* The answer, or what kept it from being made. */
static void reply_packed(struct server_call *c, enum status st, uint8_t *data, size_t n)
{
    if (st == ST_OK)
        net_call_reply(c, data, n, GRPC_STATUS_OK, "");
    else
        net_call_reply(c, NULL, 0, GRPC_STATUS_RESOURCE_EXHAUSTED, status_text(st));
}

static void refuse(struct server_call *c, const char *why)
{
    char *peer = grpc_call_get_peer(c->call);
    LOG_W("%s from %s refused: %s", method_paths[c->method], peer, why);
    gpr_free(peer);
    net_call_reply(c, NULL, 0, GRPC_STATUS_INVALID_ARGUMENT, why);
}

/* Opens what a member on this host lends, if the handler offers its own memory in return, of which
 * the answer speaks only then. Who is not let in changes nothing of what the member lends. */
static void share(struct net_server *s, const struct net_join *join, const char *peer,
                  struct net_join_reply *answer)
{
    const size_t want = (size_t)join->chunks->n_elems * dtype_size(join->job.push_dtype);
    const struct net_shared_name nothing = {.bytes = 0};
    char why[SHARED_WHY_BYTES];
    int rank = answer->place.n_members > 0 ? answer->place.rank : join->member;
    if ((answer->answer != JOIN_WELCOME && answer->answer != JOIN_INIT) || rank < 0) {
        answer->segment = nothing;
        return;
    }
    int asked = answer->segment.bytes && join->segment.bytes == want &&
                (net_socket_is_loopback(peer) || net_socket_tune(peer));
    if (lenders_put(&s->lenders, rank, join->incarnation, asked ? &join->segment : &nothing, why))
        return;
    answer->segment = nothing;
    if (asked)
        LOG_D("worker %d at %s: its memory cannot be read here: %s", join->member, peer, why);
}

static void serve_join(struct server_call *c, const uint8_t *data, size_t bytes)
{
    struct net_join join = {.model = NULL};
    struct chunks *chunks = NULL;
    struct net_join_reply answer = {.answer = JOIN_REFUSED, .step = -1};
    char why[MESSAGE_WHY_BYTES] = "out of memory";
    uint8_t *out = NULL;
    size_t n = 0;
    enum status st = message_unpack_join(data, bytes, &join, &chunks, why);
    if (st == ST_PROTOCOL) {
        refuse(c, why);
        return;
    }
    char *peer = grpc_call_get_peer(c->call);
    if (st == ST_OK) {
        c->server->handler.join(c->server->handler.ctx, &join, peer, &answer);
        share(c->server, &join, peer, &answer);
        if (c->server->people.joined &&
            (answer.answer == JOIN_WELCOME || answer.answer == JOIN_INIT))
            c->server->people.joined(c->server->people.ctx, &join);
    } else {
        LOG_W("join from %s refused: %s", peer, why);
        answer.answer = st == ST_NOMEM ? JOIN_RETRY : JOIN_REFUSED;
        snprintf(answer.why, sizeof answer.why, "%s", why);
    }
    gpr_free(peer);
    st = message_pack_reply(&answer, &out, &n);
    free(answer.server);
    hosts_free(&answer.servers);
    chunks_destroy(chunks);
    message_join_free(&join);
    reply_packed(c, st, out, n);
}

static void serve_leave(struct server_call *c, const uint8_t *data, size_t bytes)
{
    struct net_leave leave;
    char why[MESSAGE_WHY_BYTES];
    if (message_unpack_leave(data, bytes, &leave, why) != ST_OK) {
        refuse(c, why);
        return;
    }
    c->server->handler.leave(c->server->handler.ctx, &leave);
    if (!leave.soon)
        lenders_leave(&c->server->lenders, leave.incarnation);
    uint8_t *empty = calloc(1, 1); /* LeaveReply has no fields: zero bytes */
    net_call_reply(c, empty, 0, empty ? GRPC_STATUS_OK : GRPC_STATUS_RESOURCE_EXHAUSTED, "");
}

static const char not_coordinating[] = "this server orders no checkpoints: it is not ps:0, or has "
                                       "no --checkpoint_dir";

/* Takes a Coordinate that waits off the list: the one of that number, or any (0). */
static struct server_call *take_control(struct net_server *s, uint64_t number)
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
    struct server_call *c = take_control(s, call);
    if (!c)
        return;
    if (!answer) {
        refuse(c, not_coordinating);
        return;
    }
    if (answer->later[0]) {
        net_call_reply(c, NULL, 0, GRPC_STATUS_UNAVAILABLE, answer->later);
        return;
    }
    enum status st = message_pack_control_reply(answer, &out, &n);
    reply_packed(c, st, out, n);
}

static void on_control_closed(struct net_op *op, int ok)
{
    struct server_call *c =
        (struct server_call *)((char *)op - offsetof(struct server_call, close_op));
    struct net_server *s = c->server;
    if (c->number && take_control(s, c->number)) { /* nobody hears an answer */
        if (s->handler.control_closed)
            s->handler.control_closed(s->handler.ctx, c->number);
        net_control_op_done(c);
    }
    net_control_op_done(c);
}

/* The handler knows the call by now: it is told of the end after the beginning. */
static void watch_control(struct server_call *c)
{
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close.data.recv_close_on_server.cancelled = &c->cancelled;
    net_op_init(&c->close_op, on_control_closed);
    if (!net_op_start(&c->close_op, c->call, &close, 1))
        on_control_closed(&c->close_op, 0);
}

static void take_up_control(struct server_call *c, const uint8_t *data, size_t bytes)
{
    struct net_server *s = c->server;
    struct net_control control;
    char why[MESSAGE_WHY_BYTES];
    if (!s->handler.control) {
        refuse(c, not_coordinating);
        return;
    }
    if (message_unpack_control(data, bytes, &control, why) != ST_OK) {
        refuse(c, why);
        return;
    }
    pthread_mutex_lock(&s->lock);
    int stopping = s->stopping;
    if (!stopping) {
        c->number = ++s->n_controls;
        c->next = s->controls;
        s->controls = c;
    }
    uint64_t number = s->n_controls;
    pthread_mutex_unlock(&s->lock);
    if (stopping)
        net_call_reply(c, NULL, 0, GRPC_STATUS_UNAVAILABLE, "the server is stopping");
    else
        s->handler.control(s->handler.ctx, s, &control, number);
    net_control_free(&control);
}

static void serve_control(struct server_call *c, const uint8_t *data, size_t bytes)
{
    atomic_store(&c->n_ops, 2);
    take_up_control(c, data, bytes);
    watch_control(c);
}

static void serve_status(struct server_call *c, const uint8_t *data, size_t bytes)
{
    const struct net_server_people *people = &c->server->people;
    struct net_status status = {.chunks = NULL};
    char why[MESSAGE_WHY_BYTES];
    uint8_t *out = NULL;
    size_t n = 0;
    int with_model = 0;
    if (!people->status || message_unpack_status_request(data, bytes, &with_model, why) != ST_OK) {
        refuse(c, people->status ? why : "this server says nothing of itself");
        return;
    }
    enum status st = people->status(people->ctx, with_model, &status);
    if (st == ST_OK)
        st = message_pack_status(&status, &out, &n);
    net_status_free(&status);
    reply_packed(c, st, out, n);
}

static void serve_command(struct server_call *c, const uint8_t *data, size_t bytes)
{
    const struct net_server_people *people = &c->server->people;
    struct net_command command;
    struct net_command_reply answer = {.answer = COMMAND_REFUSED};
    char why[MESSAGE_WHY_BYTES];
    uint8_t *out = NULL;
    size_t n = 0;
    if (!people->command || message_unpack_command(data, bytes, &command, why) != ST_OK) {
        refuse(c, people->command ? why : "this server takes no commands");
        return;
    }
    people->command(people->ctx, &command, &answer);
    enum status st = message_pack_command_reply(&answer, &out, &n);
    reply_packed(c, st, out, n);
}

static void serve_fetch(struct server_call *c, const uint8_t *data, size_t bytes)
{
    const struct net_server_handler *handler = &c->server->handler;
    struct net_fetch_request request;
    struct net_fetch_reply answer = {.n = 0};
    char why[MESSAGE_WHY_BYTES] = "this server hands on no chunks";
    uint8_t *out = NULL;
    size_t n = 0;
    if (!handler->fetch || message_unpack_fetch(data, bytes, &request, why) != ST_OK) {
        refuse(c, why);
        return;
    }
    handler->fetch(handler->ctx, &request, &answer);
    enum status st = message_pack_fetch_reply(&answer, &out, &n);
    net_fetch_reply_free(&answer);
    free(request.chunk);
    reply_packed(c, st, out, n);
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
    net_call_free(c);
}

static void on_watch_sent(struct net_op *op, int ok)
{
    watch_op_done((struct server_call *)op);
}

static void on_watch_closed(struct net_op *op, int ok)
{
    watch_op_done((struct server_call *)((char *)op - offsetof(struct server_call, close_op)));
}

static void start_watch(struct server_call *c, uint8_t *data, size_t bytes)
{
    struct net_server *s = c->server;
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)data, bytes);
    c->outgoing = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    free(data);
    atomic_store(&c->n_ops, 2);
    net_op_init(&c->op, on_watch_sent);
    net_op_init(&c->close_op, on_watch_closed);
    net_guests_enter(&s->guests, &c->guest, c->call);
    pthread_mutex_lock(&s->lock);
    c->next = s->watches;
    if (c->next)
        c->next->prev = c;
    s->watches = c;
    c->stop_seen = 0;
    int stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    if (stopping)
        grpc_call_cancel(c->call, NULL);
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close.data.recv_close_on_server.cancelled = &c->cancelled;
    grpc_op send = {.op = GRPC_OP_SEND_MESSAGE};
    send.data.send_message.send_message = c->outgoing;
    if (!net_op_start(&c->op, c->call, &send, 1))
        watch_op_done(c);
    if (!net_op_start(&c->close_op, c->call, &close, 1))
        watch_op_done(c);
}

static void serve_health(struct server_call *c, const uint8_t *data, size_t bytes)
{
    char service[SERVER_HEALTH_NAME_BYTES];
    uint8_t *out = NULL;
    size_t n = 0;
    if (message_unpack_health(data, bytes, service, sizeof service) != ST_OK) {
        refuse(c, "the HealthCheckRequest does not decode");
        return;
    }
    int known = !service[0] || !strcmp(service, "weir.v1.Weir");
    if (!known && c->method == METHOD_CHECK) {
        net_call_reply(c, NULL, 0, GRPC_STATUS_NOT_FOUND, "unknown service");
        return;
    }
    enum status st = message_pack_health(known ? HEALTH_SERVING : HEALTH_SERVICE_UNKNOWN, &out, &n);
    if (st != ST_OK)
        net_call_reply(c, NULL, 0, GRPC_STATUS_RESOURCE_EXHAUSTED, status_text(st));
    else if (c->method == METHOD_CHECK)
        net_call_reply(c, out, n, GRPC_STATUS_OK, "");
    else
        start_watch(c, out, n);
}

static void on_message(struct net_op *op, int ok)
{
    struct server_call *c = (struct server_call *)op;
    uint8_t *data = NULL;
    size_t bytes = 0;
    net_guests_leave(&c->server->guests, &c->guest);
    if (!ok || !c->incoming) {
        net_call_reply(c, NULL, 0, GRPC_STATUS_INVALID_ARGUMENT, "the request carries no message");
        return;
    }
    if (net_bytes_of(c->incoming, &data, &bytes) != ST_OK) {
        net_call_reply(c, NULL, 0, GRPC_STATUS_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    grpc_byte_buffer_destroy(c->incoming);
    c->incoming = NULL;
    if (c->method == METHOD_JOIN)
        serve_join(c, data, bytes);
    else if (c->method == METHOD_LEAVE)
        serve_leave(c, data, bytes);
    else if (c->method == METHOD_CONTROL)
        serve_control(c, data, bytes);
    else if (c->method == METHOD_STATUS)
        serve_status(c, data, bytes);
    else if (c->method == METHOD_COMMAND)
        serve_command(c, data, bytes);
    else if (c->method == METHOD_FETCH)
        serve_fetch(c, data, bytes);
    else
        serve_health(c, data, bytes);
    free(data);
}

static void start_unary(struct server_call *c)
{
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_MESSAGE}};
    ops[1].data.recv_message.recv_message = &c->incoming;
    net_op_init(&c->op, on_message);
    net_guests_enter(&c->server->guests, &c->guest, c->call);
    if (!net_op_start(&c->op, c->call, ops, 2))
        net_call_free(c);
}

static void reply_unknown(struct server_call *c)
{
    grpc_op first = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    grpc_slice details = grpc_slice_from_static_string("no such method");
    grpc_op ops[3] = {
        first, {.op = GRPC_OP_RECV_CLOSE_ON_SERVER}, {.op = GRPC_OP_SEND_STATUS_FROM_SERVER}};
    ops[1].data.recv_close_on_server.cancelled = &c->cancelled;
    ops[2].data.send_status_from_server.status = GRPC_STATUS_UNIMPLEMENTED;
    ops[2].data.send_status_from_server.status_details = &details;
    net_op_init(&c->op, net_call_replied);
    net_call_count_reply(c, 0);
    if (!net_op_start(&c->op, c->call, ops, 3))
        net_call_free(c);
}

static void on_call(struct net_op *op, int ok)
{
    struct server_call *c = (struct server_call *)op;
    struct net_server *s = c->server;
    if (!ok) { /* the server stops, or the call was gone before it was taken */
        pthread_mutex_lock(&s->lock);
        int stopping = s->stopping;
        pthread_mutex_unlock(&s->lock);
        if (!stopping)
            arm_slot(s);
        net_call_free(c);
        return;
    }
    arm_slot(s);
    int m = 0;
    while (m < N_METHODS && grpc_slice_str_cmp(c->details.method, method_paths[m]))
        m++;
    c->method = (enum server_method)m;
    if (m == METHOD_EXCHANGE) {
        grpc_call *call = c->call;
        pthread_mutex_lock(&s->lock);
        s->n_calls++; /* the stream; free_call counts the slot down */
        pthread_mutex_unlock(&s->lock);
        c->call = NULL;
        net_call_free(c);
        net_stream_open(s, call);
    } else if (m < N_METHODS) {
        start_unary(c);
    } else {
        reply_unknown(c);
    }
}

static void arm_slot(struct net_server *s)
{
    struct server_call *c = calloc(1, sizeof *c);
    if (!c) {
        LOG_E("a slot for incoming calls is lost: out of memory");
        return;
    }
    c->server = s;
    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->metadata);
    net_op_init(&c->op, on_call);
    pthread_mutex_lock(&s->lock);
    s->n_calls++;
    pthread_mutex_unlock(&s->lock);
    net_op_arm(&c->op);
    grpc_completion_queue *q = net_pollers_queue(s->pollers);
    if (grpc_server_request_call(s->server, &c->call, &c->details, &c->metadata, q, q, &c->op) !=
        GRPC_CALL_OK)
        net_call_free(c);
}

static void on_shutdown(struct net_op *op, int ok)
{
    struct net_server *s =
        (struct net_server *)((char *)op - offsetof(struct net_server, shutdown_op));
    pthread_mutex_lock(&s->lock);
    s->shut = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Without a port gRPC would choose its own. */
static enum status check_addr(const char *addr)
{
    const char *colon = strrchr(addr, ':');
    if (colon && colon > addr && colon - addr < SERVER_HOST_BYTES && colon[1] &&
        !colon[1 + strspn(colon + 1, "0123456789")])
        return ST_OK;
    LOG_E("cannot listen on '%s': not host:port", addr);
    return ST_INVALID;
}

/* gRPC says only that it could not listen; the system says why. addr: checked. */
static enum status log_why_not(const char *addr)
{
    char host[SERVER_HOST_BYTES];
    const char *colon = strrchr(addr, ':');
    int bracket = addr[0] == '[' && colon > addr + 1;
    snprintf(host, sizeof host, "%.*s", (int)(colon - addr - 2 * bracket), addr + bracket);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int err = getaddrinfo(host, colon + 1, &hints, &list);
    if (err) {
        LOG_E("cannot listen on %s: %s", addr, gai_strerror(err));
        return ST_INVALID;
    }
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    err = fd < 0 ? errno : 0;
    if (!err)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!err && (bind(fd, list->ai_addr, list->ai_addrlen) < 0 || listen(fd, 1) < 0))
        err = errno;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(list);
    if (err == EADDRINUSE) {
        LOG_E("cannot listen on %s: address in use; stop the program that has it, or choose "
              "another port",
              addr);
        return ST_BUSY;
    }
    LOG_E("cannot listen on %s: %s; the address must be one of this host's own", addr,
          err ? strerror(err) : "refused by gRPC");
    return ST_INVALID;
}

void net_server_trusts(struct net_server *s, int more)
{
    pthread_mutex_lock(&s->lock);
    s->n_trusted += more;
    size_t n = (size_t)s->n_trusted;
    pthread_mutex_unlock(&s->lock);
    grpc_resource_quota_resize(s->quota, quota_base + n * quota_per_stream);
}

static grpc_server *make_server(grpc_resource_quota *quota)
{
    static const struct net_setting settings[] = {
        {GRPC_ARG_ALLOW_REUSEPORT, 0},
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, RT_MAX_MESSAGE_BYTES},
        {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, FETCH_MESSAGE_BYTES},
        {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000},
        {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2},
        {GRPC_ARG_KEEPALIVE_TIME_MS, 20000},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 20000},
        {GRPC_ARG_MAX_CONCURRENT_STREAMS, SERVER_CALLS},
        {GRPC_ARG_MAX_CONNECTION_IDLE_MS, SERVER_IDLE_MS},
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
    };
    enum { N = sizeof settings / sizeof settings[0] };
    grpc_arg args[N + 1];
    grpc_channel_args list = net_rt_args(settings, N, args);
    args[list.num_args++] =
        (grpc_arg){.type = GRPC_ARG_POINTER,
                   .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
                   .value.pointer = {.p = quota, .vtable = grpc_resource_quota_arg_vtable()}};
    return grpc_server_create(&list, NULL);
}

enum status net_server_create(const struct net_server_config *cfg, struct net_server **out)
{
    enum status st = check_addr(cfg->addr);
    if (st != ST_OK)
        return st;
    struct net_server *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    net_rt_init();
    net_accept_keep_room();
    s->handler = cfg->handler;
    s->people = cfg->people;
    s->max_reply_bytes = cfg->max_reply_bytes > 0 ? cfg->max_reply_bytes : SERVER_REPLY_BYTES;
    lenders_init(&s->lenders);
    net_guests_init(&s->guests, cfg->max_guests);
    pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->changed);
    net_op_init(&s->shutdown_op, on_shutdown);
    TRY(net_pollers_create(cfg->n_threads > 0 ? cfg->n_threads : 2, &s->pollers));
    s->quota = grpc_resource_quota_create("server");
    grpc_resource_quota_resize(s->quota, quota_base);
    s->server = make_server(s->quota);
    grpc_server_register_completion_queue(s->server, net_pollers_queue(s->pollers), NULL);
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    s->port = grpc_server_add_http2_port(s->server, cfg->addr, plain);
    grpc_server_credentials_release(plain);
    if (s->port <= 0)
        TRY(log_why_not(cfg->addr));
    grpc_server_start(s->server);
    s->started = 1;
    for (int i = 0; i < SERVER_SLOTS; i++)
        arm_slot(s);
    *out = s;
done:
    if (st != ST_OK)
        net_server_destroy(s);
    return st;
}

int net_server_port(const struct net_server *s)
{
    return s->port;
}

/* Ends streams and watches one by one, since none of our locks may be held while gRPC is called. */
static void end_calls(struct net_server *s)
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
        struct server_call *control = take_control(s, 0);
        if (control)
            net_call_reply(control, NULL, 0, GRPC_STATUS_UNAVAILABLE, "the server is stopping");
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

void net_server_stop(struct net_server *s, int64_t grace_ms)
{
    pthread_mutex_lock(&s->lock);
    int idle = !s->started || s->stopping;
    s->stopping = 1;
    pthread_mutex_unlock(&s->lock);
    if (idle)
        return;
    net_op_arm(&s->shutdown_op);
    grpc_server_shutdown_and_notify(s->server, net_pollers_queue(s->pollers), &s->shutdown_op);
    end_calls(s);
    int64_t deadline = clock_deadline_ns(grace_ms);
    pthread_mutex_lock(&s->lock);
    while (!s->shut && clock_cond_wait(&s->changed, &s->lock, deadline) == 0)
        ;
    int shut = s->shut;
    pthread_mutex_unlock(&s->lock);
    if (!shut)
        grpc_server_cancel_all_calls(s->server);
    /* Every call is over or cancelled, so that its last operation comes without the peer's help. */
    pthread_mutex_lock(&s->lock);
    while (!s->shut || s->n_calls > 0)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void net_server_destroy(struct net_server *s)
{
    if (!s)
        return;
    net_server_stop(s, 0);
    if (s->server && !s->started) {
        net_op_arm(&s->shutdown_op);
        grpc_server_shutdown_and_notify(s->server, net_pollers_queue(s->pollers), &s->shutdown_op);
    }
    net_pollers_destroy(s->pollers);
    if (s->server)
        grpc_server_destroy(s->server);
    if (s->quota)
        grpc_resource_quota_unref(s->quota);
    net_guests_free(&s->guests);
    lenders_free(&s->lenders);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    net_rt_shutdown();
}
