/* net/rpc/unauthenticated_calls.h - limits the number of calls whose senders have not shown that
 * they belong to the job.
 *
 * A peer can make a call use memory for half of the longest message, without time limit. So only a
 * limited number of calls may be open without such proof: calls whose request is not complete,
 * Watches, and streams over which no member has sent a frame. If one more call begins, the oldest
 * call of the host with the most calls ends. If the host of the new call has as many calls as that
 * host, its own oldest call ends instead. So a host that floods the list displaces its own calls.
 * Owns:    nothing; an entry is part of its call, and leaves the list before the call is freed.
 * Threads: any. gRPC is called, so the caller must not hold a lock.
 * Private to net/. */
#ifndef NET_RPC_UNAUTHENTICATED_CALLS_H
#define NET_RPC_UNAUTHENTICATED_CALLS_H
#include <grpc/grpc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { UNAUTHENTICATED_CALLS_MAX = 128 };

struct unauthenticated_call {
    grpc_call *call; /* the call; NULL: not on the list */
    uint64_t host;   /* hash of the peer's host */
    struct unauthenticated_call *next, *prev;
};

struct unauthenticated_calls {
    pthread_mutex_t lock;
    struct unauthenticated_call *oldest, *newest;
    int n, max;
};

void unauthenticated_calls_init(struct unauthenticated_calls *l,
                                int max); /* if max is 0, the limit is UNAUTHENTICATED_CALLS_MAX */
void unauthenticated_calls_free(struct unauthenticated_calls *l);
/* Adds a call as the newest, and ends calls until the list is within its limit. */
void unauthenticated_calls_enter(struct unauthenticated_calls *l, struct unauthenticated_call *g,
                                 grpc_call *call);
/* Adds a call as the newest, without ending any call. The call was on the list before, and had only
 * left it for some time. */
void unauthenticated_calls_return(struct unauthenticated_calls *l, struct unauthenticated_call *g,
                                  grpc_call *call);
/* Removes a call. Returns true if it was on the list. */
bool unauthenticated_calls_leave(struct unauthenticated_calls *l, struct unauthenticated_call *g);

#endif
