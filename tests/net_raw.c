/* tests/net_raw.c - see net_raw.h. */
#include "tests/net_raw.h"
#include "net/rpc/grpc_runtime.h"
#include "tests/check.h"
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gpr_timespec soon(void)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_millis(RAW_CALL_MS, GPR_TIMESPAN));
}

static int batch(struct raw *r, const grpc_op *ops, size_t n)
{
    assert_int_equal(grpc_call_start_batch(r->call, ops, n, r, NULL), GRPC_CALL_OK);
    grpc_event ev = grpc_completion_queue_next(r->queue, soon(), NULL);
    assert_int_equal(ev.type, GRPC_OP_COMPLETE);
    return ev.success;
}

void raw_open(struct raw *r, int port, const char *method)
{
    char target[64];
    memset(r, 0, sizeof *r);
    grpc_runtime_init();
    snprintf(target, sizeof target, "dns:///127.0.0.1:%d", port);
    grpc_arg own = {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL};
    own.value.integer = 1;
    grpc_channel_args args = {1, &own};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    r->queue = grpc_completion_queue_create_for_next(NULL);
    r->channel = grpc_channel_create(target, plain, &args);
    grpc_channel_credentials_release(plain);
    r->call = grpc_channel_create_call(r->channel, NULL, GRPC_PROPAGATE_DEFAULTS, r->queue,
                                       grpc_slice_from_static_string(method), NULL, soon(), NULL);
    grpc_metadata_array_init(&r->initial);
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    batch(r, &op, 1);
}

int raw_send(struct raw *r, const void *data, size_t n)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(data, n);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = message;
    int ok = batch(r, &op, 1);
    grpc_byte_buffer_destroy(message);
    grpc_slice_unref(slice);
    return ok;
}

void raw_half_close(struct raw *r)
{
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    batch(r, &op, 1);
}

int raw_recv(struct raw *r)
{
    grpc_byte_buffer *message = NULL;
    grpc_op ops[2] = {{.op = GRPC_OP_RECV_MESSAGE}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    ops[0].data.recv_message.recv_message = &message;
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &r->initial;
    batch(r, ops, r->has_initial ? 1 : 2);
    r->has_initial = 1;
    if (!message)
        return 0;
    uint8_t *data;
    assert_int_equal(grpc_runtime_bytes_of(message, &data, &r->n_reply), ST_OK);
    assert_in_range(r->n_reply, 0, RAW_REPLY_BYTES);
    memcpy(r->reply, data, r->n_reply);
    free(data);
    grpc_byte_buffer_destroy(message);
    return 1;
}

void raw_cancel(struct raw *r)
{
    grpc_call_cancel(r->call, NULL);
}

grpc_status_code raw_close(struct raw *r)
{
    grpc_metadata_array trailing;
    grpc_slice details = grpc_empty_slice();
    grpc_metadata_array_init(&trailing);
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = &trailing;
    op.data.recv_status_on_client.status = &r->code;
    op.data.recv_status_on_client.status_details = &details;
    batch(r, &op, 1);
    grpc_metadata_array_destroy(&r->initial);
    grpc_metadata_array_destroy(&trailing);
    grpc_slice_unref(details);
    grpc_call_unref(r->call);
    grpc_channel_destroy(r->channel);
    grpc_completion_queue_shutdown(r->queue);
    while (grpc_completion_queue_next(r->queue, soon(), NULL).type != GRPC_QUEUE_SHUTDOWN)
        ;
    grpc_completion_queue_destroy(r->queue);
    grpc_runtime_shutdown();
    return r->code;
}

grpc_status_code raw_unary(struct raw *r, int port, const char *method, const void *data, size_t n)
{
    raw_open(r, port, method);
    raw_send(r, data, n);
    raw_half_close(r);
    raw_recv(r);
    return raw_close(r);
}
