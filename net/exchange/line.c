/* net/exchange/line.c - see line.h. */
#include "net/exchange/line.h"
#include "base/clock.h"
#include "net/exchange/status_client.h"
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/unary.h"
#include "net/wire/message.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALL_MS = 5000,
    ALL_MS = 2000,  /* time after which no further call starts */
    N_SMALL = 3,    /* calls that measure the round trip */
    LONG_TRIPS = 8, /* a long call lasts more round trips than this, and more than LONG_S */
};
#define LONG_S 0.5
/* Padding of the calls that measure the rate. The first calls also let TCP's congestion window
 * grow, which doubles with each round trip of a new connection. */
static const size_t pads[] = {64 << 10, 256 << 10, STATUS_MAX_PAD_BYTES, STATUS_MAX_PAD_BYTES};
enum { N_PADS = sizeof pads / sizeof pads[0] };
static const double local_rtt_s = 0.005, local_bytes_per_s = 100e6 / 8, share = 0.2;

/* Makes one call with `pad` more bytes in each direction. */
static enum status call(struct net_unary *u, size_t pad, double *seconds, bool *has_job,
                        char why[CONTROL_TEXT_BYTES])
{
    struct net_unary_bytes request = {NULL, 0}, reply = {NULL, 0};
    struct net_status status;
    char text[MESSAGE_WHY_BYTES] = "out of memory";
    enum status st = ST_OK;
    TRY(message_status_request_pack(&(struct net_status_request){0, pad}, &request.data,
                                    &request.n));
    int64_t began = clock_now_ns();
    TRY(net_unary_call(u, "/weir.v1.Weir/Status", &request, CALL_MS, &reply, text));
    *seconds = (double)(clock_now_ns() - began) * 1e-9;
    TRY(message_status_unpack(reply.data, reply.n, &status, text));
    *has_job = status.generation > 0 && status.state != STATE_DONE;
    net_status_free(&status);
done:
    if (st != ST_OK)
        snprintf(why, CONTROL_TEXT_BYTES, "%.*s", CONTROL_TEXT_BYTES - 1, text);
    free(request.data);
    free(reply.data);
    return st;
}

static bool is_loopback(const char *addr)
{
    static const char *const start[] = {"127.", "localhost:", "[::1]:"};
    for (size_t i = 0; i < sizeof start / sizeof start[0]; i++)
        if (strncmp(addr, start[i], strlen(start[i])) == 0)
            return true;
    return false;
}

/* Measures the rate with each padding in turn, until two successive calls were long. One long call
 * may have waited for something else, but two show that the line is slow. */
static enum status measure_rate(struct net_unary *u, struct net_line *l,
                                char why[CONTROL_TEXT_BYTES])
{
    enum status st = ST_OK;
    double seconds;
    int64_t end = clock_deadline_ns(ALL_MS);
    for (int i = 0, n_long = 0; i < N_PADS && !l->has_job && n_long < 2; i++) {
        if (i > 1 && clock_now_ns() >= end && !n_long)
            break;
        /* measures again after a long call, which may have waited for something else */
        int at = i - n_long;
        st = call(u, pads[at], &seconds, &l->has_job, why);
        if (st == ST_DEADLINE)
            seconds = 1e-3 * CALL_MS;
        TRY(st == ST_DEADLINE ? ST_OK : st);
        double moved = seconds - l->rtt_s > 1e-6 ? seconds - l->rtt_s : 1e-6;
        /* the highest rate counts, because a call may have waited for something else */
        double rate = 2 * (double)pads[at] / moved;
        l->bytes_per_s = rate > l->bytes_per_s ? rate : l->bytes_per_s;
        n_long = moved > LONG_S && moved > LONG_TRIPS * l->rtt_s ? n_long + 1 : 0;
    }
    st = ST_OK;
done:
    return st;
}

enum status net_line_measure(const char *addr, struct net_line *out, char why[CONTROL_TEXT_BYTES])
{
    struct net_unary *u = NULL;
    struct net_line l = {.rtt_s = 1e9};
    double seconds;
    enum status st = net_unary_create(addr, GRPC_RUNTIME_MAX_MESSAGE_BYTES, &u);
    if (st != ST_OK) {
        snprintf(why, CONTROL_TEXT_BYTES, "out of memory");
        return st;
    }
    TRY(call(u, 0, &seconds, &l.has_job, why)); /* includes the time to connect */
    for (int i = 0; i < N_SMALL && !l.has_job; i++) {
        TRY(call(u, 0, &seconds, &l.has_job, why));
        l.rtt_s = seconds < l.rtt_s ? seconds : l.rtt_s;
    }
    l.is_loopback = is_loopback(addr);
    if (!l.is_loopback && !l.has_job)
        TRY(measure_rate(u, &l, why));
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
    int local = l->is_loopback || (l->rtt_s < local_rtt_s && l->bytes_per_s >= local_bytes_per_s);
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
    if (l->is_loopback)
        snprintf(text, LINE_TEXT_BYTES,
                 "%s: ps:0 is on this host, so the link counts as a local network", name);
    else if (local)
        snprintf(
            text, LINE_TEXT_BYTES,
            "%s: %.0f Mbit/s and %.1f ms of round-trip time, so the link counts as a local network",
            name, l->bytes_per_s * 8e-6, l->rtt_s * 1e3);
    else
        snprintf(
            text, LINE_TEXT_BYTES,
            "%s: %.3g Mbit/s and %.0f ms of round-trip time; an exchange of %.1f MB lasts %.2f s and is due every %.2f s (%d steps of %.0f ms)%s",
            name, l->bytes_per_s * 8e-6, l->rtt_s * 1e3, 2e-6 * bytes, takes, between, use->steps,
            use->step_s * 1e3, takes > share * between ? "; use more steps between exchanges" : "");
    return order[i];
}
