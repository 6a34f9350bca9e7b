/* net/exchange_impl.h - what exchange.c and link.c share. Private to them.
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
    int index;        /* of the server */
    const char *addr; /* host:port */
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
    int fetched;     /* all its chunks' versions, since the start */
    int had_fetched; /* in any generation */
    int lends;       /* the server has opened our segment */
    int64_t retry_ns, backoff_ms, line_ns, down_ns;
    struct net_frame_head head;
    struct request_queue queue;
    size_t flying; /* bytes sent that the server has neither answered nor said to have TAKEN */
    int stalled;   /* requests wait for that to become less */
};

struct net_exchange {
    struct net_exchange_config cfg;
    int n_links, n_chunks;
    enum dtype push_dtype, version_dtype;
    struct net_shared *segment; /* contributions that servers on this host read in place; NULL */
    uint8_t *staged; /* contributions as they cross the wire, n_elems of push_dtype, in the segment
                        if there is one; NULL: fp32, which goes out from where the caller has it */
    struct link *links;
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
    uint64_t generation; /* that all links are in; 0: before the first join */
    int rebased;         /* the servers are in another one: nothing goes on before the next start */
    int64_t n_refs;      /* sum of the chunks' */
    int *server;         /* shard map, n_chunks; NULL before ps 0 has answered */
    struct net_place place; /* as ps 0 last gave it */
    enum status leave_st;
    struct net_exchange_stats stats;
};

enum status link_open(struct net_exchange *x, int index);
void link_close(struct link *l); /* after link_cancel and link_idle */
void link_join(struct link *l);  /* by the keeper; state is LINK_JOINING */
void link_cancel(struct link *l);
int link_idle(const struct link *l); /* under x->lock */
/* Sends the next frame if none is on its way; `eager`: however small it is. */
void link_pump(struct link *l, int eager);
void link_leave(struct link *l, const uint8_t *data, size_t bytes, int64_t deadline_ms);

/* Ends the exchange with `st` unless it has ended already; wakes all. */
void exchange_fail(struct net_exchange *x, enum status st);
/* The servers are in another generation: gives up what is under way; the links' next joins wait
 * for net_exchange_start. */
void exchange_rebase(struct net_exchange *x, uint64_t generation);
/* Takes the shard map from ps 0 (freed or kept). */
enum status exchange_take_map(struct net_exchange *x, int *server, int n_chunks);

/* request.c: what the chunks have under way. */

/* One answer from a server. Not ST_OK: the rest of the frame is not looked at. */
enum status request_answer(struct link *l, const struct net_piece *piece);
/* Sets the first request of each chunk of the link. */
enum status request_first(struct link *l, int init);
/* Asks for version `step` of a chunk, or a later one if that is gone. */
enum status request_version(struct net_exchange *x, int chunk, int64_t step, enum dtype dtype);
/* Puts every unanswered request of the link in its queue; under x->lock. */
void request_queue_all(struct link *l);
/* Takes the requests of the next frame: copies to `items`, to which the batch points, each with a
 * reference to its bytes; under x->lock. Returns their number. */
int request_take(struct link *l, struct outq_batch *batch, struct net_out *items);
/* Nothing is queued any more; under x->lock. */
void request_queue_clear(struct link *l);
/* Neither requests nor versions of any chunk count any more; under x->lock. */
void request_forget_all(struct net_exchange *x);

#endif
