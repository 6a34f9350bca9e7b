/* net/rpc/bidi.h - one bidirectional call, at either end of it: operations are counted, one message
 * goes out and one comes in at a time, and when the last operation has returned nothing more can
 * happen: the owner is told, once.
 * Owns:    a reference to the call, and the messages under way.
 * Threads: any; the handler's functions come from the poller, one at a time each kind, with no lock
 *          held; the owner's lock guards what says so.
 * Errors:  none; a call that cannot go on ends. */
#ifndef NET_RPC_BIDI_H
#define NET_RPC_BIDI_H
#include "net/rpc/grpc_runtime.h"
#include <pthread.h>

enum { BIDI_REASON_BYTES = 512 };

enum bidi_next {
    BIDI_READ,   /* the next message */
    BIDI_PAUSE,  /* it is read when bidi_begin_read and bidi_read say so */
    BIDI_CANCEL, /* the call ends */
};

struct bidi_handler {
    /* One message, which it destroys; NULL: the peer sends no more, and what it says counts not. */
    enum bidi_next (*received)(void *ctx, grpc_byte_buffer *message);
    /* Likewise, just before, while no other can be given; may be NULL. */
    void (*written)(void *ctx);
    /* The message given to bidi_send is out, or will never be; at a server first the metadata. */
    void (*sent)(void *ctx);
    /* The call is gone: `reason` says to a client why, in words. The object may be opened again. */
    void (*ended)(void *ctx, const char *reason);
};

struct bidi {
    const struct bidi_handler *handler;
    void *ctx;
    pthread_mutex_t *lock; /* the owner's */
    grpc_call *call;
    struct grpc_runtime_op meta_op, recv_op, send_op, end_op, status_op;
    grpc_byte_buffer *incoming, *outgoing;
    grpc_metadata_array initial, trailing; /* this and the following: what a client is told */
    grpc_status_code code;
    grpc_slice details;
    int cancelled;       /* what a server is told */
    int n_ops;           /* under the lock, as the next two */
    int sending, broken; /* a message is going out; none will any more */
};

void bidi_init(struct bidi *b, const struct bidi_handler *handler, void *ctx,
               pthread_mutex_t *lock);
/* Starts the call as its client, or takes it as its server; one reference is taken over. One
 * operation is the caller's, until bidi_release. */
void bidi_open(struct bidi *b, grpc_call *call);
void bidi_accept(struct bidi *b, grpc_call *call);
void bidi_release(struct bidi *b);

/* The following in pairs: under the lock bidi_begin_... says that something starts, and without it
 * the other starts it. */

/* 1 if a message may go out; bidi_send takes it. */
int bidi_may_send(const struct bidi *b);
void bidi_begin_send(struct bidi *b);
void bidi_send(struct bidi *b, grpc_byte_buffer *message);
/* After BIDI_PAUSE. */
void bidi_begin_read(struct bidi *b);
void bidi_read(struct bidi *b);
/* A server's last word, once, when no message is going out; none may any more. */
void bidi_begin_close(struct bidi *b);
void bidi_close(struct bidi *b, grpc_status_code code, const char *text);

#endif
