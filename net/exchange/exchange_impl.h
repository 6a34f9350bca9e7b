/* net/exchange/exchange_impl.h - what its files share. One lock covers all; it is never held while
 * gRPC is called. The session decides (session.h) under it; its actions are done without it. */
#ifndef NET_EXCHANGE_EXCHANGE_IMPL_H
#define NET_EXCHANGE_EXCHANGE_IMPL_H
#include "base/buf.h"
#include "base/guarded.h"
#include "net/exchange/exchange.h"
#include "net/exchange/link.h"
#include "net/exchange/server_set.h"
#include "net/exchange/session.h"
#include "net/rpc/send_queue.h"

/* The one request that a chunk may have under way, and what is known of the chunk. */
struct exchange_chunk {
    struct net_exchange *x;
    struct send_queue_item item; /* kind PIECE_NONE: nothing under way */
    int queued;                  /* waits in its link to be sent */
    size_t in_flight;            /* bytes of it that count in the link's */
    int refs;                    /* payload slices of it that gRPC still holds */
    int n_waiters;               /* threads that wait for it to become ready */
    int64_t begin_ns;            /* of the request, for the trace; 0: not traced */
    struct buf *init_bytes;      /* INIT: a copy of the first value, until it is answered */
    int64_t version;             /* held in params; -1: none */
    int ended;                   /* its last version of this generation is made */
};

struct net_exchange {
    struct net_exchange_config cfg;
    int n_chunks;
    enum dtype push_dtype, version_dtype;
    struct segment *segment; /* contributions that servers on this host read in place; NULL */
    uint8_t *staged; /* contributions as they are sent (chunks_wire_at); NULL: fp32, in place */
    int stages_in_segment, proposed; /* `staged` is there; wire_auto_propose has measured */
    struct residuals *residuals;     /* NULL: nothing is kept of what rounding takes off */
    struct exchange_chunk *chunks;
    int *fragment; /* each chunk's; NULL: all go in each step (fragments.h) */
    struct grpc_runtime_pollers *pollers;
    pthread_t reconnect_thread;
    int reconnect_runs;

    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed; /* the session, or a link's calls */
    pthread_cond_t ready;   /* a chunk that is waited for; the session's status */
    pthread_cond_t work;    /* for the reconnect thread */
    struct session *session;
    enum status st;             /* what it failed with, once the line that says why is written */
    int64_t wake_ns;            /* when it wants a TIMER */
    int64_t over_asked_ms;      /* how long ps 0 was silent as is_over was asked; 0: not yet */
    int closing, n_waiting;     /* callers of net_exchange_start and _wait */
    _Atomic int64_t waits_ns;   /* time at which the first of them came, or of the last answer */
    int64_t left_ns;            /* when the last one's deadline passed; 0: it got its answer */
    int64_t said_ns;            /* when a line named a server that is not reached */
    int n_begun, n_out, n_left; /* STARTs and LEAVEs that came to their end */
    int n_leaves;               /* calls under way */
    int64_t leave_ms;           /* how long each may take */
    char leave_error[LEAVE_ERROR_BYTES]; /* what they say */
    enum status leave_st;
    int n_links;
    struct link **links;        /* to its servers; before the first join to ps 0 */
    int *server;                /* the shard map, n_chunks; NULL before the first join */
    struct link *retired;       /* to be destroyed by the reconnect thread */
    struct server_set *offered; /* by the answer that the session is told of; NULL: none */
    int64_t reached;            /* the step that all chunks were at when the generation ended */
    int64_t n_refs;             /* sum of the chunks' */
    uint64_t samples;           /* net_exchange_samples */
    struct net_exchange_stats stats;
};

/* Tells the session, and does what it says. */
void exchange_session_step(struct net_exchange *x, const struct session_event *e);
void exchange_session_fail(struct net_exchange *x, enum status st);
/* Releases the lock while it reads the folder. */
int exchange_session_ask_if_over(struct net_exchange *x) REQUIRES(x->lock);
void exchange_begin_wait(struct net_exchange *x); /* notes that a caller waits; under x->lock */
/* Returns true while a caller waits, also between two slices of a wait: Python waits in slices so
 * that signals are handled. Under x->lock. */
int exchange_is_waiting(const struct net_exchange *x);
void exchange_session_notify(const struct net_exchange *x); /* by event_fd; under x->lock */
/* What requests and waits end with: ST_OK, ST_REBASED, or why the session failed; under x->lock. */
enum status exchange_session_status(const struct net_exchange *x);

#endif
