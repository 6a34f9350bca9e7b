/* net/rpc/grpc_runtime.h - the process's use of gRPC-core: set-up, completion queue, operations.
 * Every tag passed to gRPC is a struct grpc_runtime_op; the poller that removes it from the
 * queue calls `done`. No gRPC function is called while a lock of this program is held, because
 * gRPC may call back (a slice's destroy function) on the calling thread. Private to net/: only this
 * header, and those that include it, contain gRPC's types.
 * Owns:    a pollers object owns its queue and threads.
 * Threads: any.
 * Errors:  ST_NOMEM; logged if pollers cannot be created (no memory, or no thread). */
#ifndef NET_RPC_GRPC_RUNTIME_H
#define NET_RPC_GRPC_RUNTIME_H
#include "base/status.h"
#include "net/wire/frame.h"
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { GRPC_RUNTIME_MAX_MESSAGE_BYTES = FRAME_MAX_BYTES, GRPC_RUNTIME_MAX_THREADS = 256 };

/* Counts the users of gRPC: each init needs a shutdown. */
void grpc_runtime_init(void);
void grpc_runtime_shutdown(void);

struct grpc_runtime_op {
    void (*done)(struct grpc_runtime_op *op, bool ok);
    _Atomic int armed; /* makes the starter's writes visible to `done` */
};
void grpc_runtime_op_init(struct grpc_runtime_op *op,
                          void (*done)(struct grpc_runtime_op *op, bool ok));
/* Starts a batch of operations. Returns false if gRPC refuses it; `done` is then never called. */
bool grpc_runtime_op_start(struct grpc_runtime_op *op, grpc_call *call, const grpc_op *ops,
                           size_t n_ops);
/* Prepares the op as a tag for gRPC functions that grpc_runtime_op_start does not call. */
void grpc_runtime_op_arm(struct grpc_runtime_op *op);

/* A numeric setting of a gRPC channel or server. */
struct grpc_runtime_setting {
    const char *key;
    int value;
};
/* Returns n settings in gRPC's form, which points to args ([n]). */
grpc_channel_args grpc_runtime_args(const struct grpc_runtime_setting *settings, size_t n,
                                    grpc_arg *args);

struct grpc_runtime_pollers;
enum status grpc_runtime_pollers_create(int n_threads, struct grpc_runtime_pollers **out);
grpc_completion_queue *grpc_runtime_pollers_queue(struct grpc_runtime_pollers *p);
/* Handles the operations that are still queued, then ends the threads. NULL is fine. */
void grpc_runtime_pollers_destroy(struct grpc_runtime_pollers *p);

/* Lists the slices of a received message as spans. The array *spans (*room entries, malloc'd)
 * grows as needed. ST_NOMEM. */
enum status grpc_runtime_spans_of(grpc_byte_buffer *message, struct net_span **spans, size_t *room,
                                  size_t *n);
/* Copies the message into one malloc'd block. ST_NOMEM. */
enum status grpc_runtime_bytes_of(grpc_byte_buffer *message, uint8_t **data, size_t *bytes);
/* Copies a slice's text for a log line: at most `room` - 1 bytes, only printable ones. */
void grpc_runtime_slice_text(grpc_slice s, char *text, size_t room);
/* Copies the text as grpc_runtime_slice_text does, and releases the slice. */
void grpc_runtime_status_text(grpc_slice s, char *text, size_t room);

#endif
