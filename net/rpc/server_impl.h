/* net/rpc/server_impl.h - what server*.c and stream.c share. Private to them. */
#ifndef NET_RPC_SERVER_IMPL_H
#define NET_RPC_SERVER_IMPL_H
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/server.h"
#include "net/rpc/unauthenticated_calls.h"
#include "net/shm/peer_segments.h"
#include <pthread.h>

enum server_method {
    METHOD_JOIN,
    METHOD_LEAVE,
    METHOD_CONTROL,
    METHOD_STATUS,
    METHOD_COMMAND,
    METHOD_FETCH,
    METHOD_SQUARES,
    METHOD_GATE,
    METHOD_EVALUATE,
    METHOD_REPORT,
    METHOD_CHECK,
    METHOD_WATCH,
    METHOD_EXCHANGE,
    N_METHODS
};

extern const char *const server_method_paths[N_METHODS];

/* A call that is not an Exchange. */
struct server_call {
    struct grpc_runtime_op op, close_op;
    struct net_server *server;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    enum server_method method;
    grpc_byte_buffer *incoming, *outgoing;
    int cancelled;
    _Atomic int n_ops; /* of Watch and Coordinate; 0: the answer's batch is the only one */
    struct unauthenticated_call unauthenticated;
    struct server_call *next, *prev; /* in one of the server's lists, under its lock */
    int stop_seen;                   /* Watch; likewise */
    uint64_t number;                 /* Coordinate: the handler's name for it */
    size_t reply_bytes;              /* of its answer while that is under way, under the lock */
    int64_t reply_ns;                /* since when */
};

struct net_server {
    struct net_server_handler handler;
    struct net_admin_handlers admin;
    grpc_server *server;
    struct grpc_runtime_pollers *pollers;
    struct grpc_runtime_op shutdown_op;
    int port;
    _Atomic uint64_t certificate; /* the number of the one in use */
    size_t max_reply_bytes;
    grpc_resource_quota *quota; /* what gRPC may have for all connections */
    struct unauthenticated_calls unauthenticated;
    struct peer_segments peer_segments;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int started, stopping, shut;
    int n_calls; /* calls of any kind that still hold memory */
    struct net_stream *streams;
    struct server_call *watches;
    struct server_call *controls; /* that wait for their answers */
    uint64_t n_controls;          /* so far: numbers them */
    struct server_call *replies;  /* whose answers are under way, the newest first */
    size_t reply_bytes;           /* of those answers */
    int n_trusted;                /* streams that are no guests */
    int resizing;                 /* a thread sets the quota to their number */
};

/* Takes the call over. The caller has counted it in n_calls. */
void net_stream_open(struct net_server *s, grpc_call *call);
/* Lets what is queued go out, then ends the stream; for server.c, with a reference held. */
void net_stream_end(struct net_stream *stream, grpc_status_code code, const char *text);
/* The next stream that net_server_stop has not yet ended, with a reference; under s->lock. */
struct net_stream *net_stream_next_to_stop(struct net_server *s);
/* So many streams more, or fewer, are members'; the quota follows. */
void net_server_trusts(struct net_server *s, int more);
/* One call less; wakes net_server_stop. */
void server_reply_call_gone(struct net_server *s);

/* Answers a call, and frees it when the answer is out. data: given to it; NULL: status alone. */
void server_reply_send(struct server_call *c, uint8_t *data, size_t bytes, grpc_status_code code,
                       const char *text);
void server_reply_done(struct grpc_runtime_op *op, int ok);
/* The answer, or what kept it from being made. */
void server_reply_send_packed(struct server_call *c, enum status st, uint8_t *data, size_t n);
/* The message cannot be answered; logged. */
void server_reply_refuse(struct server_call *c, const char *why);
/* An answer of so many bytes goes out. 0: too much is under way; the call is ended instead. */
int server_reply_count(struct server_call *c, size_t bytes);
void server_reply_free_call(struct server_call *c);
/* One of a Coordinate's two operations, its answer and its end, is over. */
void server_reply_op_done(struct server_call *c);

/* The call's message is there; borrowed. */
void server_methods_serve(struct server_call *c, const uint8_t *data, size_t bytes);
void server_waits_serve_control(struct server_call *c, const uint8_t *data, size_t bytes);
/* Sends data, which is given to it, and stays. */
void server_waits_watch(struct server_call *c, uint8_t *data, size_t bytes);
/* Ends every call that stays, and every stream: the server stops. */
void server_waits_end_calls(struct net_server *s);

#endif
