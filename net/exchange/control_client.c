/* net/exchange/control_client.c - see control.h. */
#include "net/exchange/control_client.h"
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/unary.h"
#include "net/wire/message.h"
#include "net/wire/plan.h"
#include <stdio.h>
#include <stdlib.h>

struct net_control_client {
    struct net_unary *unary;
};

enum status net_control_create(const char *addr, struct net_control_client **out)
{
    struct net_control_client *c = calloc(1, sizeof *c);
    if (!c)
        return ST_NOMEM;
    enum status st = net_unary_create(addr, RT_MAX_MESSAGE_BYTES, &c->unary);
    if (st == ST_OK)
        *out = c;
    else
        free(c);
    return st;
}

void net_control_destroy(struct net_control_client *c)
{
    if (!c)
        return;
    net_unary_destroy(c->unary);
    free(c);
}

enum status net_control_call(struct net_control_client *c, const struct net_control *request,
                             int64_t deadline_ms, struct net_control_reply *reply,
                             char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_bytes out = {NULL, 0}, in = {NULL, 0};
    char text[MESSAGE_WHY_BYTES] = "out of memory";
    enum status st = ST_OK;
    TRY(message_pack_control(request, &out.data, &out.n));
    TRY(net_unary_call(c->unary, "/weir.v1.Weir/Coordinate", &out, deadline_ms, &in, text));
    st = message_unpack_control_reply(in.data, in.n, reply, text);
    if (st == ST_INVALID)
        st = ST_PROTOCOL;
done:
    if (st != ST_OK)
        snprintf(why, CONTROL_TEXT_BYTES, "%.*s", CONTROL_TEXT_BYTES - 1, text);
    free(out.data);
    free(in.data);
    return st;
}

void net_control_free(struct net_control *control)
{
    free(control->missing);
    free(control->parts);
    control->missing = NULL;
    control->parts = NULL;
    control->n_missing = control->n_parts = 0;
}

void net_control_reply_free(struct net_control_reply *reply)
{
    net_plan_free(reply->plan);
    free(reply->kept);
    reply->plan = NULL;
    reply->kept = NULL;
    reply->n_kept = 0;
}

void net_control_cancel(struct net_control_client *c)
{
    net_unary_cancel(c->unary);
}
