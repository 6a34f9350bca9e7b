/* net/exchange/status_client.c - see status.h. */
#include "net/exchange/status_client.h"
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/unary.h"
#include "net/wire/message.h"
#include <stdio.h>
#include <stdlib.h>

void net_status_free(struct net_status *s)
{
    chunks_destroy(s->chunks);
    free(s->model);
    free(s->members);
    free(s->servers);
    *s = (struct net_status){.chunks = NULL};
}

/* One call over a channel of its own. */
struct call {
    struct net_unary_bytes request, reply;
    char text[MESSAGE_WHY_BYTES];
};

static enum status call_make(struct call *c, const char *addr, const char *method,
                             int64_t deadline_ms)
{
    struct net_unary *u;
    enum status st = net_unary_create(addr, RT_MAX_MESSAGE_BYTES, &u);
    if (st != ST_OK)
        return st;
    st = net_unary_call(u, method, &c->request, deadline_ms, &c->reply, c->text);
    net_unary_destroy(u);
    return st;
}

/* st: how it went, up to the reply's reading. */
static enum status call_end(struct call *c, enum status st, char *why)
{
    if (st != ST_OK)
        snprintf(why, CONTROL_TEXT_BYTES, "%.*s", CONTROL_TEXT_BYTES - 1, c->text);
    free(c->request.data);
    free(c->reply.data);
    return st == ST_INVALID ? ST_PROTOCOL : st;
}

enum status net_status_ask(const char *addr, int with_model, int64_t deadline_ms,
                           struct net_status *out, char *why)
{
    struct call c = {.text = "out of memory"};
    enum status st = ST_OK;
    TRY(message_pack_status_request(with_model, 0, &c.request.data, &c.request.n));
    TRY(call_make(&c, addr, "/weir.v1.Weir/Status", deadline_ms));
    st = message_unpack_status(c.reply.data, c.reply.n, out, c.text);
done:
    return call_end(&c, st, why);
}

enum status net_command_send(const char *addr, const struct net_command *command,
                             int64_t deadline_ms, struct net_command_reply *out, char *why)
{
    struct call c = {.text = "out of memory"};
    enum status st = ST_OK;
    TRY(message_pack_command(command, &c.request.data, &c.request.n));
    TRY(call_make(&c, addr, "/weir.v1.Weir/Command", deadline_ms));
    st = message_unpack_command_reply(c.reply.data, c.reply.n, out, c.text);
done:
    return call_end(&c, st, why);
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
    struct call c = {.text = "out of memory"};
    enum status st = ST_OK;
    TRY(message_pack_evaluation(evaluation, &c.request.data, &c.request.n));
    TRY(net_unary_call(e->unary, "/weir.v1.Weir/Evaluate", &c.request, deadline_ms, &c.reply,
                       c.text));
    st = message_unpack_evaluation_reply(c.reply.data, c.reply.n, out, c.text);
done:
    return call_end(&c, st, why);
}
