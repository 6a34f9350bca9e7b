/* tests/sim/net.h - the network as gRPC shows it: connections, calls and streams, not packets.
 * Order within one direction of a stream, none between calls. A connection that breaks loses a
 * suffix of what was sent, each way, and each end learns of it at its own time: after a death at
 * once, after a cut or the loss of a host by its keepalive.
 * Owns:    what is in flight. Threads: one. Errors: none. */
#ifndef TESTS_SIM_NET_H
#define TESTS_SIM_NET_H
#include "net/rpc/server.h"
#include "tests/sim/sim.h"

enum sim_call_kind {
    CALL_JOIN,
    CALL_LEAVE,
    CALL_CONTROL,
    CALL_SQUARES,
    CALL_GATE,
    CALL_TOY,
    CALL_EXCHANGE
};
enum { UP, DOWN }; /* directions: to the server, to the client; also ends: of the server, client */

struct sim_conn;
struct sim_call {
    enum sim_call_kind kind;
    int client, server;
    uint64_t id;
    void *request, *reply; /* of the run's memory, or borrowed for it */
    enum status st;        /* at the client: what became of it */
    int answered, ended;   /* by the server; at the client */
    void *user;            /* the client's own */
    const void *waiter;    /* a fiber of the client waits on it; NULL: none */
    struct sim_conn *conn; /* NULL: it never got one */
    struct sim_call *next; /* of the connection */
    struct sim_call *next_waiting;
};

struct sim_msg {
    struct sim_msg *next;
    int64_t at;
    struct net_frame_head head;
    struct net_piece_lite {
        enum piece_kind kind;
        uint32_t chunk, crc32c;
        uint64_t step;
        float weight;
        enum dtype dtype;
        uint64_t samples; /* down */
    } piece;
    uint64_t position;   /* of a contribution's first sample */
    uint64_t identity;   /* of a contribution, the same when it is sent again */
    size_t bytes;        /* of data or payload */
    const void *data;    /* up */
    struct buf *payload; /* down: a reference */
    uint32_t crc_sent;   /* of the payload as it was then: versions never change (I1) */
    int last;            /* the stream ends behind it */
};

struct net_stream { /* one Exchange call */
    struct sim_conn *conn;
    int client, server, cookie;
    uint64_t id;
    int open[2]; /* by end */
    struct {
        struct sim_msg *first, **end;
        int64_t last_at;
    } queue[2];              /* by direction */
    void *user[2];           /* by end: its own */
    struct net_stream *next; /* of the connection */
};

void sim_net_reset(void);
void sim_net_finish(void); /* gives back what is still in flight */
void sim_net_event(struct sim_event *e);
void sim_net_node_died(int node, int power);
void sim_net_cut(int from, int to, int by); /* by: 1, -1 */
void sim_net_reset_pair(int a, int b);
void sim_net_slow(int a, int b, int on);
int sim_net_reachable(int a, int b);

/* A client's. deadline 0: none. The reply, or why there is none, comes by ops->reply. */
struct sim_call *sim_call(int client, int server, enum sim_call_kind kind, void *request,
                          int64_t deadline);
void sim_call_cancel(struct sim_call *c);              /* no reply comes any more */
void sim_call_answer(struct sim_call *c, void *reply); /* the server's */
/* Control calls that wait at a server, by number. */
void sim_control_add(struct sim_call *c);
void sim_control_answer(int server, uint64_t call, const void *reply);
/* NULL: there is no connection. */
struct net_stream *sim_stream_open(int client, int server);
void sim_stream_cancel(struct net_stream *s); /* by the client; ops->closed is not called there */
void sim_stream_push(struct net_stream *s, int direction, struct sim_msg *m);
/* Each stream that is open at that server. */
void sim_streams_each(int server, void (*fn)(struct net_stream *s));

#endif
