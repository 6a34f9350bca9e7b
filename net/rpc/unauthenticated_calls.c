/* net/rpc/unauthenticated_calls.c - see unauthenticated_calls.h. */
#include "net/rpc/unauthenticated_calls.h"
#include "base/log.h"
#include <grpc/support/alloc.h>
#include <stdbool.h>
#include <string.h>

void unauthenticated_calls_init(struct unauthenticated_calls *l, int max)
{
    *l = (struct unauthenticated_calls){.max = max > 0 ? max : UNAUTHENTICATED_CALLS_MAX};
    pthread_mutex_init(&l->lock, NULL);
}

void unauthenticated_calls_free(struct unauthenticated_calls *l)
{
    pthread_mutex_destroy(&l->lock);
}

/* Removes a call from the list. The caller holds the lock. */
static void remove_call(struct unauthenticated_calls *l, struct unauthenticated_call *g)
{
    *(g->prev ? &g->prev->next : &l->oldest) = g->next;
    *(g->next ? &g->next->prev : &l->newest) = g->prev;
    g->call = NULL;
    l->n--;
}

/* Returns a hash (FNV-1a) of gRPC's text of the peer, for example "ipv4:10.0.0.7:51234", without
 * the port. */
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

void unauthenticated_calls_return(struct unauthenticated_calls *l, struct unauthenticated_call *g,
                                  grpc_call *call)
{
    uint64_t host = host_of(call);
    pthread_mutex_lock(&l->lock);
    if (!g->call) {
        *g = (struct unauthenticated_call){.call = call, .host = host, .prev = l->newest};
        *(l->newest ? &l->newest->next : &l->oldest) = g;
        l->newest = g;
        l->n++;
    }
    pthread_mutex_unlock(&l->lock);
}

bool unauthenticated_calls_leave(struct unauthenticated_calls *l, struct unauthenticated_call *g)
{
    pthread_mutex_lock(&l->lock);
    bool was_in = g->call != NULL;
    if (was_in)
        remove_call(l, g);
    pthread_mutex_unlock(&l->lock);
    return was_in;
}

static int count_host(const struct unauthenticated_calls *l, uint64_t host)
{
    int n = 0;
    for (const struct unauthenticated_call *g = l->oldest; g; g = g->next)
        n += g->host == host;
    return n;
}

/* Returns the oldest call of the host that has the most calls. If several hosts have that many, and
 * the host of the newest call is one of them, chooses that host. The caller holds the lock. */
static struct unauthenticated_call *weakest(struct unauthenticated_calls *l)
{
    struct unauthenticated_call *weakest = NULL;
    uint64_t host = l->newest->host;
    int most = count_host(l, host);
    for (struct unauthenticated_call *g = l->oldest; g; g = g->next) {
        int n = g->host == host ? 0 : count_host(l, g->host);
        if (n > most) {
            most = n;
            host = g->host;
        }
    }
    for (struct unauthenticated_call *g = l->newest; g; g = g->prev)
        if (g->host == host)
            weakest = g;
    return weakest;
}

/* Removes a call if there are too many. Returns a reference to it, or NULL. */
static grpc_call *remove_weakest(struct unauthenticated_calls *l)
{
    grpc_call *call = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->n > l->max) {
        struct unauthenticated_call *g = weakest(l);
        call = g->call;
        grpc_call_ref(call);
        remove_call(l, g);
    }
    pthread_mutex_unlock(&l->lock);
    return call;
}

void unauthenticated_calls_enter(struct unauthenticated_calls *l, struct unauthenticated_call *g,
                                 grpc_call *call)
{
    grpc_call *gone;
    unauthenticated_calls_return(l, g, call);
    while ((gone = remove_weakest(l))) {
        char *peer = grpc_call_get_peer(gone);
        LOG_FEW(
            "more than %d calls are open that are unfinished, or are of unknown peers; the server ends one from %s, whose host has the most such calls",
            l->max, peer);
        gpr_free(peer);
        grpc_call_cancel_with_status(gone, GRPC_STATUS_UNAVAILABLE,
                                     "the server has too many calls of unknown peers", NULL);
        grpc_call_unref(gone);
    }
}
