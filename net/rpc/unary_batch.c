/* net/rpc/unary_batch.c - see unary_batch.h. */
#include "net/rpc/unary_batch.h"
#include "net/rpc/reasons.h"
#include <stdio.h>
#include <string.h>

void unary_batch_init(struct unary_batch *b, const uint8_t *data, size_t bytes,
                      grpc_op ops[UNARY_BATCH_OPS])
{
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)data, bytes);
    *b = (struct unary_batch){.outgoing = grpc_raw_byte_buffer_create(&slice, 1),
                              .code = GRPC_STATUS_INTERNAL,
                              .details = grpc_empty_slice()};
    grpc_slice_unref(slice);
    grpc_metadata_array_init(&b->initial);
    grpc_metadata_array_init(&b->trailing);
    memset(ops, 0, UNARY_BATCH_OPS * sizeof *ops);
    credentials_metadata_init(&b->shown);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[0].data.send_initial_metadata.metadata = &b->shown.entry;
    ops[0].data.send_initial_metadata.count = b->shown.n;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = b->outgoing;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &b->initial;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &b->incoming;
    ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[5].data.recv_status_on_client.trailing_metadata = &b->trailing;
    ops[5].data.recv_status_on_client.status = &b->code;
    ops[5].data.recv_status_on_client.status_details = &b->details;
}

void unary_batch_end(struct unary_batch *b, char *text, size_t room)
{
    char reason[REASON_BYTES];
    grpc_runtime_status_text(b->details, reason, sizeof reason);
    net_reason_explain(reason, sizeof reason);
    snprintf(text, room, "%s", reason);
    grpc_byte_buffer_destroy(b->outgoing);
    credentials_metadata_free(&b->shown);
    grpc_metadata_array_destroy(&b->initial);
    grpc_metadata_array_destroy(&b->trailing);
}
