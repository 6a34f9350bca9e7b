/* net/rpc/unary_batch.h - what a client's call of one message there, one back consists of: the
 * operations, and what they bring. Who starts them waits for them (unary.h), or is called
 * (net/exchange/link.c). Private to net/.
 * Owns:    both messages, and what the server says besides.
 * Threads: of its owner.
 * Errors:  `code`; GRPC_STATUS_INTERNAL until the server, or gRPC, says something else. */
#ifndef NET_RPC_UNARY_BATCH_H
#define NET_RPC_UNARY_BATCH_H
#include "net/rpc/credentials.h"
#include "net/rpc/grpc_runtime.h"

enum { UNARY_BATCH_OPS = 6 };

struct unary_batch {
    grpc_byte_buffer *outgoing, *incoming; /* incoming: NULL until it is there, or for ever */
    struct credentials_metadata shown;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details;
};

/* data: copied. ops: to be started as one batch; *b stays where it is until that has ended. */
void unary_batch_init(struct unary_batch *b, const uint8_t *data, size_t bytes,
                      grpc_op ops[UNARY_BATCH_OPS]);
/* Gives all back but `incoming`; text: of the status, for a log line, as grpc_runtime_slice_text.
 */
void unary_batch_end(struct unary_batch *b, char *text, size_t room);

#endif
