/* net/rpc/unauthenticated_calls.c - see unauthenticated_calls.h. */
#include "net/rpc/unauthenticated_calls.h"
#include "base/log.h"
#include <grpc/support/alloc.h>
#include <string.h>

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

/* Of "ipv4:10.0.0.7:51234" all before the port: FNV-1a. */
static uint64_t host_of(grpc_call *call)
{
    char *peer = grpc_call_get_peer(call);
    const char *colon = strrchr(peer, ':');
    uint64_t hash = 0xcbf29ce484222325;
    for (const char *c = peer; *c && c != colon; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3;
    gpr_free(peer);
    return hash;
}

void net_guests_return(struct net_guests *l, struct net_guest *g, grpc_call *call)
{
    uint64_t host = host_of(call);
    pthread_mutex_lock(&l->lock);
    if (!g->call) {
        *g = (struct net_guest){.call = call, .host = host, .prev = l->newest};
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

static int count_host(const struct net_guests *l, uint64_t host)
{
    int n = 0;
    for (const struct net_guest *g = l->oldest; g; g = g->next)
        n += g->host == host;
    return n;
}

/* The oldest of the host that has most; the newest is the newcomer. Under the lock. */
static struct net_guest *weakest(struct net_guests *l)
{
    struct net_guest *weakest = NULL;
    uint64_t host = l->newest->host;
    int most = count_host(l, host);
    for (struct net_guest *g = l->oldest; g; g = g->next) {
        int n = g->host == host ? 0 : count_host(l, g->host);
        if (n > most) {
            most = n;
            host = g->host;
        }
    }
    for (struct net_guest *g = l->newest; g; g = g->prev)
        if (g->host == host)
            weakest = g;
    return weakest;
}

/* One, where there are too many: its call, a reference; NULL. */
static grpc_call *take_weakest(struct net_guests *l)
{
    grpc_call *call = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->n > l->max) {
        struct net_guest *g = weakest(l);
        call = g->call;
        grpc_call_ref(call);
        take_out(l, g);
    }
    pthread_mutex_unlock(&l->lock);
    return call;
}

void net_guests_enter(struct net_guests *l, struct net_guest *g, grpc_call *call)
{
    grpc_call *gone;
    net_guests_return(l, g, call);
    while ((gone = take_weakest(l))) {
        char *peer = grpc_call_get_peer(gone);
        LOG_FEW("more than %d calls of unknown peers, or unfinished ones, are open; one from %s, "
                "whose host has most, ends",
                l->max, peer);
        gpr_free(peer);
        grpc_call_cancel_with_status(gone, GRPC_STATUS_UNAVAILABLE,
                                     "the server has too many calls of unknown peers", NULL);
        grpc_call_unref(gone);
    }
}
