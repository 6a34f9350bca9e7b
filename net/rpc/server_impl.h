/* net/rpc/server_impl.h - the state and functions that server*.c and stream.c share. Private to
 * net/rpc and its tests. */
#ifndef NET_RPC_SERVER_IMPL_H
#define NET_RPC_SERVER_IMPL_H
#include "net/rpc/grpc_runtime.h"
#include "net/rpc/server.h"
#include "net/rpc/unauthenticated_calls.h"
#include "net/shm/peer_segments.h"
#include <pthread.h>
#include <stdbool.h>

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

/* State of a call that is not an Exchange. */
struct server_call {
    struct grpc_runtime_op op, close_op;
    struct net_server *server;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    enum server_method method;
    grpc_byte_buffer *incoming, *outgoing;
    int cancelled;
    /* pending operations of a Watch or Coordinate call; 0: another method, whose only operations
     * are the answer's batch */
    _Atomic int n_ops;
    struct unauthenticated_call unauthenticated;
    struct server_call *next, *prev; /* links of one of the server's lists, under its lock */
    bool stop_seen;     /* Watch: the call has noticed that the server stops; under the lock */
    uint64_t number;    /* Coordinate: number by which the handler names the call */
    size_t reply_bytes; /* bytes of the answer while the answer is in flight; under the lock */
    int64_t reply_ns;   /* time when the answer was sent */
};

struct net_server {
    struct net_server_handler handler;
    struct net_admin_handlers admin;
    grpc_server *server;
    struct grpc_runtime_pollers *pollers;
    struct grpc_runtime_op shutdown_op;
    int port;
    _Atomic uint64_t certificate; /* number of the certificate in use */
    size_t max_reply_bytes;
    grpc_resource_quota *quota; /* memory that gRPC may use for all connections */
    struct unauthenticated_calls unauthenticated;
    struct peer_segments peer_segments;

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    bool started, stopping, shut;
    int n_calls; /* calls of any kind that still hold memory */
    struct net_stream *streams;
    struct server_call *watches;
    struct server_call *controls; /* Coordinate calls that wait for their answers */
    uint64_t n_controls;          /* number of Coordinate calls so far */
    struct server_call *replies;  /* calls whose answers are in flight, the newest first */
    size_t reply_bytes;           /* bytes of those answers */
    int n_trusted;                /* streams of members */
    bool resizing;                /* a thread is setting the quota from n_trusted */
};

/* Starts a stream on the call and becomes its owner. The caller has counted it in n_calls. */
void net_stream_open(struct net_server *s, grpc_call *call);
/* Sends the queued answers, then ends the stream; for server.c, which holds a reference. */
void net_stream_end(struct net_stream *stream, grpc_status_code code, const char *text);
/* Returns, with a reference, the next stream that net_server_stop has not ended yet. The caller
 * holds s->lock. */
struct net_stream *net_stream_next_to_stop(struct net_server *s);
/* Adds `more` (may be negative) to the number of members' streams, and sets the quota
 * accordingly. */
void net_server_trusts(struct net_server *s, int more);
/* Counts one call less, and wakes net_server_stop. */
void server_reply_call_gone(struct net_server *s);

/* Answers a call, and frees it when the answer is sent. data: the function becomes its owner;
 * NULL: only the status is sent. */
void server_reply_send(struct server_call *c, uint8_t *data, size_t bytes, grpc_status_code code,
                       const char *text);
void server_reply_done(struct grpc_runtime_op *op, bool ok);
/* Sends the encoded answer, or the error that prevented it. */
void server_reply_send_packed(struct server_call *c, enum status st, uint8_t *data, size_t n);
/* Ends a call whose message cannot be answered, and logs the reason. */
void server_reply_refuse(struct server_call *c, const char *why);
/* Counts an answer of `bytes` bytes. Returns false if too many bytes are in flight: then the call
 * is ended instead. */
bool server_reply_count(struct server_call *c, size_t bytes);
void server_reply_free_call(struct server_call *c);
/* Counts the end of one of the two operations of a Coordinate call, the answer and the close. */
void server_reply_op_done(struct server_call *c);

/* Processes the call's request, whose bytes are borrowed. */
void server_methods_serve(struct server_call *c, const uint8_t *data, size_t bytes);
void server_waits_serve_control(struct server_call *c, const uint8_t *data, size_t bytes);
/* Sends data, which it owns from then on, and keeps the call open. */
void server_waits_watch(struct server_call *c, uint8_t *data, size_t bytes);
/* Ends every call that is kept open, and every stream, because the server stops. */
void server_waits_end_calls(struct net_server *s);

#endif
