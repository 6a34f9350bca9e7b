/* net/rpc/grpc_runtime.h - the process's footing on gRPC-core: set-up, completion queue,
 * operations. Every tag given to gRPC is a struct grpc_runtime_op; the poller that takes it off the
 * queue calls `done`. No gRPC function is ever called while one of our locks is held, because gRPC
 * may call back (a slice's destroy function) on the calling thread. Private to net/: the one header
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

enum { GRPC_RUNTIME_MAX_MESSAGE_BYTES = FRAME_MAX_BYTES, GRPC_RUNTIME_MAX_THREADS = 256 };

/* Users of gRPC are counted: each init needs its shutdown. */
void grpc_runtime_init(void);
void grpc_runtime_shutdown(void);

struct grpc_runtime_op {
    void (*done)(struct grpc_runtime_op *op, int ok);
    _Atomic int armed; /* orders what the starter wrote before what `done` reads */
};
void grpc_runtime_op_init(struct grpc_runtime_op *op,
                          void (*done)(struct grpc_runtime_op *op, int ok));
/* Hands the batch to gRPC. 0: gRPC would not take it, and `done` will not be called. */
int grpc_runtime_op_start(struct grpc_runtime_op *op, grpc_call *call, const grpc_op *ops,
                          size_t n_ops);
void grpc_runtime_op_arm(
    struct grpc_runtime_op *op); /* before any other gRPC function that takes the op as tag */

/* A number that gRPC lets one set on a channel or a server. */
struct grpc_runtime_setting {
    const char *key;
    int value;
};
/* gRPC's form of n of them; args is [n], and borrowed by what is returned. */
grpc_channel_args grpc_runtime_args(const struct grpc_runtime_setting *settings, size_t n,
                                    grpc_arg *args);

struct grpc_runtime_pollers;
enum status grpc_runtime_pollers_create(int n_threads, struct grpc_runtime_pollers **out);
grpc_completion_queue *grpc_runtime_pollers_queue(struct grpc_runtime_pollers *p);
/* Handles what is still queued, then ends the threads. NULL is fine. */
void grpc_runtime_pollers_destroy(struct grpc_runtime_pollers *p);

/* The slices of a received message as spans; the array grows in *spans (*room entries, malloc'd).
 * ST_NOMEM. */
enum status grpc_runtime_spans_of(grpc_byte_buffer *message, struct net_span **spans, size_t *room,
                                  size_t *n);
/* A copy of the message in one piece, malloc'd. ST_NOMEM. */
enum status grpc_runtime_bytes_of(grpc_byte_buffer *message, uint8_t **data, size_t *bytes);
/* A slice's text for a log line: at most `room` - 1 bytes, nothing unprintable. */
void grpc_runtime_slice_text(grpc_slice s, char *text, size_t room);
/* Likewise, and gives the slice back. */
void grpc_runtime_status_text(grpc_slice s, char *text, size_t room);

#endif
