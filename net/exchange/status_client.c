/* net/exchange/status_client.c - see status_client.h. */
#include "net/exchange/status_client.h"
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/reasons.h"
#include "net/rpc/unary.h"
#include "net/wire/message.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes one call over its own channel. If no connection was made, nothing was sent, so it tries
 * once more: gRPC before 1.61 may read another call's errno after connect(), and then aborts a
 * connection in progress, for example with "No such file or directory" (grpc/grpc#35064). */
static enum status call(const char *addr, const char *method, struct net_unary_messages *m,
                        int64_t deadline_ms)
{
    struct net_unary *u;
    enum status st = net_unary_create(addr, GRPC_RUNTIME_MAX_MESSAGE_BYTES, &u);
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

bool status_client_is_refused(const char *why)
{
    return strstr(why, NET_REASON_REFUSED) != NULL;
}

enum status status_client_ask(const char *addr, int with_model, int64_t deadline_ms,
                              struct net_status *out, char *why)
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_status_request_pack(&(struct net_status_request){with_model, 0}, &m.request.data,
                                    &m.request.n));
    TRY(call(addr, "/weir.v1.Weir/Status", &m, deadline_ms));
    st = message_status_unpack(m.reply.data, m.reply.n, out, m.why);
done:
    return net_unary_end(&m, st, why);
}

/* Number of failed calls after which a server counts as unanswered while the channel is being
 * established. One failed call is too few, since a silent name server costs 5 s, and TLS several
 * round trips. MOST_FAILED calls of one second each, with pauses of half a second, last longer than
 * both together. They end before the time (20 s) at which keepalive ends the member's own
 * connection to a server that hangs. Over an established channel a call needs one round trip, so
 * one missed deadline is enough. */
enum { MOST_FAILED = 5 };

struct status_asker {
    struct net_unary *unary;
    bool is_established; /* a call was answered, and no connection was lost since then */
    int n_failed;        /* successive calls that failed, at most MOST_FAILED */
};

enum status status_asker_create(const char *addr, struct status_asker **out)
{
    struct status_asker *a = calloc(1, sizeof *a);
    enum status st =
        a ? net_unary_create(addr, GRPC_RUNTIME_MAX_MESSAGE_BYTES, &a->unary) : ST_NOMEM;
    if (st == ST_OK)
        *out = a;
    else
        free(a);
    return st;
}

void status_asker_destroy(struct status_asker *a)
{
    if (a)
        net_unary_destroy(a->unary);
    free(a);
}

/* Counts a call that ended with this status. An error other than ST_DEADLINE and ST_UNAVAILABLE is
 * an answer of the server, or an error of the caller. */
static void count(struct status_asker *a, enum status st)
{
    if (st == ST_DEADLINE && a->is_established)
        a->n_failed = MOST_FAILED;
    else if (st == ST_DEADLINE || st == ST_UNAVAILABLE)
        a->n_failed += a->n_failed < MOST_FAILED;
    else
        a->n_failed = 0;
    a->is_established = st == ST_OK || (a->is_established && st != ST_UNAVAILABLE);
}

enum status status_asker_ask(struct status_asker *a, int64_t deadline_ms, struct net_status *out,
                             char *why)
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_status_request_pack(&(struct net_status_request){0, 0}, &m.request.data,
                                    &m.request.n));
    TRY(net_unary_call(a->unary, "/weir.v1.Weir/Status", &m.request, deadline_ms, &m.reply, m.why));
    st = message_status_unpack(m.reply.data, m.reply.n, out, m.why);
done:
    count(a, st);
    st = net_unary_end(&m, st, why);
    if (st == ST_DEADLINE)
        snprintf(why, CONTROL_TEXT_BYTES, "no answer");
    return st;
}

bool status_asker_is_unanswered(const struct status_asker *a)
{
    return a->n_failed == MOST_FAILED;
}

enum status status_client_send_command(const char *addr, const struct net_command *command,
                                       int64_t deadline_ms, struct net_command_reply *out,
                                       char *why)
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_command_pack(command, &m.request.data, &m.request.n));
    TRY(call(addr, "/weir.v1.Weir/Command", &m, deadline_ms));
    st = message_command_reply_unpack(m.reply.data, m.reply.n, out, m.why);
done:
    return net_unary_end(&m, st, why);
}

struct status_client {
    struct net_unary *unary;
};

enum status status_client_create(const char *addr, struct status_client **out)
{
    struct status_client *e = calloc(1, sizeof *e);
    enum status st =
        e ? net_unary_create(addr, GRPC_RUNTIME_MAX_MESSAGE_BYTES, &e->unary) : ST_NOMEM;
    if (st == ST_OK)
        *out = e;
    else
        free(e);
    return st;
}

void status_client_destroy(struct status_client *e)
{
    if (e)
        net_unary_destroy(e->unary);
    free(e);
}

enum status status_client_send_evaluation(struct status_client *e,
                                          const struct net_evaluation *evaluation,
                                          int64_t deadline_ms, struct net_evaluation_reply *out,
                                          char *why)
{
    struct net_unary_messages m = {.why = "out of memory"};
    enum status st = ST_OK;
    TRY(message_evaluation_pack(evaluation, &m.request.data, &m.request.n));
    TRY(net_unary_call(e->unary, "/weir.v1.Weir/Evaluate", &m.request, deadline_ms, &m.reply,
                       m.why));
    st = message_evaluation_reply_unpack(m.reply.data, m.reply.n, out, m.why);
done:
    return net_unary_end(&m, st, why);
}
