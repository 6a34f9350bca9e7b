/* net/server_impl.h - what server.c and stream.c share. Private to them. */
#ifndef NET_SERVER_IMPL_H
#define NET_SERVER_IMPL_H
#include "net/lenders.h"
#include "net/rt.h"
#include "net/server.h"
#include <pthread.h>

struct server_call; /* a call that is not an Exchange */

struct net_server {
    struct net_server_handler handler;
    struct net_server_people people;
    grpc_server *server;
    struct net_pollers *pollers;
    struct net_op shutdown_op;
    int port;
    struct lenders lenders;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int started, stopping, shut;
    int n_calls; /* calls of any kind that still hold memory */
    struct net_stream *streams;
    struct server_call *watches;
    struct server_call *controls; /* that wait for their answers */
    uint64_t n_controls;          /* so far: numbers them */
};

/* Takes the call over. The caller has counted it in n_calls. */
void net_stream_open(struct net_server *s, grpc_call *call);
/* Lets what is queued go out, then ends the stream; for server.c, with a reference held. */
void net_stream_end(struct net_stream *stream, grpc_status_code code, const char *text);
/* The next stream that net_server_stop has not yet ended, with a reference; under s->lock. */
struct net_stream *net_stream_next_to_stop(struct net_server *s);
void net_stream_unref(struct net_stream *stream);
/* One call less; wakes net_server_stop. */
void net_server_call_gone(struct net_server *s);

#endif
