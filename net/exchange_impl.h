/* net/exchange_impl.h - what the exchange's files share. Private to them.
 * One lock covers all state of an exchange; it is never held while gRPC is called. */
#ifndef NET_EXCHANGE_IMPL_H
#define NET_EXCHANGE_IMPL_H
#include "base/buf.h"
#include "net/exchange.h"
#include "net/outq.h"
#include "net/rt.h"
#include <pthread.h>

enum { LINK_REASON_BYTES = 256 };

/* The one request that a chunk may have under way, and what is known of the chunk. */
struct chunk_state {
    struct net_exchange *x;
    struct net_out item;    /* kind PIECE_NONE: nothing under way */
    int queued;             /* waits in its link to be sent */
    size_t flying;          /* bytes of it that count in the link's */
    int refs;               /* payload slices of it that gRPC still holds */
    int n_waiters;          /* threads that wait for it to become ready */
    int64_t begin_ns;       /* of the request, for the trace; 0: not traced */
    struct buf *init_bytes; /* INIT: a copy of the first value, until it is answered */
    int64_t version;        /* held in params; -1: none */
    int over;               /* its last version of this generation is made */
};

/* Requests to be sent, one bit for each chunk: chunks of the first layers go first, because the
 * next forward needs them first. */
struct request_queue {
    uint64_t *bits;
    int lowest; /* no bit is set below this word */
    size_t n, bytes;
};

enum link_state {
    LINK_HELD, /* nothing to be done: not yet, or no more */
    LINK_DOWN, /* to join again at retry_ns */
    LINK_JOINING,
    LINK_STREAMING,
};

struct link {
    struct net_exchange *x;
    int index;  /* of the server; -1: not yet */
    char *addr; /* host:port */
    grpc_channel *channel;
    struct net_op join_op, meta_op, recv_op, send_op, status_op;
    grpc_byte_buffer *incoming, *outgoing;
    struct net_shared *arena; /* the server's versions, if it is on this host; NULL */
    int is_near, told;        /* it may be on this host; that it is has been logged */
    int64_t send_begin_ns, send_chunk, send_step; /* of the frame going out, for the trace */
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details;
    struct net_span *spans;
    size_t spans_room;
    int local; /* the connection stays within this host; set before the stream opens */

    enum link_state state; /* this and the following: x->lock */
    grpc_call *call;       /* join or stream; NULL between them */
    int n_ops;             /* of the stream */
    int sending, broken, joined, lost;
    int fetched; /* all its chunks' versions, in this generation */
    int retired; /* the server is not of this generation: nothing new may start */
    struct link *next_retired;
    int lends; /* the server has opened our segment */
    int64_t retry_ns, backoff_ms, line_ns, down_ns;
    struct net_frame_head head;
    struct request_queue queue;
    size_t flying; /* bytes sent that the server has neither answered nor said to have TAKEN */
    int stalled;   /* requests wait for that to become less */
};

struct net_exchange {
    struct net_exchange_config cfg;
    int n_chunks;
    enum dtype push_dtype, version_dtype;
    struct net_shared *segment; /* contributions that servers on this host read in place; NULL */
    uint8_t *staged; /* contributions as they cross the wire, n_elems of push_dtype, in the segment
                        if there is one; NULL: fp32, which goes out from where the caller has it */
    struct chunk_state *chunks;
    struct net_pollers *pollers;
    pthread_t keeper;
    int keeper_runs;

    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed; /* a link or `st` */
    pthread_cond_t ready;   /* a chunk that is waited for; `st` */
    pthread_cond_t work;    /* the keeper */
    enum status st;         /* ST_OK until something ends the exchange for good */
    int leaving, closing, n_leaves;
    uint64_t generation;    /* 0: before the first join; this and the following as ps 0 gave them */
    struct net_place place; /* in it; n_members 0: not given */
    int n_links;
    struct link **links;  /* to its servers; before the first join to ps 0 */
    int *server;          /* its shard map, n_chunks; NULL before the first join */
    struct link *retired; /* to be closed by the keeper */
    uint64_t heard;       /* the newest generation that a server has told */
    int starting;         /* a start waits for joins */
    int ending;           /* the generation is about to end, or has */
    int rebased;          /* it has: nothing goes on before the next start */
    int64_t reached;      /* the step that all chunks were at when it ended */
    int has_first_values; /* params, or those of them that were not fetched yet */
    int member;           /* this member's index; -1: not known yet */
    int soon;             /* leave_soon: 1 asked for, 2 ps 0 knows */
    int64_t n_refs;       /* sum of the chunks' */
    enum status leave_st;
    struct net_exchange_stats stats;
};

enum status link_create(struct net_exchange *x, const char *addr, struct link **out);
void link_close(struct link *l);   /* its channel; after link_cancel and link_idle */
void link_destroy(struct link *l); /* likewise, and all; when its last callback has returned */
/* Joins without delay when it is next down, which it is at once where it is held; under x->lock. */
void link_hurry(struct link *l);
void link_join(struct link *l); /* by the keeper; state is LINK_JOINING */
void link_cancel(struct link *l);
int link_idle(const struct link *l); /* under x->lock */
/* Sends the next frame if none is on its way; `eager`: however small it is. */
void link_pump(struct link *l, int eager);
void link_leave_soon(struct link *l); /* net_exchange_leave_soon's call */
void link_leave(struct link *l, const struct net_leave *leave, int64_t deadline_ms);

/* Ends the exchange with `st` unless it has ended already; wakes all. */
void exchange_fail(struct net_exchange *x, enum status st);
/* What stops requests and waits, and whether links may do anything new; both under the lock. */
enum status exchange_state(const struct net_exchange *x);
int exchange_goes_on(const struct net_exchange *x);

/* exchange_generation.c */

/* The servers are in another generation: gives up what is under way; the links' next joins wait
 * for net_exchange_start. */
void exchange_rebase(struct net_exchange *x);
/* ps 0 has told a new generation to a start: takes its shard map and its servers (out of the
 * reply, or not). ST_CANCELLED: nothing new may begin. */
enum status exchange_begin(struct net_exchange *x, struct net_join_reply *reply);
/* Within a generation ps 0 gives the same map again. */
enum status exchange_check_map(struct net_exchange *x, const struct net_join_reply *reply);

#endif
