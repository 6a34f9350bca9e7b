/* net/exchange/link.h - one server from the exchange's view: its channel, the current call and
 * the requests in the queue. Private to net/exchange; the lock of exchange_impl.h covers it.
 * Owns:    the channel, the call, its mapping of the server's memory.
 * Threads: gRPC's pollers call back. x->lock guards `index` and the fields below it.
 * Errors:  a call that fails is an event for the session. */
#ifndef NET_EXCHANGE_LINK_H
#define NET_EXCHANGE_LINK_H
#include "net/exchange/exchange.h"
#include "net/exchange/session.h"
#include "net/rpc/bidi.h"
#include "net/rpc/channel.h"
#include "net/rpc/send_queue.h"
#include "net/rpc/unary_batch.h"
#include <stdbool.h>

struct server_set;

/* Queue of requests, one bit for each chunk. Chunks of the first layers are sent first, because
 * the next forward pass needs them first. */
struct request_queue {
    uint64_t *bits;
    int lowest; /* index in `bits`: no bit is set below this word */
    size_t n, bytes;
};

/* State of one server for the exchange. */
struct link {
    struct net_exchange *x;
    char *addr; /* host:port */
    struct net_channel *channel;
    struct grpc_runtime_op join_op; /* operation of the current join, with `join` */
    struct unary_batch join;
    struct bidi stream;
    struct segment_name offered; /* name of the server's memory, from its last answer */
    struct segment *arena;       /* segment with the server's versions, if it is on this host;
                                    NULL: none */
    /* named: values_serial of the memory that the last join named; opened: values_serial of the
     * memory that the server has opened to write; 0: none */
    int named, opened;
    bool told; /* use of the shared memory has been logged */
    /* frame that is being sent, for the trace: start time, first chunk, step of this chunk */
    int64_t send_begin_ns, send_chunk, send_step;
    struct net_span *spans;
    size_t spans_room;
    /* copy of a change that was in the server's memory; NULL: none was received yet */
    uint8_t *change;

    int index; /* number of the server; -1: not yet known. x->lock guards this field and the fields
                  below */
    grpc_call *call;         /* reference to the call of the join or stream; NULL: there is
                                no call */
    bool calling, cancelled; /* calling: a call is active or about to start; cancelled: it
                                must end */
    bool up;                 /* requests can be sent over the stream */
    bool received;           /* a message has arrived over the stream */
    /* time of the last failed join, and for how long all joins have failed; 0: no join has
     * failed */
    int64_t failed_ns, silent_ns;
    bool retired; /* the server is not in this generation, and the session has no such
                    link */
    int n_users;  /* threads that carry out an action on this link */
    struct link *next_retired;
    char reason[BIDI_REASON_BYTES]; /* reason why the last call ended */
    bool fetched;       /* versions of all the server's chunks have arrived in this generation */
    bool lends;         /* the server has mapped this program's segment */
    bool places;        /* the server may write versions to this program's params */
    int n_under_way;    /* number of pending requests */
    bool reported_busy; /* the session's last report of pending requests was "busy" */
    struct net_frame_head head;
    struct request_queue queue;
    size_t in_flight; /* bytes sent that the server has acknowledged neither by an answer nor by
                         TAKEN */
    bool stalled;     /* true: requests wait until in_flight is smaller */
    bool is_near;     /* the server's host is near (net_channel_answered), and the server answers
                         within NEAR_MS */
    /* n_acked: acknowledgements since is_near was checked; fastest_ns: duration of the fastest of
     * these */
    int n_acked;
    int64_t fastest_ns;
};

enum status link_create(struct net_exchange *x, const char *addr, struct link **out);
void link_close(struct link *l); /* closes the channel; no call may be active */
/* Closes and frees the link, whose last callback must have returned. */
void link_destroy(struct link *l);
bool link_idle(const struct link *l); /* under x->lock */
/* Returns true if payloads have checksums: the server is on another host, and no TLS checks its
 * bytes. */
bool link_is_summed(const struct link *l);
/* Starts the join that the session orders. The functions below carry out the session's other
 * actions. */
void link_join(struct link *l, const struct session_action *a);
void link_open(struct link *l, const struct session_action *a);
void link_cancel(struct link *l);
void link_leave(struct link *l, const struct session_action *a);
void link_pump(struct link *l, bool eager); /* sends the next frame; eager: even a small one */
/* Passes an event of the link to the session and carries out its actions. */
void exchange_session_step_link(struct link *l, struct session_event *e);
/* Reports to the session, by e, that the link's call has ended. set: the servers in the answer,
 * which the exchange will use from now on; NULL: it keeps its servers. */
void exchange_session_end_call(struct link *l, struct session_event *e, const char *reason,
                               struct server_set *set);
/* Reports "busy" or "idle" to the session; called if n_under_way and reported_busy differ. */
void exchange_session_report_busy(struct link *l);
void exchange_session_unuse_link(struct link *l);

#endif
