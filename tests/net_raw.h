/* tests/net_raw.h - gRPC calls in single batches, for sequences that Weir's client would not send.
 * A batch that is too slow fails the test. Only one thread may use a call. */
#ifndef TESTS_NET_RAW_H
#define TESTS_NET_RAW_H
#include <grpc/grpc.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the largest reply, and time limit (ms) of a call. */
enum { RAW_REPLY_BYTES = 1 << 16, RAW_CALL_MS = 40000 };

struct raw {
    grpc_completion_queue *queue;
    grpc_channel *channel;
    grpc_call *call;
    grpc_status_code code;
    uint8_t reply[RAW_REPLY_BYTES]; /* the last received message */
    size_t n_reply;
    int has_initial; /* true after RECV_INITIAL_METADATA, which precedes all messages */
    grpc_metadata_array initial;
};

/* Opens a call over its own connection. */
void raw_open(struct raw *r, int port, const char *method);
int raw_send(struct raw *r, const void *data, size_t n);
void raw_half_close(struct raw *r);
/* Receives one message. Returns 0 at the end of the stream. */
int raw_recv(struct raw *r);
void raw_cancel(struct raw *r);
grpc_status_code raw_close(struct raw *r);
/* Runs a whole call: sends one message, receives one. */
grpc_status_code raw_unary(struct raw *r, int port, const char *method, const void *data, size_t n);

#endif
