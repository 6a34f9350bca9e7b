/* net/exchange/link.h - one server, as the exchange sees it: its channel, the call under way and
 * what waits to be sent. Private to net/exchange, as exchange_impl.h, whose lock covers this, too.
 * Owns:    the channel, the call, what it maps of the server's memory.
 * Threads: gRPC's pollers call back; see the members for what is under x->lock.
 * Errors:  a call that fails is told to the session. */
#ifndef NET_EXCHANGE_LINK_H
#define NET_EXCHANGE_LINK_H
#include "net/exchange/exchange.h"
#include "net/exchange/session.h"
#include "net/rpc/bidi.h"
#include "net/rpc/channel.h"
#include "net/rpc/send_queue.h"
#include "net/rpc/unary_batch.h"

struct server_set;

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
    struct grpc_runtime_op join_op; /* with `join`: of the join under way */
    struct unary_batch join;
    struct bidi stream;
    struct segment_name offered; /* the server's memory, by its last answer */
    struct segment *arena;       /* the server's versions, if it is on this host; NULL */
    int told;                    /* that it is has been logged */
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
/* Tells the session something about the link, and does what it says. */
void exchange_session_step_link(struct link *l, struct session_event *e);
/* The link's call has ended, as e says. set: the answer's servers, to be turned to; or NULL. */
void exchange_session_end_call(struct link *l, struct session_event *e, const char *reason,
                               struct server_set *set);
void exchange_session_report_busy(struct link *l); /* where n_under_way and told_busy differ */
void exchange_session_unuse_link(struct link *l);

#endif
