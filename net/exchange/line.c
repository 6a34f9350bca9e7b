/* net/exchange/line.c - see line.h. */
#include "net/exchange/line.h"
#include "base/clock.h"
#include "net/exchange/status_client.h"
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/unary.h"
#include "net/wire/message.h"
#include <stdio.h>
#include <stdlib.h>

enum {
    CALL_MS = 5000,
    ALL_MS = 2000, /* after so long no further call is begun */
    N_SMALL = 3,
    LONG_TRIPS = 8,
};
#define LONG_S 0.5
/* TCP gets going meanwhile: what a new connection may have under way doubles with each round trip.
 */
static const size_t pads[] = {64 << 10, 256 << 10, STATUS_MAX_PAD_BYTES, STATUS_MAX_PAD_BYTES};
enum { N_PADS = sizeof pads / sizeof pads[0] };
static const double local_rtt_s = 0.005, local_bytes_per_s = 100e6 / 8, share = 0.2;

/* One call with so many bytes more there and back. */
static enum status call(struct net_unary *u, size_t pad, double *seconds, int *has_job,
                        char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_bytes request = {NULL, 0}, reply = {NULL, 0};
    struct net_status status;
    char text[MESSAGE_WHY_BYTES] = "out of memory";
    enum status st = ST_OK;
    TRY(message_pack_status_request(0, pad, &request.data, &request.n));
    int64_t began = clock_now_ns();
    TRY(net_unary_call(u, "/weir.v1.Weir/Status", &request, CALL_MS, &reply, text));
    *seconds = (double)(clock_now_ns() - began) * 1e-9;
    TRY(message_unpack_status(reply.data, reply.n, &status, text));
    *has_job = status.generation > 0;
    net_status_free(&status);
done:
    if (st != ST_OK)
        snprintf(why, CONTROL_TEXT_BYTES, "%.*s", CONTROL_TEXT_BYTES - 1, text);
    free(request.data);
    free(reply.data);
    return st;
}

enum status net_line_measure(const char *addr, struct net_line *out, char why[CONTROL_TEXT_BYTES])
{
    struct net_unary *u = NULL;
    struct net_line l = {.rtt_s = 1e9};
    double seconds;
    enum status st = net_unary_create(addr, RT_MAX_MESSAGE_BYTES, &u);
    if (st != ST_OK) {
        snprintf(why, CONTROL_TEXT_BYTES, "out of memory");
        return st;
    }
    TRY(call(u, 0, &seconds, &l.has_job, why)); /* it connects */
    int64_t end = clock_deadline_ns(ALL_MS);
    for (int i = 0; i < N_SMALL && !l.has_job; i++) {
        TRY(call(u, 0, &seconds, &l.has_job, why));
        l.rtt_s = seconds < l.rtt_s ? seconds : l.rtt_s;
    }
    for (int i = 0; i < N_PADS && !l.has_job && (i == 0 || clock_now_ns() < end); i++) {
        seconds = 1e-3 * CALL_MS;
        st = call(u, pads[i], &seconds, &l.has_job, why);
        TRY(st == ST_DEADLINE ? ST_OK : st); /* it says enough */
        double moved = seconds - l.rtt_s > 1e-6 ? seconds - l.rtt_s : 1e-6;
        double rate = 2 * (double)pads[i] / moved; /* the best: others waited for something else */
        l.bytes_per_s = rate > l.bytes_per_s ? rate : l.bytes_per_s;
        if (st == ST_DEADLINE || (moved > LONG_S && moved > LONG_TRIPS * l.rtt_s))
            break; /* it is the rate that takes so long */
    }
    st = ST_OK;
    *out = l;
done:
    net_unary_destroy(u);
    return st;
}

enum dtype net_line_choose(const struct net_line *l, const struct net_line_use *use,
                           char text[LINE_TEXT_BYTES])
{
    static const enum dtype order[] = {DTYPE_F32, DTYPE_INT8, DTYPE_INT4};
    enum { N = sizeof order / sizeof order[0], BLOCK = DTYPE_BLOCK_MAX };
    int local = l->rtt_s < local_rtt_s && l->bytes_per_s >= local_bytes_per_s;
    double between = use->steps * use->step_s, bytes = 0, takes = 0;
    int i = 0;
    for (;; i++) {
        double part = (double)dtype_bytes(order[i], BLOCK) / (double)dtype_bytes(DTYPE_F32, BLOCK);
        bytes = use->bytes * part;
        takes = l->rtt_s + 2 * bytes / l->bytes_per_s;
        if (local || takes <= share * between || i == N - 1)
            break;
    }
    const char *name = dtype_name(order[i]);
    if (local)
        snprintf(text, LINE_TEXT_BYTES, "%s: %.0f Mbit/s, %.1f ms, as in a local network", name,
                 l->bytes_per_s * 8e-6, l->rtt_s * 1e3);
    else
        snprintf(text, LINE_TEXT_BYTES,
                 "%s: %.3g Mbit/s, %.0f ms, %.1f MB a round -> %.2f s of %.2f s (%d steps of "
                 "%.0f ms)%s",
                 name, l->bytes_per_s * 8e-6, l->rtt_s * 1e3, 2e-6 * bytes, takes, between,
                 use->steps, use->step_s * 1e3,
                 takes > share * between ? "; more steps from one exchange to the next would help"
                                         : "");
    return order[i];
}
