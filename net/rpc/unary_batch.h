/* net/rpc/unary_batch.h - the operations of a client's call with one request and one reply, and
 * their results. The caller waits until the operations have ended (unary.h), or is called back
 * (net/exchange/link.c). Private to net/.
 * Owns:    both messages, and the server's metadata and status.
 * Threads: only the owner's thread.
 * Errors:  the field `code`, which is GRPC_STATUS_INTERNAL until the server, or gRPC, sets another
 *          one. */
#ifndef NET_RPC_UNARY_BATCH_H
#define NET_RPC_UNARY_BATCH_H
#include "net/rpc/credentials.h"
#include "net/rpc/grpc_runtime.h"

enum { UNARY_BATCH_OPS = 6 };

struct unary_batch {
    grpc_byte_buffer *outgoing, *incoming; /* incoming: NULL until the reply has arrived, and
                                              after a failure */
    struct credentials_metadata shown;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details;
};

/* Prepares a call. data: copied. ops: the caller starts them as one batch; *b must not move until
 * the batch has ended. */
void unary_batch_init(struct unary_batch *b, const uint8_t *data, size_t bytes,
                      grpc_op ops[UNARY_BATCH_OPS]);
/* Frees everything but `incoming`. text: receives the text of the call's status, as
 * grpc_runtime_slice_text copies it. */
void unary_batch_end(struct unary_batch *b, char *text, size_t room);

#endif
