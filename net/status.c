/* net/status.c - see status.h. */
#include "net/status.h"
#include "net/message.h"
#include "net/rt.h"
#include "net/unary.h"
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
static enum status ask(const char *addr, const char *method, const struct net_unary_bytes *request,
                       int64_t deadline_ms, struct net_unary_bytes *reply,
                       char text[MESSAGE_WHY_BYTES])
{
    struct net_unary *u;
    enum status st = net_unary_create(addr, RT_MAX_MESSAGE_BYTES, &u);
    if (st != ST_OK)
        return st;
    st = net_unary_call(u, method, request, deadline_ms, reply, text);
    net_unary_destroy(u);
    return st;
}

static void keep_why(enum status st, const char *text, char *why)
{
    if (st != ST_OK)
        snprintf(why, CONTROL_TEXT_BYTES, "%.*s", CONTROL_TEXT_BYTES - 1, text);
}

enum status net_status_ask(const char *addr, int with_model, int64_t deadline_ms,
                           struct net_status *out, char *why)
{
    struct net_unary_bytes request = {NULL, 0}, reply = {NULL, 0};
    char text[MESSAGE_WHY_BYTES] = "out of memory";
    enum status st = ST_OK;
    TRY(message_pack_status_request(with_model, &request.data, &request.n));
    TRY(ask(addr, "/weir.v1.Weir/Status", &request, deadline_ms, &reply, text));
    st = message_unpack_status(reply.data, reply.n, out, text);
    if (st == ST_INVALID)
        st = ST_PROTOCOL;
done:
    keep_why(st, text, why);
    free(request.data);
    free(reply.data);
    return st;
}

enum status net_command_send(const char *addr, const struct net_command *command,
                             int64_t deadline_ms, struct net_command_reply *out, char *why)
{
    struct net_unary_bytes request = {NULL, 0}, reply = {NULL, 0};
    char text[MESSAGE_WHY_BYTES] = "out of memory";
    enum status st = ST_OK;
    TRY(message_pack_command(command, &request.data, &request.n));
    TRY(ask(addr, "/weir.v1.Weir/Command", &request, deadline_ms, &reply, text));
    st = message_unpack_command_reply(reply.data, reply.n, out, text);
    if (st == ST_INVALID)
        st = ST_PROTOCOL;
done:
    keep_why(st, text, why);
    free(request.data);
    free(reply.data);
    return st;
}
