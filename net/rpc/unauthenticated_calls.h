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

enum { UNAUTHENTICATED_CALLS_MAX = 128 };

struct unauthenticated_call {
    grpc_call *call; /* NULL: it is not on the list */
    uint64_t host;   /* of its peer, a hash */
    struct unauthenticated_call *next, *prev;
};

struct unauthenticated_calls {
    pthread_mutex_t lock;
    struct unauthenticated_call *oldest, *newest;
    int n, max;
};

void unauthenticated_calls_init(struct unauthenticated_calls *l,
                                int max); /* max 0: UNAUTHENTICATED_CALLS_MAX */
void unauthenticated_calls_free(struct unauthenticated_calls *l);
/* Comes last; those that are too many by then are ended. */
void unauthenticated_calls_enter(struct unauthenticated_calls *l, struct unauthenticated_call *g,
                                 grpc_call *call);
/* Likewise, but ends nobody, itself the newest: it was no guest before. */
void unauthenticated_calls_return(struct unauthenticated_calls *l, struct unauthenticated_call *g,
                                  grpc_call *call);
/* 1: it was there. */
int unauthenticated_calls_leave(struct unauthenticated_calls *l, struct unauthenticated_call *g);

#endif
