/* net/rpc/server_methods.c - what a call of one message in, one out does with its message: it is
 * decoded, the handler is asked, and what that says is encoded. */
#include "base/log.h"
#include "net/rpc/server_impl.h"
#include "net/wire/message.h"
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SERVER_HEALTH_NAME_BYTES = 128 };

/* Opens what a member on this host lends, if the handler offers its own memory in return, of which
 * the answer speaks only then. Who is not let in changes nothing of what the member lends. */
static void share(struct net_server *s, const struct net_join *join, const char *peer,
                  struct net_join_reply *answer)
{
    const size_t want = chunks_wire_bytes(join->chunks, join->job.push_dtype);
    const struct net_shared_name nothing = {.bytes = 0};
    char why[SHARED_WHY_BYTES];
    int rank = answer->place.n_members > 0 ? answer->place.rank : join->member;
    if ((answer->answer != JOIN_WELCOME && answer->answer != JOIN_INIT) || rank < 0) {
        answer->segment = nothing;
        return;
    }
    int asked = answer->segment.bytes && join->segment.bytes == want;
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
        net_call_refuse(c, why);
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
        LOG_FEW("join from %s refused: %s", peer, why);
        answer.answer = st == ST_NOMEM ? JOIN_RETRY : JOIN_REFUSED;
        snprintf(answer.why, sizeof answer.why, "%s", why);
    }
    gpr_free(peer);
    st = message_pack_reply(&answer, &out, &n);
    free(answer.server);
    hosts_free(&answer.servers);
    chunks_destroy(chunks);
    message_join_free(&join);
    net_call_reply_packed(c, st, out, n);
}

static void serve_leave(struct server_call *c, const uint8_t *data, size_t bytes)
{
    struct net_leave leave;
    char why[MESSAGE_WHY_BYTES];
    if (message_unpack_leave(data, bytes, &leave, why) != ST_OK) {
        net_call_refuse(c, why);
        return;
    }
    c->server->handler.leave(c->server->handler.ctx, &leave);
    if (!leave.soon)
        lenders_leave(&c->server->lenders, leave.incarnation);
    uint8_t *empty = calloc(1, 1); /* LeaveReply has no fields: zero bytes */
    net_call_reply(c, empty, 0, empty ? GRPC_STATUS_OK : GRPC_STATUS_RESOURCE_EXHAUSTED, "");
}

static void serve_status(struct server_call *c, const uint8_t *data, size_t bytes)
{
    const struct net_server_people *people = &c->server->people;
    struct net_status status = {.chunks = NULL};
    char why[MESSAGE_WHY_BYTES];
    uint8_t *out = NULL;
    size_t n = 0;
    struct net_status_request request = {.with_model = 0};
    if (!people->status || message_unpack_status_request(data, bytes, &request, why) != ST_OK) {
        net_call_refuse(c, people->status ? why : "this server says nothing of itself");
        return;
    }
    enum status st = people->status(people->ctx, request.with_model, &status);
    status.pad_bytes = request.pad_bytes;
    if (st == ST_OK)
        st = message_pack_status(&status, &out, &n);
    net_status_free(&status);
    net_call_reply_packed(c, st, out, n);
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
        net_call_refuse(c, people->command ? why : "this server takes no commands");
        return;
    }
    people->command(people->ctx, &command, &answer);
    enum status st = message_pack_command_reply(&answer, &out, &n);
    net_call_reply_packed(c, st, out, n);
}

static void serve_evaluation(struct server_call *c, const uint8_t *data, size_t bytes)
{
    const struct net_server_people *people = &c->server->people;
    struct net_evaluation evaluation;
    struct net_evaluation_reply answer = {.best = {.step = -1}};
    char why[MESSAGE_WHY_BYTES];
    uint8_t *out = NULL;
    size_t n = 0;
    if (!people->evaluated || message_unpack_evaluation(data, bytes, &evaluation, why) != ST_OK) {
        net_call_refuse(c, people->evaluated ? why : "this server takes no evaluations");
        return;
    }
    people->evaluated(people->ctx, &evaluation, &answer);
    enum status st = message_pack_evaluation_reply(&answer, &out, &n);
    net_call_reply_packed(c, st, out, n);
}

static void serve_report(struct server_call *c, const uint8_t *data, size_t bytes)
{
    const struct net_server_people *people = &c->server->people;
    struct net_report report;
    char why[MESSAGE_WHY_BYTES];
    uint8_t *out = NULL;
    size_t n = 0;
    if (message_unpack_report(data, bytes, &report, why) != ST_OK) {
        net_call_refuse(c, why);
        return;
    }
    int next_ms = people->reported ? people->reported(people->ctx, &report) : 0;
    enum status st = message_pack_report_reply(next_ms, &out, &n);
    net_call_reply_packed(c, st, out, n);
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
        net_call_refuse(c, why);
        return;
    }
    handler->fetch(handler->ctx, &request, &answer);
    enum status st = message_pack_fetch_reply(&answer, &out, &n);
    net_fetch_reply_free(&answer);
    free(request.chunk);
    net_call_reply_packed(c, st, out, n);
}

static void serve_squares(struct server_call *c, const uint8_t *data, size_t bytes)
{
    const struct net_server_handler *handler = &c->server->handler;
    struct net_squares squares;
    struct net_squares_reply answer = {.answer = SQUARES_OVER};
    char why[MESSAGE_WHY_BYTES] = "this server takes no part of a norm";
    uint8_t *out = NULL;
    size_t n = 0;
    enum status st =
        handler->squares ? message_unpack_squares(data, bytes, &squares, why) : ST_PROTOCOL;
    if (st == ST_NOMEM) {
        net_call_reply_packed(c, st, NULL, 0);
        return;
    }
    if (st != ST_OK) {
        net_call_refuse(c, why);
        return;
    }
    handler->squares(handler->ctx, &squares, &answer);
    st = message_pack_squares_reply(&answer, &out, &n);
    free(squares.square);
    net_call_reply_packed(c, st, out, n);
}

static void serve_gate(struct server_call *c, const uint8_t *data, size_t bytes)
{
    const struct net_server_handler *handler = &c->server->handler;
    struct net_gate gate;
    struct net_squares_reply answer = {.answer = SQUARES_OVER};
    char why[MESSAGE_WHY_BYTES] = "this server is in no region";
    uint8_t *out = NULL;
    size_t n = 0;
    enum status st = handler->gate ? message_unpack_gate(data, bytes, &gate, why) : ST_PROTOCOL;
    if (st == ST_NOMEM) {
        net_call_reply_packed(c, st, NULL, 0);
        return;
    }
    if (st != ST_OK) {
        net_call_refuse(c, why);
        return;
    }
    handler->gate(handler->ctx, &gate, &answer);
    st = message_pack_squares_reply(&answer, &out, &n);
    net_gate_free(&gate);
    net_call_reply_packed(c, st, out, n);
}

static void serve_health(struct server_call *c, const uint8_t *data, size_t bytes)
{
    char service[SERVER_HEALTH_NAME_BYTES];
    uint8_t *out = NULL;
    size_t n = 0;
    if (message_unpack_health(data, bytes, service, sizeof service) != ST_OK) {
        net_call_refuse(c, "the HealthCheckRequest does not decode");
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
        net_call_watch(c, out, n);
}

void net_call_serve(struct server_call *c, const uint8_t *data, size_t bytes)
{
    if (c->method == METHOD_JOIN)
        serve_join(c, data, bytes);
    else if (c->method == METHOD_LEAVE)
        serve_leave(c, data, bytes);
    else if (c->method == METHOD_CONTROL)
        net_call_serve_control(c, data, bytes);
    else if (c->method == METHOD_STATUS)
        serve_status(c, data, bytes);
    else if (c->method == METHOD_COMMAND)
        serve_command(c, data, bytes);
    else if (c->method == METHOD_FETCH)
        serve_fetch(c, data, bytes);
    else if (c->method == METHOD_SQUARES)
        serve_squares(c, data, bytes);
    else if (c->method == METHOD_GATE)
        serve_gate(c, data, bytes);
    else if (c->method == METHOD_EVALUATE)
        serve_evaluation(c, data, bytes);
    else if (c->method == METHOD_REPORT)
        serve_report(c, data, bytes);
    else
        serve_health(c, data, bytes);
}
