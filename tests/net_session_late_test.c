/* tests/net_session_late_test.c - the time until a session (net/exchange/session.h) reaches a
 * server that starts late, and the pauses between joins, without gRPC or a real clock. */
#include "net/exchange/session.h"
#include "tests/check.h"
#include <stdlib.h>

#define MS ((int64_t)1000000)

struct wait {
    struct session *s;
    int64_t now_ns;
};

static struct wait begin(void)
{
    const struct session_config cfg = {
        .max_servers = 2, .member = 0, .can_renew = 1, .wait_line_ms = 5000};
    struct wait w = {.s = calloc(1, session_bytes(2)), .now_ns = 7 * MS};
    assert_non_null(w.s);
    session_init(w.s, &cfg);
    return w;
}

static int joins(const struct session_out *out)
{
    int n = 0;
    for (int i = 0; i < out->n; i++)
        n += out->act[i].kind == ACTION_JOIN && out->act[i].link == 0;
    return n;
}

/* Passes an event to the session, then only timers until the next join. Returns the time between
 * them in ms. */
static int64_t pause_after(struct wait *w, const struct session_event *e)
{
    struct session_out out;
    const struct session_event timer = {.kind = EVENT_TIMER};
    int64_t begin_ns = w->now_ns;
    session_step(w->s, e, w->now_ns, &out);
    for (int i = 0; !joins(&out); i++) {
        assert_true(i < 100);
        w->now_ns = out.wake_ns;
        session_step(w->s, &timer, w->now_ns, &out);
    }
    assert_int_equal(joins(&out), 1);
    return (w->now_ns - begin_ns) / MS;
}

static const struct session_event started = {.kind = EVENT_START},
                                  failed = {.kind = EVENT_JOIN_FAILED, .st = ST_UNAVAILABLE},
                                  wait_more = {.kind = EVENT_JOIN_ANSWER, .answer = JOIN_RETRY};

/* The worker starts before its server. A join reaches the server within half a second after the
 * server's start, and the next joins follow quickly while the server makes its first plan. */
static void late_server_is_reached_soon(void **state)
{
    for (int n_failed = 1; n_failed < 60; n_failed += 29) {
        struct wait w = begin();
        int64_t last = pause_after(&w, &started);
        for (int i = 0; i < n_failed; i++) {
            int64_t pause = pause_after(&w, &failed);
            assert_true(pause >= last && pause <= 500);
            last = pause;
        }
        assert_true(n_failed < 30 || last == 500);
        for (int i = 0; i < 100; i++)
            assert_in_range(pause_after(&w, &wait_more), 0, 20);
        int64_t quick_ns = w.now_ns;
        while (pause_after(&w, &wait_more) <= 20) /* the session ends its quick joins */
            assert_true(w.now_ns - quick_ns < 3000 * MS);
        assert_in_range(pause_after(&w, &wait_more), 21, 500);
        free(w.s);
    }
}

/* The server has answered for a long time, stops, and is back: the session treats it like a server
 * that starts late. */
static void restarted_server_is_reached_soon(void **state)
{
    struct wait w = begin();
    pause_after(&w, &started);
    for (int i = 0; i < 1000; i++)
        pause_after(&w, &wait_more);
    assert_int_equal(pause_after(&w, &wait_more), 500);
    assert_int_equal(pause_after(&w, &failed), 500);
    assert_in_range(pause_after(&w, &wait_more), 0, 20);
    free(w.s);
}

int main(void)
{
    return RUN_TESTS(late_server_is_reached_soon, restarted_server_is_reached_soon);
}
