/* net/rpc/grpc_runtime.h - the process's footing on gRPC-core: set-up, completion queue,
 * operations. Every tag given to gRPC is a struct net_op; the poller that takes it off the queue
 * calls `done`. No gRPC function is ever called while one of our locks is held, because gRPC may
 * call back (a slice's destroy function) on the calling thread. Private to net/: the one header
 * here, with those that include it, that shows gRPC's types.
 * Owns:    a pollers object owns its queue and threads.
 * Threads: any.
 * Errors:  ST_NOMEM, ST_INTERNAL (no thread; logged). */
#ifndef NET_RPC_GRPC_RUNTIME_H
#define NET_RPC_GRPC_RUNTIME_H
#include "base/status.h"
#include "net/wire/frame.h"
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <stdatomic.h>

enum { RT_MAX_MESSAGE_BYTES = FRAME_MAX_BYTES, RT_MAX_THREADS = 256 };

/* Users of gRPC are counted: each init needs its shutdown. */
void net_rt_init(void);
void net_rt_shutdown(void);

struct net_op {
    void (*done)(struct net_op *op, int ok);
    _Atomic int armed; /* orders what the starter wrote before what `done` reads */
};
void net_op_init(struct net_op *op, void (*done)(struct net_op *op, int ok));
/* Hands the batch to gRPC. 0: gRPC would not take it, and `done` will not be called. */
int net_op_start(struct net_op *op, grpc_call *call, const grpc_op *ops, size_t n_ops);
void net_op_arm(struct net_op *op); /* before any other gRPC function that takes the op as tag */

/* A number that gRPC lets one set on a channel or a server. */
struct net_setting {
    const char *key;
    int value;
};
/* gRPC's form of n of them; args is [n], and borrowed by what is returned. */
grpc_channel_args net_rt_args(const struct net_setting *settings, size_t n, grpc_arg *args);

struct net_pollers;
enum status net_pollers_create(int n_threads, struct net_pollers **out);
grpc_completion_queue *net_pollers_queue(struct net_pollers *p);
/* Handles what is still queued, then ends the threads. NULL is fine. */
void net_pollers_destroy(struct net_pollers *p);

/* The slices of a received message as spans; the array grows in *spans (*room entries, malloc'd).
 * ST_NOMEM. */
enum status net_spans_of(grpc_byte_buffer *message, struct net_span **spans, size_t *room,
                         size_t *n);
/* A copy of the message in one piece, malloc'd. ST_NOMEM. */
enum status net_bytes_of(grpc_byte_buffer *message, uint8_t **data, size_t *bytes);
/* A slice's text for a log line: at most `room` - 1 bytes, nothing unprintable. */
void net_slice_text(grpc_slice s, char *text, size_t room);
/* Likewise, and gives the slice back. */
void net_status_text(grpc_slice s, char *text, size_t room);

#endif
