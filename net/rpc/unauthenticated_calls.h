/* net/rpc/unauthenticated_calls.h - the calls of whom nobody here knows, and how many of them there
 * may be.
 *
 * A call may hold half of the longest message for as long as its peer likes. So there is room for
 * some calls whose sender has not shown that it belongs here: those whose request is not complete,
 * Watches, streams over which no member speaks. One more ends the oldest of the host that has most
 * (the newcomer's, if it has as many): who floods the list displaces its own.
 * Owns:    nothing; a guest is part of its call, and leaves before that goes.
 * Threads: any. gRPC is called, so none of our locks may be held.
 * Private to net/. */
#ifndef NET_RPC_UNAUTHENTICATED_CALLS_H
#define NET_RPC_UNAUTHENTICATED_CALLS_H
#include <grpc/grpc.h>
#include <pthread.h>
#include <stdint.h>

enum { GUESTS_MAX = 128 };

struct net_guest {
    grpc_call *call; /* NULL: it is not on the list */
    uint64_t host;   /* of its peer, a hash */
    struct net_guest *next, *prev;
};

struct net_guests {
    pthread_mutex_t lock;
    struct net_guest *oldest, *newest;
    int n, max;
};

void net_guests_init(struct net_guests *l, int max); /* max 0: GUESTS_MAX */
void net_guests_free(struct net_guests *l);
/* Comes last; those that are too many by then are ended. */
void net_guests_enter(struct net_guests *l, struct net_guest *g, grpc_call *call);
/* Likewise, but ends nobody, itself the newest: it was no guest before. */
void net_guests_return(struct net_guests *l, struct net_guest *g, grpc_call *call);
/* 1: it was there. */
int net_guests_leave(struct net_guests *l, struct net_guest *g);

#endif
