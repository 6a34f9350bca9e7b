/* net/exchange/gate_client.c - see gate_client.h. */
#include "net/exchange/gate_client.h"
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/unary.h"
#include "net/wire/message.h"
#include <stdio.h>
#include <stdlib.h>

struct net_gate_client {
    struct net_unary *unary;
};

enum status net_gate_create(const char *addr, struct net_gate_client **out)
{
    struct net_gate_client *c = calloc(1, sizeof *c);
    if (!c)
        return ST_NOMEM;
    enum status st = net_unary_create(addr, RT_MAX_MESSAGE_BYTES, &c->unary);
    if (st == ST_OK)
        *out = c;
    else
        free(c);
    return st;
}

void net_gate_destroy(struct net_gate_client *c)
{
    if (!c)
        return;
    net_unary_destroy(c->unary);
    free(c);
}

enum status net_gate_call(struct net_gate_client *c, const struct net_gate *gate,
                          int64_t deadline_ms, struct net_squares_reply *reply,
                          char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_bytes out = {NULL, 0}, in = {NULL, 0};
    char text[MESSAGE_WHY_BYTES] = "out of memory";
    enum status st = ST_OK;
    TRY(message_pack_gate(gate, &out.data, &out.n));
    TRY(net_unary_call(c->unary, "/weir.v1.Region/Gate", &out, deadline_ms, &in, text));
    st = message_unpack_squares_reply(in.data, in.n, reply, text);
    if (st == ST_INVALID)
        st = ST_PROTOCOL;
done:
    if (st != ST_OK)
        snprintf(why, CONTROL_TEXT_BYTES, "%.*s", CONTROL_TEXT_BYTES - 1, text);
    free(out.data);
    free(in.data);
    return st;
}

void net_gate_cancel(struct net_gate_client *c)
{
    net_unary_cancel(c->unary);
}
