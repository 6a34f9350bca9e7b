/* member/job_query.c - repeats the request for the status, with longer deadlines after timeouts;
 * see job_query.h. */
#include "member/job_query.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/exchange/status_client.h"
#include <stdio.h>

enum {
    /* Deadline of the first call and longest deadline: each timeout doubles it. A lookup lasts 5 s
     * if the name server does not answer; a packet that is too large for the network path costs 7
     * s. */
    ASK_MS = 5000,
    ASK_MOST_MS = 20000,
    FIRST_PAUSE_MS = 50,
    MAX_PAUSE_MS = 1000,
    FIRST_LINE_MS = 3000,
    LINE_MS = 5000
};

/* Returns NULL if a worker can join the job, otherwise the reason. Sets *done to 1 if no worker can
 * ever join the job, otherwise to 0. */
static const char *what_is_missing(const struct net_status *s, int *done)
{
    *done = s->state == STATE_DONE;
    if (*done)
        return "its job is done";
    if (s->generation == 0 || s->job.n_workers == 0 || !s->chunks)
        return "it has no job yet";
    return NULL;
}

static enum status ask_once(const struct job_query_request *r, int64_t *ask_ms,
                            struct net_status *out, int *again, char why[CONTROL_TEXT_BYTES])
{
    struct net_status s;
    int done;
    enum status st = status_client_ask(r->addr, 1, *ask_ms, &s, why);
    *again = st == ST_UNAVAILABLE || st == ST_DEADLINE;
    if (st == ST_DEADLINE && *ask_ms < ASK_MOST_MS)
        *ask_ms *= 2;
    if (st != ST_OK)
        return st;
    const char *missing = what_is_missing(&s, &done);
    if (!missing) {
        *out = s;
        return ST_OK;
    }
    *again = !done;
    snprintf(why, CONTROL_TEXT_BYTES, "%s", missing);
    net_status_free(&s);
    return ST_NOT_FOUND;
}

enum status job_query_ask(const struct job_query_request *r, struct net_status *out)
{
    char why[CONTROL_TEXT_BYTES];
    int64_t begin = clock_now_ns(), line_ns = begin + FIRST_LINE_MS * (int64_t)1000000;
    int64_t ask_ms = ASK_MS;
    for (int ms = FIRST_PAUSE_MS, again;; ms = ms * 2 < MAX_PAUSE_MS ? ms * 2 : MAX_PAUSE_MS) {
        enum status st = ask_once(r, &ask_ms, out, &again, why);
        if (st == ST_OK)
            return ST_OK;
        if (!again) {
            LOG_E("--join: ps:0 (%s): %s", r->addr, why);
            return st;
        }
        int64_t now = clock_now_ns();
        if (now >= line_ns) {
            LOG_W("--join: waiting for ps:0 (%s), %lld s so far: %s", r->addr,
                  (long long)((now - begin) / 1000000000), why);
            line_ns = now + LINE_MS * (int64_t)1000000;
        }
        if (r->pause(r->ctx, ms))
            return ST_CANCELLED;
    }
}
