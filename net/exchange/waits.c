/* net/exchange/waits.c - see waits.h. */
#include "net/exchange/waits.h"
#include "base/clock.h"
#include "net/exchange/exchange_impl.h"
#include <stdio.h>
#include <string.h>

/* Returns a server that the session needs, but has no connection to; -1: no such server. The caller
 * holds the lock. */
static int find_unconnected(const struct session *s)
{
    int n = s->state == SESSION_ASKING || s->state == SESSION_REBASED ? 1 : s->n_links;
    for (int i = 0; i < n && s->state <= SESSION_REBASED; i++)
        if (s->link[i].phase != LINK_STREAMING && s->link[i].phase != LINK_HELD && !s->link[i].idle)
            return i;
    return -1;
}

/* Returns the server that owns the first chunk for which a caller waits. The caller holds the
 * lock. */
static int find_awaited(const struct net_exchange *x)
{
    for (int i = 0; x->server && i < x->n_chunks; i++)
        if (x->chunks[i].n_waiters > 0)
            return x->server[i];
    return 0;
}

/* Returns true if a chunk that is not skipped is ready, or will not become ready in this generation
 * (then *st is ST_REBASED). The caller holds the lock. */
static bool find_ready(const struct net_exchange *x, const uint8_t *skip, int64_t step, int *chunk,
                       enum status *st)
{
    for (int i = 0; i < x->n_chunks; i++) {
        const struct exchange_chunk *c = &x->chunks[i];
        if (skip[i] || (!c->ended && !exchange_is_ready(c, step)))
            continue;
        *chunk = i;
        *st = c->ended ? ST_REBASED : ST_OK;
        return true;
    }
    return false;
}

/* Adds n to the number of waiters of each chunk that is not skipped. The caller holds the lock. */
static void add_waiters(struct net_exchange *x, const uint8_t *skip, int n)
{
    for (int i = 0; i < x->n_chunks; i++)
        x->chunks[i].n_waiters += skip[i] ? 0 : n;
}

enum status net_exchange_wait_any(struct net_exchange *x, const uint8_t *skip, int64_t step,
                                  int *chunk)
{
    net_exchange_flush(x);
    pthread_mutex_lock(&x->lock);
    enum status st = exchange_session_status(x);
    exchange_begin_wait(x);
    while (st == ST_OK && !find_ready(x, skip, step, chunk, &st)) {
        add_waiters(x, skip, 1);
        /* returns after answers, failures and net_exchange_cancel */
        pthread_cond_wait(&x->ready, &x->lock);
        add_waiters(x, skip, -1);
        st = exchange_session_status(x);
    }
    x->n_waiting--;
    x->left_ns = 0;
    pthread_mutex_unlock(&x->lock);
    return st;
}

void net_exchange_waits(struct net_exchange *x, struct net_exchange_wait *out)
{
    pthread_mutex_lock(&x->lock);
    int lost = find_unconnected(x->session);
    int server = lost >= 0 ? lost : find_awaited(x);
    const struct link *l = x->links[server < x->n_links ? server : 0];
    *out = (struct net_exchange_wait){.server = server};
    if (exchange_is_waiting(x))
        out->ms = (clock_now_ns() - x->waits_ns) / 1000000;
    snprintf(out->address, sizeof out->address, "%s", l->addr);
    if (lost >= 0)
        memcpy(out->reason, l->reason, sizeof out->reason);
    out->is_asked = lost >= 0 && x->session->link[lost].answers;
    out->is_said = x->logged_ns >= x->waits_ns;
    bool is_in = x->session->state == SESSION_RUNNING || x->session->state == SESSION_ENDING;
    out->step = is_in ? exchange_lowest_version(x) : -1;
    out->generation = x->session->generation;
    pthread_mutex_unlock(&x->lock);
}
