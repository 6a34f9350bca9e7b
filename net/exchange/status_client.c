/* net/exchange/status_client.c - see status.h. */
#include "net/exchange/status_client.h"
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/unary.h"
#include "net/wire/message.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes one call over a channel of its own. Where no connection was made, and so nothing was sent,
 * it tries once more: gRPC before 1.61 may read another call's errno after connect() and then gives
 * up a connection in progress, for example with "No such file or directory" (grpc/grpc#35064). */
static enum status call(const char *addr, const char *method, struct net_unary_messages *m,
                        int64_t deadline_ms)
{
    struct net_unary *u;
    enum status st = net_unary_create(addr, RT_MAX_MESSAGE_BYTES, &u);
    if (st != ST_OK)
        return st;
    for (int i = 0; i < 2; i++) {
        st = net_unary_call(u, method, &m->request, deadline_ms, &m->reply, m->why);
        if (st != ST_UNAVAILABLE || !strstr(m->why, "failed to connect"))
            break;
    }
    net_unary_destroy(u);
    return st;
}

enum status net_status_ask(const char *addr, int with_model, int64_t deadline_ms,
                           struct net_status *out, char *why)
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_pack_status_request(with_model, 0, &m.request.data, &m.request.n));
    TRY(call(addr, "/weir.v1.Weir/Status", &m, deadline_ms));
    st = message_unpack_status(m.reply.data, m.reply.n, out, m.why);
done:
    return net_unary_end(&m, st, why);
}

enum status net_command_send(const char *addr, const struct net_command *command,
                             int64_t deadline_ms, struct net_command_reply *out, char *why)
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_pack_command(command, &m.request.data, &m.request.n));
    TRY(call(addr, "/weir.v1.Weir/Command", &m, deadline_ms));
    st = message_unpack_command_reply(m.reply.data, m.reply.n, out, m.why);
done:
    return net_unary_end(&m, st, why);
}

struct net_evaluator {
    struct net_unary *unary;
};

enum status net_evaluator_create(const char *addr, struct net_evaluator **out)
{
    struct net_evaluator *e = calloc(1, sizeof *e);
    enum status st = e ? net_unary_create(addr, RT_MAX_MESSAGE_BYTES, &e->unary) : ST_NOMEM;
    if (st == ST_OK)
        *out = e;
    else
        free(e);
    return st;
}

void net_evaluator_destroy(struct net_evaluator *e)
{
    if (e)
        net_unary_destroy(e->unary);
    free(e);
}

enum status net_evaluator_send(struct net_evaluator *e, const struct net_evaluation *evaluation,
                               int64_t deadline_ms, struct net_evaluation_reply *out, char *why)
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_pack_evaluation(evaluation, &m.request.data, &m.request.n));
    TRY(net_unary_call(e->unary, "/weir.v1.Weir/Evaluate", &m.request, deadline_ms, &m.reply,
                       m.why));
    st = message_unpack_evaluation_reply(m.reply.data, m.reply.n, out, m.why);
done:
    return net_unary_end(&m, st, why);
}
