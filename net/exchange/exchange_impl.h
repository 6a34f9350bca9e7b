/* net/exchange/exchange_impl.h - what its files share. One lock covers all; it is never held while
 * gRPC is called. The session decides (session.h) under it; its actions are done without it. */
#ifndef NET_EXCHANGE_EXCHANGE_IMPL_H
#define NET_EXCHANGE_EXCHANGE_IMPL_H
#include "base/buf.h"
#include "net/exchange/exchange.h"
#include "net/exchange/session.h"
#include "net/rpc/bidi.h"
#include "net/rpc/channel.h"
#include "net/rpc/send_queue.h"
#include "net/rpc/unary_batch.h"

/* The one request that a chunk may have under way, and what is known of the chunk. */
struct chunk_state {
    struct net_exchange *x;
    struct net_out item;    /* kind PIECE_NONE: nothing under way */
    int queued;             /* waits in its link to be sent */
    size_t in_flight;       /* bytes of it that count in the link's */
    int refs;               /* payload slices of it that gRPC still holds */
    int n_waiters;          /* threads that wait for it to become ready */
    int64_t begin_ns;       /* of the request, for the trace; 0: not traced */
    struct buf *init_bytes; /* INIT: a copy of the first value, until it is answered */
    int64_t version;        /* held in params; -1: none */
    int ended;              /* its last version of this generation is made */
};

/* Requests to be sent, one bit for each chunk: chunks of the first layers go first, because the
 * next forward needs them first. */
struct request_queue {
    uint64_t *bits;
    int lowest; /* no bit is set below this word */
    size_t n, bytes;
};

/* One server, as the exchange sees it. */
struct link {
    struct net_exchange *x;
    char *addr; /* host:port */
    struct net_channel *channel;
    struct net_op join_op; /* with `join`: of the join under way */
    struct unary_batch join;
    struct bidi stream;
    struct net_shared_name offered; /* the server's memory, by its last answer */
    struct net_shared *arena;       /* the server's versions, if it is on this host; NULL */
    int told;                       /* that it is has been logged */
    int64_t send_begin_ns, send_chunk, send_step; /* of the frame going out, for the trace */
    struct net_span *spans;
    size_t spans_room;
    uint8_t *change; /* room for one that lay in the server's memory; NULL: none did yet */

    int index;                    /* of the server; -1: not yet; this and the following: x->lock */
    grpc_call *call;              /* join or stream, a reference; NULL: not there yet, or gone */
    int calling, cancelled;       /* one is under way, or about to be; it is to end */
    int up;                       /* the stream takes requests */
    int received;                 /* a message came over it */
    int64_t failed_ns, silent_ns; /* its last join that failed, and for how long all have; 0 */
    int retired; /* the server is not of this generation: the session knows nothing of it */
    int n_users; /* threads that carry an action out */
    struct link *next_retired;
    char reason[BIDI_REASON_BYTES]; /* why the last call ended */
    int fetched;                    /* all its chunks' versions, in this generation */
    int lends;                      /* the server has opened our segment */
    int n_under_way, told_busy;     /* requests; whether the session knows of any */
    struct net_frame_head head;
    struct request_queue queue;
    size_t in_flight; /* bytes sent that the server has neither answered nor said to have TAKEN */
    int stalled;      /* requests wait for that to become less */
};

/* Servers of a generation, as links: those that are kept, new ones, and those to be retired. */
struct server_set {
    struct link **links, **gone;
    int n, n_gone;
    int *from;   /* [n]: the link's present number; -1: a new one */
    int *server; /* shard map */
    char *idle;  /* [n]: 1: no chunk is there */
};

struct net_exchange {
    struct net_exchange_config cfg;
    int n_chunks;
    enum dtype push_dtype, version_dtype;
    struct net_shared *segment; /* contributions that servers on this host read in place; NULL */
    uint8_t *staged; /* contributions as they are sent (chunks_wire_at); NULL: fp32, in place */
    int stages_in_segment, proposed; /* `staged` is there; wire_auto_propose has measured */
    struct residuals *residuals;     /* NULL: nothing is kept of what rounding takes off */
    struct chunk_state *chunks;
    int *fragment; /* each chunk's; NULL: all go in each step (fragments.h) */
    struct net_pollers *pollers;
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

enum status link_create(struct net_exchange *x, const char *addr, struct link **out);
void link_close(struct link *l);     /* its channel; when nothing is under way on it */
void link_destroy(struct link *l);   /* likewise, and all; when its last callback has returned */
int link_idle(const struct link *l); /* under x->lock */
/* The session's actions. */
void link_join(struct link *l, const struct session_action *a);
void link_open(struct link *l, const struct session_action *a);
void link_cancel(struct link *l);
void link_leave(struct link *l, const struct session_action *a);
void link_pump(struct link *l, int eager); /* the next frame; eager: however small it is */
/* Tells the session, and does what it says; link_step: something about that link. */
void exchange_step(struct net_exchange *x, const struct session_event *e);
void link_step(struct link *l, struct session_event *e);
/* The link's call has ended, as e says. set: the answer's servers, to be turned to; or NULL. */
void link_end_call(struct link *l, struct session_event *e, const char *reason,
                   struct server_set *set);
void link_tell_busy(struct link *l); /* where n_under_way and told_busy differ */
void link_unuse(struct link *l);
void exchange_fail(struct net_exchange *x, enum status st);
int exchange_ask_if_over(struct net_exchange *x); /* under the lock, which it gives up meanwhile */
void exchange_notify(const struct net_exchange *x); /* by event_fd; under x->lock */
/* What requests and waits end with: ST_OK, ST_REBASED, or why the session failed; under x->lock. */
enum status exchange_status(const struct net_exchange *x);

/* Where reply's servers and map lead: what the session is to be told is put into *e. *out: to be
 * given to server_set_free; it is taken by server_set_install. ST_NOMEM: logged. */
enum status server_set_make(struct net_exchange *x, const struct net_join_reply *reply,
                            struct session_event *e, struct server_set *out);
void server_set_install(struct net_exchange *x, struct server_set *set); /* under x->lock */
/* What it still holds; `gone` are cancelled. */
void server_set_free(struct server_set *set);

#endif
