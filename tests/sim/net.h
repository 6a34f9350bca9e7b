/* tests/sim/net.h - the network at the level of gRPC: connections, calls and streams, not packets.
 * Messages of one direction of a stream arrive in order; calls have no order. A connection that
 * breaks loses the last messages of each direction. Each end is informed at its own time: after the
 * death of a process at once, after a cut or the loss of a host by its keepalive.
 * Owns:    messages in flight.
 * Threads: one.
 * Errors:  none. */
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
/* UP: direction to the server, or the server's end; DOWN: direction to the client, or its end */
enum { UP, DOWN };

struct sim_conn;
struct sim_call {
    enum sim_call_kind kind;
    int client, server;
    uint64_t id;
    void *request, *reply; /* messages in the run's memory, or borrowed for the run */
    enum status st;        /* result at the client */
    /* answered: the server has answered; ended: the call has ended at the client */
    bool answered, ended;
    void *user;            /* pointer that belongs to the client */
    const void *waiter;    /* object that a fiber of the client waits on; NULL: none */
    struct sim_conn *conn; /* NULL: no connection could be made */
    struct sim_call *next; /* next call of the connection */
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
        float weight, rate;
        bool has_rate;
        enum dtype dtype;
        uint64_t samples;     /* only downwards */
        bool lacks;           /* only in direction UP: the contribution has no gradient */
        bool ask_taken;       /* only upwards */
        uint32_t rows, reads; /* numbers of keys of a bucket's payload (net/wire/rows.h) */
    } piece;
    uint64_t position;   /* index of a contribution's first sample */
    uint64_t identity;   /* number of the contribution; a repeated one has the same number */
    size_t bytes;        /* length of data or payload */
    const void *data;    /* only upwards */
    struct buf *payload; /* only in direction DOWN: a reference to the payload */
    uint32_t crc_sent;   /* CRC of the payload as it was sent: versions never change (I1) */
    bool is_last;        /* the stream ends after this message */
};

struct net_stream { /* an Exchange call */
    struct sim_conn *conn;
    int client, server, cookie;
    uint64_t id;
    bool open[2]; /* ends at which the stream is open */
    struct {
        struct sim_msg *first, **end;
        int64_t last_at;
    } queue[2];              /* queues by direction */
    void *user[2];           /* pointers that belong to the ends */
    struct net_stream *next; /* next stream of the connection */
};

void sim_net_reset(void);
void sim_net_finish(void); /* releases the payloads that are still in flight */
void sim_net_event(struct sim_event *e);
void sim_net_node_died(int node, bool power);
void sim_net_cut(int from, int to, int by); /* 1 begins a cut, -1 ends it */
void sim_net_reset_pair(int a, int b);
void sim_net_slow(int a, int b, int by);
bool sim_net_is_reachable(int a, int b);

/* Starts a call of a client. deadline 0: none. ops->reply receives the call with its result. */
struct sim_call *sim_call(int client, int server, enum sim_call_kind kind, void *request,
                          int64_t deadline);
void sim_call_cancel(struct sim_call *c);              /* ops->reply is not called any more */
void sim_call_answer(struct sim_call *c, void *reply); /* called at the server */
/* Keeps a control call until its server calls sim_control_answer with the id of the call. */
void sim_control_add(struct sim_call *c);
void sim_control_answer(int server, uint64_t call, const void *reply);
/* Returns NULL if no connection can be made. */
struct net_stream *sim_stream_open(int client, int server);
void sim_stream_cancel(struct net_stream *s); /* closes the client's end, without ops->closed */
void sim_stream_push(struct net_stream *s, int direction, struct sim_msg *m);
/* Closes each open stream at the server's end, and calls fn for it. */
void sim_streams_each(int server, void (*fn)(struct net_stream *s));

#endif
