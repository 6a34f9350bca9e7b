/* net/guests.c - see guests.h. */
#include "net/guests.h"
#include "base/clock.h"
#include "base/log.h"
#include <grpc/support/alloc.h>

enum { GUESTS_LINE_MS = 5000 };

void net_guests_init(struct net_guests *l, int max)
{
    *l = (struct net_guests){.max = max > 0 ? max : GUESTS_MAX};
    pthread_mutex_init(&l->lock, NULL);
}

void net_guests_free(struct net_guests *l)
{
    pthread_mutex_destroy(&l->lock);
}

/* Under the lock. */
static void take_out(struct net_guests *l, struct net_guest *g)
{
    *(g->prev ? &g->prev->next : &l->oldest) = g->next;
    *(g->next ? &g->next->prev : &l->newest) = g->prev;
    g->call = NULL;
    l->n--;
}

void net_guests_return(struct net_guests *l, struct net_guest *g, grpc_call *call)
{
    pthread_mutex_lock(&l->lock);
    if (!g->call) {
        *g = (struct net_guest){.call = call, .prev = l->newest};
        *(l->newest ? &l->newest->next : &l->oldest) = g;
        l->newest = g;
        l->n++;
    }
    pthread_mutex_unlock(&l->lock);
}

int net_guests_leave(struct net_guests *l, struct net_guest *g)
{
    pthread_mutex_lock(&l->lock);
    int was_in = g->call != NULL;
    if (was_in)
        take_out(l, g);
    pthread_mutex_unlock(&l->lock);
    return was_in;
}

/* The oldest, where there are too many: its call, a reference; NULL. *line: it is time to say so.
 */
static grpc_call *take_oldest(struct net_guests *l, int *line)
{
    grpc_call *call = NULL;
    pthread_mutex_lock(&l->lock);
    *line = 0;
    if (l->n > l->max) {
        call = l->oldest->call;
        grpc_call_ref(call);
        take_out(l, l->oldest);
        *line = clock_now_ns() >= l->line_ns;
        if (*line)
            l->line_ns = clock_deadline_ns(GUESTS_LINE_MS);
    }
    pthread_mutex_unlock(&l->lock);
    return call;
}

void net_guests_enter(struct net_guests *l, struct net_guest *g, grpc_call *call)
{
    int line;
    grpc_call *oldest;
    net_guests_return(l, g, call);
    while ((oldest = take_oldest(l, &line))) {
        if (line) {
            char *peer = grpc_call_get_peer(oldest);
            LOG_W("more than %d calls of strangers, or unfinished ones, are open; the oldest end, "
                  "such as one from %s",
                  l->max, peer);
            gpr_free(peer);
        }
        grpc_call_cancel_with_status(oldest, GRPC_STATUS_UNAVAILABLE,
                                     "the server has too many calls of strangers", NULL);
        grpc_call_unref(oldest);
    }
}
