/* net/rpc/server_methods.c - processes the message of a call with one request and one reply:
 * decodes it, calls the handler, and encodes the handler's answer. */
#include "base/log.h"
#include "net/rpc/admit.h"
#include "net/rpc/server_impl.h"
#include "net/security/security.h"
#include "net/wire/message.h"
#include "net/wire/tables.h"
#include <grpc/support/alloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SERVER_HEALTH_NAME_BYTES = 128 };

/* Returns true if a segment for contributions in `d` may have so many bytes. */
static bool has_size(const struct chunks *c, enum dtype d, size_t bytes)
{
    return bytes == tables_wire_bytes(c, d) || bytes == chunks_wire_bytes(c, d);
}

/* Opens the segments of a member on this host, if the handler offers its own segment in return; if
 * that fails, the answer names no segment. For a member that is not admitted, nothing is opened. */
static void share_memory(struct net_server *s, const struct net_join *join, const char *peer,
                         struct net_join_reply *answer)
{
    const size_t bytes = join->segment.bytes;
    bool fits = has_size(join->chunks, join->job.push_dtype, bytes) ||
                /* changes are encoded in place */
                has_size(join->chunks, DTYPE_F32, bytes);
    bool is_whole = join->values.bytes == (uint64_t)join->chunks->n_elems * sizeof(float);
    const struct segment_name nothing = {.bytes = 0};
    char why[SEGMENT_WHY_BYTES];
    int rank = answer->place.n_members > 0 ? answer->place.rank : join->member;
    if ((answer->answer != JOIN_WELCOME && answer->answer != JOIN_INIT) || rank < 0) {
        answer->segment = nothing;
        return;
    }
    bool asked = answer->segment.bytes && fits;
    const struct segment_name names[] = {asked ? join->segment : nothing,
                                         is_whole ? join->values : nothing};
    if (peer_segments_put(&s->peer_segments, rank, join->incarnation, names, &answer->values, why))
        return;
    answer->segment = nothing;
    if (asked)
        LOG_D("the segment of worker %d at %s cannot be read: %s", join->member, peer, why);
}

/* Answer of a method. */
struct answer {
    uint8_t *data; /* encoded message */
    size_t n;
    char why[MESSAGE_WHY_BYTES]; /* reason of a refusal */
};

/* Each answer_... function serves one method. ST_PROTOCOL, ST_INVALID: the message is refused with
 * `why`; ST_REFUSED: the caller lacks the role, and receives `why`; any other error ends the call,
 * and the caller may make the call again. */

static enum status answer_join(struct server_call *c, const uint8_t *data, size_t bytes,
                               struct answer *a)
{
    const struct net_server *s = c->server;
    struct net_join join = {.model = NULL};
    struct chunks *chunks = NULL;
    struct net_join_reply answer = {.answer = JOIN_REFUSED, .step = -1};
    snprintf(a->why, sizeof a->why, "out of memory");
    enum status st = message_join_unpack(data, bytes, &join, &chunks, a->why);
    if (st == ST_PROTOCOL)
        return st;
    char *peer = grpc_call_get_peer(c->call);
    if (st == ST_OK) {
        s->handler.join(s->handler.ctx, &join, peer, &answer);
        share_memory(c->server, &join, peer, &answer);
        if (s->admin.joined && (answer.answer == JOIN_WELCOME || answer.answer == JOIN_INIT))
            s->admin.joined(s->admin.ctx, &join);
    } else {
        LOG_FEW("join from %s refused: %s", peer, a->why);
        answer.answer = st == ST_NOMEM ? JOIN_RETRY : JOIN_REFUSED;
        snprintf(answer.why, sizeof answer.why, "%s", a->why);
    }
    gpr_free(peer);
    st = message_reply_pack(&answer, &a->data, &a->n);
    free(answer.server);
    hosts_free(&answer.servers);
    chunks_destroy(chunks);
    message_join_free(&join);
    return st;
}

static enum status answer_leave(struct server_call *c, const uint8_t *data, size_t bytes,
                                struct answer *a)
{
    struct net_leave leave;
    enum status st = message_leave_unpack(data, bytes, &leave, a->why);
    if (st != ST_OK)
        return st;
    c->server->handler.leave(c->server->handler.ctx, &leave);
    if (!leave.soon)
        peer_segments_leave(&c->server->peer_segments, leave.incarnation);
    a->data = calloc(1, 1); /* LeaveReply has no fields, so its encoding has no bytes */
    return a->data ? ST_OK : ST_NOMEM;
}

static enum status answer_status(struct server_call *c, const uint8_t *data, size_t bytes,
                                 struct answer *a)
{
    const struct net_admin_handlers *admin = &c->server->admin;
    struct net_status status = {.chunks = NULL};
    struct net_status_request request = {.with_model = 0};
    enum status st = message_status_request_unpack(data, bytes, &request, a->why);
    if (st != ST_OK)
        return st;
    st = admin->status(admin->ctx, request.with_model, &status);
    status.pad_bytes = request.pad_bytes;
    if (st == ST_OK)
        st = message_status_pack(&status, &a->data, &a->n);
    net_status_free(&status);
    return st;
}

static enum status answer_command(struct server_call *c, const uint8_t *data, size_t bytes,
                                  struct answer *a)
{
    const struct net_admin_handlers *admin = &c->server->admin;
    struct net_command command;
    struct net_command_reply answer = {.answer = COMMAND_REFUSED};
    enum status st = message_command_unpack(data, bytes, &command, a->why);
    bool is_for_workers = st == ST_OK && command.kind == COMMAND_STOP_JOB;
    if (!is_for_workers && admit_roles(c, ROLE_ADMIN, a->why) != GRPC_STATUS_OK)
        return ST_REFUSED;
    if (st != ST_OK)
        return st;
    admin->command(admin->ctx, &command, &answer);
    return message_command_reply_pack(&answer, &a->data, &a->n);
}

static enum status answer_evaluation(struct server_call *c, const uint8_t *data, size_t bytes,
                                     struct answer *a)
{
    const struct net_admin_handlers *admin = &c->server->admin;
    struct net_evaluation evaluation;
    struct net_evaluation_reply answer = {.best = {.step = -1}};
    enum status st = message_evaluation_unpack(data, bytes, &evaluation, a->why);
    if (st != ST_OK)
        return st;
    admin->evaluated(admin->ctx, &evaluation, &answer);
    return message_evaluation_reply_pack(&answer, &a->data, &a->n);
}

static enum status answer_report(struct server_call *c, const uint8_t *data, size_t bytes,
                                 struct answer *a)
{
    const struct net_admin_handlers *admin = &c->server->admin;
    struct net_report report;
    enum status st = message_report_unpack(data, bytes, &report, a->why);
    if (st != ST_OK)
        return st;
    struct net_report_reply reply = {admin->reported ? admin->reported(admin->ctx, &report) : 0};
    return message_report_reply_pack(&reply, &a->data, &a->n);
}

static enum status answer_fetch(struct server_call *c, const uint8_t *data, size_t bytes,
                                struct answer *a)
{
    const struct net_server_handler *handler = &c->server->handler;
    struct net_fetch_request request;
    struct net_fetch_reply answer = {.n = 0};
    enum status st = message_fetch_unpack(data, bytes, &request, a->why);
    if (st != ST_OK)
        return st;
    handler->fetch(handler->ctx, &request, &answer);
    st = message_fetch_reply_pack(&answer, &a->data, &a->n);
    net_fetch_reply_free(&answer);
    free(request.chunk);
    return st;
}

static enum status answer_squares(struct server_call *c, const uint8_t *data, size_t bytes,
                                  struct answer *a)
{
    const struct net_server_handler *handler = &c->server->handler;
    struct net_squares squares;
    struct net_squares_reply answer = {.answer = SQUARES_OVER};
    enum status st = message_squares_unpack(data, bytes, &squares, a->why);
    if (st != ST_OK)
        return st;
    handler->squares(handler->ctx, &squares, &answer);
    free(squares.square);
    return message_squares_reply_pack(&answer, &a->data, &a->n);
}

static enum status answer_gate(struct server_call *c, const uint8_t *data, size_t bytes,
                               struct answer *a)
{
    const struct net_server_handler *handler = &c->server->handler;
    struct net_gate gate;
    struct net_squares_reply answer = {.answer = SQUARES_OVER};
    enum status st = message_gate_unpack(data, bytes, &gate, a->why);
    if (st != ST_OK)
        return st;
    handler->gate(handler->ctx, &gate, &answer);
    message_gate_free(&gate);
    return message_squares_reply_pack(&answer, &a->data, &a->n);
}

static void serve_health(struct server_call *c, const uint8_t *data, size_t bytes)
{
    char service[SERVER_HEALTH_NAME_BYTES];
    uint8_t *out = NULL;
    size_t n = 0;
    if (message_health_unpack(data, bytes, service, sizeof service) != ST_OK) {
        server_reply_refuse(c, "the HealthCheckRequest does not decode");
        return;
    }
    bool known = !service[0] || !strcmp(service, "weir.v1.Weir");
    if (!known && c->method == METHOD_CHECK) {
        server_reply_send(c, NULL, 0, GRPC_STATUS_NOT_FOUND, "unknown service");
        return;
    }
    enum status st = message_health_pack(known ? HEALTH_SERVING : HEALTH_SERVICE_UNKNOWN, &out, &n);
    if (st != ST_OK)
        server_reply_send(c, NULL, 0, GRPC_STATUS_RESOURCE_EXHAUSTED, status_text(st));
    else if (c->method == METHOD_CHECK)
        server_reply_send(c, out, n, GRPC_STATUS_OK, "");
    else
        server_waits_watch(c, out, n);
}

/* Returns the reason why this server does not serve the method; NULL: it does. */
static const char *not_served(const struct net_server *s, enum server_method method)
{
    if (method == METHOD_STATUS && !s->admin.status)
        return "this server does not report its status";
    if (method == METHOD_COMMAND && !s->admin.command)
        return "this server accepts no commands";
    if (method == METHOD_EVALUATE && !s->admin.evaluated)
        return "this server accepts no evaluations";
    if (method == METHOD_FETCH && !s->handler.fetch)
        return "this server sends no chunks";
    if (method == METHOD_SQUARES && !s->handler.squares)
        return "this server accepts no part of a gradient norm";
    if (method == METHOD_GATE && !s->handler.gate)
        return "this server is not in a region";
    return NULL;
}

void server_methods_serve(struct server_call *c, const uint8_t *data, size_t bytes)
{
    static enum status (*const answers[N_METHODS])(struct server_call *, const uint8_t *, size_t,
                                                   struct answer *) = {
        [METHOD_JOIN] = answer_join,           [METHOD_LEAVE] = answer_leave,
        [METHOD_STATUS] = answer_status,       [METHOD_COMMAND] = answer_command,
        [METHOD_EVALUATE] = answer_evaluation, [METHOD_REPORT] = answer_report,
        [METHOD_FETCH] = answer_fetch,         [METHOD_SQUARES] = answer_squares,
        [METHOD_GATE] = answer_gate,
    };
    struct answer a = {.data = NULL};
    const char *refused = not_served(c->server, c->method);
    if (c->method == METHOD_CONTROL) {
        server_waits_serve_control(c, data, bytes);
    } else if (!answers[c->method]) {
        serve_health(c, data, bytes);
    } else if (refused) {
        server_reply_refuse(c, refused);
    } else {
        enum status st = answers[c->method](c, data, bytes, &a);
        if (st == ST_PROTOCOL || st == ST_INVALID)
            server_reply_refuse(c, a.why);
        else if (st == ST_REFUSED)
            server_reply_send(c, NULL, 0, GRPC_STATUS_PERMISSION_DENIED, a.why);
        else
            server_reply_send_packed(c, st, a.data, a.n);
    }
}
