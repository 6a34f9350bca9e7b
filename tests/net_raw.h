/* tests/net_raw.h - gRPC calls one batch at a time, which Weir's client would not make. A batch
 * that is too slow fails the test. One thread per call. */
#ifndef TESTS_NET_RAW_H
#define TESTS_NET_RAW_H
#include <grpc/grpc.h>
#include <stddef.h>
#include <stdint.h>

enum { RAW_REPLY_BYTES = 1 << 16, RAW_CALL_MS = 40000 /* largest reply, and limit of a call */ };

struct raw {
    grpc_completion_queue *queue;
    grpc_channel *channel;
    grpc_call *call;
    grpc_status_code code;
    uint8_t reply[RAW_REPLY_BYTES]; /* the last received message */
    size_t n_reply;
    int has_initial; /* RECV_INITIAL_METADATA is done; no message precedes it */
    grpc_metadata_array initial;
};

/* Opens a call over a connection of its own. */
void raw_open(struct raw *r, int port, const char *method);
int raw_send(struct raw *r, const void *data, size_t n);
void raw_half_close(struct raw *r);
/* Receives one message; returns 0 at the end. */
int raw_recv(struct raw *r);
void raw_cancel(struct raw *r);
grpc_status_code raw_close(struct raw *r);
/* Runs a whole call: sends one message, receives one. */
grpc_status_code raw_unary(struct raw *r, int port, const char *method, const void *data, size_t n);

#endif
