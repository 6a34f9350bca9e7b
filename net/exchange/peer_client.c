/* net/exchange/peer_client.c - see peer_client.h. */
#include "net/exchange/peer_client.h"
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/unary.h"
#include <stdlib.h>

struct net_peer_client {
    struct net_unary *unary;
};

enum status net_peer_create(const char *addr, struct net_peer_client **out)
{
    struct net_peer_client *c = calloc(1, sizeof *c);
    enum status st = c ? net_unary_create(addr, RT_MAX_MESSAGE_BYTES, &c->unary) : ST_NOMEM;
    if (st == ST_OK)
        *out = c;
    else
        free(c);
    return st;
}

void net_peer_destroy(struct net_peer_client *c)
{
    if (c)
        net_unary_destroy(c->unary);
    free(c);
}

void net_peer_cancel(struct net_peer_client *c)
{
    net_unary_cancel(c->unary);
}

enum status net_peer_control(struct net_peer_client *c, const struct net_control *request,
                             int64_t deadline_ms, struct net_control_reply *reply,
                             char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_pack_control(request, &m.request.data, &m.request.n));
    TRY(net_unary_call(c->unary, "/weir.v1.Weir/Coordinate", &m.request, deadline_ms, &m.reply,
                       m.why));
    st = message_unpack_control_reply(m.reply.data, m.reply.n, reply, m.why);
done:
    return net_unary_end(&m, st, why);
}

enum status net_peer_squares(struct net_peer_client *c, const struct net_squares *squares,
                             int64_t deadline_ms, struct net_squares_reply *reply,
                             char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_pack_squares(squares, &m.request.data, &m.request.n));
    TRY(net_unary_call(c->unary, "/weir.v1.Weir/Squares", &m.request, deadline_ms, &m.reply,
                       m.why));
    st = message_unpack_squares_reply(m.reply.data, m.reply.n, reply, m.why);
done:
    return net_unary_end(&m, st, why);
}

enum status net_peer_gate(struct net_peer_client *c, const struct net_gate *gate,
                          int64_t deadline_ms, struct net_squares_reply *reply,
                          char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_pack_gate(gate, &m.request.data, &m.request.n));
    TRY(net_unary_call(c->unary, "/weir.v1.Region/Gate", &m.request, deadline_ms, &m.reply, m.why));
    st = message_unpack_squares_reply(m.reply.data, m.reply.n, reply, m.why);
done:
    return net_unary_end(&m, st, why);
}
