/* net/exchange/report_client.c - see report_client.h. */
#include "net/exchange/report_client.h"
#include "net/rpc/unary.h"
#include <stdlib.h>

enum { REPLY_BYTES = 1024 };

struct report_client {
    struct net_unary *unary;
};

enum status report_client_create(const char *addr, struct report_client **out)
{
    struct report_client *r = calloc(1, sizeof *r);
    enum status st = r ? net_unary_create(addr, REPLY_BYTES, &r->unary) : ST_NOMEM;
    if (st == ST_OK)
        *out = r;
    else
        free(r);
    return st;
}

void report_client_destroy(struct report_client *r)
{
    if (r)
        net_unary_destroy(r->unary);
    free(r);
}

enum status report_client_send(struct report_client *r, const struct net_report *report,
                               int64_t deadline_ms, int *next_ms)
{
    struct net_unary_bytes request = {NULL, 0}, reply = {NULL, 0};
    struct net_report_reply answer;
    char why[MESSAGE_WHY_BYTES];
    enum status st = ST_OK;
    TRY(message_report_pack(report, &request.data, &request.n));
    TRY(net_unary_call(r->unary, "/weir.v1.Reports/Report", &request, deadline_ms, &reply, why));
    TRY(message_report_reply_unpack(reply.data, reply.n, &answer, why));
    *next_ms = answer.next_ms;
done:
    free(request.data);
    free(reply.data);
    return st;
}

void report_client_cancel(struct report_client *r)
{
    net_unary_cancel(r->unary);
}
