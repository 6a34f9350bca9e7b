/* net/exchange/fetch_client.c - see fetch_client.h. */
#include "net/exchange/fetch_client.h"
#include "base/clock.h"
#include "net/rpc/unary.h"
#include "net/wire/message.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    FETCH_AGAIN_MS = 100,
    QUICK_MS = 1000, /* after a quicker message, the next one may be larger */
    SLOW_MS = 4000,  /* after a slower message, the next one should be smaller */
};

struct fetch_client {
    struct net_unary *unary;
    pthread_mutex_t lock; /* guards `cancelled` */
    pthread_cond_t wake;
    bool cancelled; /* fetch_client_cancel was called after the last run ended */
};

enum status fetch_client_create(const char *addr, struct fetch_client **out)
{
    struct fetch_client *c = calloc(1, sizeof *c);
    if (!c)
        return ST_NOMEM;
    enum status st = net_unary_create(addr, FETCH_MESSAGE_BYTES, &c->unary);
    if (st != ST_OK) {
        free(c);
        return st;
    }
    pthread_mutex_init(&c->lock, NULL);
    clock_cond_init(&c->wake);
    *out = c;
    return ST_OK;
}

void fetch_client_destroy(struct fetch_client *c)
{
    if (!c)
        return;
    net_unary_destroy(c->unary);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void fetch_client_cancel(struct fetch_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->cancelled = 1;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    net_unary_cancel(c->unary);
}

static bool is_cancelled(struct fetch_client *c)
{
    pthread_mutex_lock(&c->lock);
    bool cancelled = c->cancelled;
    pthread_mutex_unlock(&c->lock);
    return cancelled;
}

/* Waits until the time, or until the run is cancelled. */
static void rest_until(struct fetch_client *c, int64_t ns)
{
    pthread_mutex_lock(&c->lock);
    while (!c->cancelled && clock_cond_wait(&c->wake, &c->lock, ns) == 0)
        ;
    pthread_mutex_unlock(&c->lock);
}

/* Sends one request, and processes its reply. */
static enum status call(struct fetch_client *c, const struct net_fetch_request *request, int64_t ms,
                        struct message_fetched *to, char why[MESSAGE_WHY_BYTES])
{
    struct net_unary_bytes out = {NULL, 0}, in = {NULL, 0};
    enum status st = ST_OK;
    to->n = request->n;
    to->chunk = request->chunk;
    to->n_received = 0;
    to->has_after = request->has_after;
    to->after = request->after;
    snprintf(why, MESSAGE_WHY_BYTES, "out of memory");
    TRY(message_fetch_pack(request, &out.data, &out.n));
    st = net_unary_call(c->unary, "/weir.v1.Weir/Fetch", &out, ms, &in, why);
    if (st == ST_REFUSED) /* new certificates or tokens may change the peer's decision */
        st = ST_UNAVAILABLE;
    TRY(st);
    st = message_fetch_reply_unpack(in.data, in.n, to, why);
    if (st == ST_INVALID)
        st = ST_PROTOCOL;
done:
    free(out.data);
    free(in.data);
    return st;
}

/* n: chunks to request in the next message; most: limit of this number. A message that fails is
 * lost as a whole, and its progress is not visible, so messages on a slow link contain fewer
 * chunks. */
struct pace {
    int n, most;
};

static void pace_ok(struct pace *p, int64_t ns)
{
    if (ns < QUICK_MS * INT64_C(1000000))
        p->n = p->n <= p->most / 2 ? p->n * 2 : p->most;
    else if (ns > SLOW_MS * INT64_C(1000000) && p->n > 1)
        p->n /= 2;
}

static enum status run(struct fetch_client *c, struct net_fetch_request rest, int64_t stall_ms,
                       struct message_fetched *to, char why[MESSAGE_WHY_BYTES])
{
    struct pace pace = {1, FETCH_REPLY_CHUNKS};
    int64_t deadline_ns = clock_deadline_ns(stall_ms);
    while (rest.n > 0) {
        struct net_fetch_request part = rest;
        int64_t now = clock_now_ns();
        if (is_cancelled(c)) {
            snprintf(why, MESSAGE_WHY_BYTES, "cancelled");
            return ST_CANCELLED;
        }
        if (now >= deadline_ns)
            return ST_DEADLINE; /* `why` already describes the last call */
        part.n = rest.n < pace.n ? rest.n : pace.n;
        enum status st = call(c, &part, (deadline_ns - now) / 1000000 + 1, to, why);
        if (st == ST_OK) {
            rest.n -= to->n_received;
            rest.chunk += to->n_received;
            rest.has_after = to->has_after;
            rest.after = to->after;
            pace_ok(&pace, clock_now_ns() - now);
            deadline_ns = clock_deadline_ns(stall_ms);
            snprintf(why, MESSAGE_WHY_BYTES, "no data since the last chunk");
        } else if (st == ST_DEADLINE) {
            snprintf(why, MESSAGE_WHY_BYTES, "no data for %" PRId64 " s", stall_ms / 1000);
            if (part.n > 1) /* the message may have been too large */
                deadline_ns = clock_deadline_ns(stall_ms);
            pace = (struct pace){1, 1};
        } else if (st == ST_UNAVAILABLE) {
            int64_t again_ns = clock_deadline_ns(FETCH_AGAIN_MS);
            rest_until(c, again_ns < deadline_ns ? again_ns : deadline_ns);
        } else if (st != ST_CANCELLED) { /* a cancelled run ends at is_cancelled above */
            return st;
        }
    }
    return ST_OK;
}

enum status fetch_client_run(struct fetch_client *c, const struct net_fetch_request *request,
                             int64_t stall_ms,
                             enum status (*receive)(void *ctx, const struct net_fetched *chunk),
                             void *ctx, char why[CONTROL_TEXT_BYTES])
{
    char text[MESSAGE_WHY_BYTES] = "the deadline has passed";
    struct message_fetched to = {.receive = receive, .ctx = ctx};
    enum status st = run(c, *request, stall_ms, &to, text);
    pthread_mutex_lock(&c->lock);
    c->cancelled = false;
    pthread_mutex_unlock(&c->lock);
    if (st != ST_OK)
        snprintf(why, CONTROL_TEXT_BYTES, "%.*s", CONTROL_TEXT_BYTES - 1, text);
    return st;
}
