/* net/exchange/peer_client.c - see peer_client.h. */
#include "net/exchange/peer_client.h"
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/unary.h"
#include <stdlib.h>

struct peer_client {
    struct net_unary *unary;
};

enum status peer_client_create(const char *addr, struct peer_client **out)
{
    struct peer_client *c = calloc(1, sizeof *c);
    enum status st =
        c ? net_unary_create(addr, GRPC_RUNTIME_MAX_MESSAGE_BYTES, &c->unary) : ST_NOMEM;
    if (st == ST_OK)
        *out = c;
    else
        free(c);
    return st;
}

void peer_client_destroy(struct peer_client *c)
{
    if (c)
        net_unary_destroy(c->unary);
    free(c);
}

void peer_client_cancel(struct peer_client *c)
{
    net_unary_cancel(c->unary);
}

enum status peer_client_control(struct peer_client *c, const struct net_control *request,
                                int64_t deadline_ms, struct net_control_reply *reply,
                                char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_control_pack(request, &m.request.data, &m.request.n));
    TRY(net_unary_call(c->unary, "/weir.v1.Weir/Coordinate", &m.request, deadline_ms, &m.reply,
                       m.why));
    st = message_control_reply_unpack(m.reply.data, m.reply.n, reply, m.why);
done:
    return net_unary_end(&m, st, why);
}

enum status peer_client_squares(struct peer_client *c, const struct net_squares *squares,
                                int64_t deadline_ms, struct net_squares_reply *reply,
                                char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_squares_pack(squares, &m.request.data, &m.request.n));
    TRY(net_unary_call(c->unary, "/weir.v1.Weir/Squares", &m.request, deadline_ms, &m.reply,
                       m.why));
    st = message_squares_reply_unpack(m.reply.data, m.reply.n, reply, m.why);
done:
    return net_unary_end(&m, st, why);
}

enum status peer_client_gate(struct peer_client *c, const struct net_gate *gate,
                             int64_t deadline_ms, struct net_squares_reply *reply,
                             char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_gate_pack(gate, &m.request.data, &m.request.n));
    TRY(net_unary_call(c->unary, "/weir.v1.Region/Gate", &m.request, deadline_ms, &m.reply, m.why));
    st = message_squares_reply_unpack(m.reply.data, m.reply.n, reply, m.why);
done:
    return net_unary_end(&m, st, why);
}
