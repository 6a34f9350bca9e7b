/* net/rpc/bidi.h - one bidirectional call, at its client or its server. Operations are counted; at
 * any time at most one message is being sent and one received. When the last operation has
 * returned, `ended` is called, as the last callback.
 * Owns:    a reference to the call, and the messages in flight.
 * Threads: any. The poller calls the handler's functions with no lock held, and never the same
 *          function twice at a time. The owner's lock guards n_ops and the fields below it.
 * Errors:  none; a call that cannot continue ends. */
#ifndef NET_RPC_BIDI_H
#define NET_RPC_BIDI_H
#include "net/rpc/grpc_runtime.h"
#include <pthread.h>
#include <stdbool.h>

enum { BIDI_REASON_BYTES = 512 };

enum bidi_next {
    BIDI_READ,   /* read the next message */
    BIDI_PAUSE,  /* read only after bidi_begin_read and bidi_read */
    BIDI_CANCEL, /* end the call */
};

struct bidi_handler {
    /* Receives one message, and destroys it. NULL: the peer sends no more, and the return value
     * is ignored. */
    enum bidi_next (*received)(void *ctx, grpc_byte_buffer *message);
    /* Called after a message was sent, just before `sent`, while bidi_send cannot be called yet;
     * may be NULL. */
    void (*written)(void *ctx);
    /* Called when the message of bidi_send was sent or cannot be sent any more. At a server the
     * first call is for the metadata. */
    void (*sent)(void *ctx);
    /* Called when the call is over. At a client `reason` is the reason in words. The object may
     * then be opened again. */
    void (*ended)(void *ctx, const char *reason);
};

struct bidi {
    const struct bidi_handler *handler;
    void *ctx;
    pthread_mutex_t *lock; /* the owner's lock */
    grpc_call *call;
    struct grpc_runtime_op meta_op, recv_op, send_op, end_op, status_op;
    grpc_byte_buffer *incoming, *outgoing;
    grpc_metadata_array initial, trailing; /* at a client: the server's metadata; the next two
                                              fields are the server's status */
    grpc_status_code code;
    grpc_slice details;
    int cancelled; /* at a server: nonzero if the call was cancelled (gRPC sets it) */
    int n_ops;    /* operations that have not returned; the lock guards this and the fields below */
    bool sending; /* a message is being sent */
    bool broken;  /* no further message can be sent */
};

void bidi_init(struct bidi *b, const struct bidi_handler *handler, void *ctx,
               pthread_mutex_t *lock);
/* Starts the call as its client (open) or accepts it as its server (accept), and becomes the owner
 * of one reference. Counts one operation for the caller until bidi_release. */
void bidi_open(struct bidi *b, grpc_call *call);
void bidi_accept(struct bidi *b, grpc_call *call);
void bidi_release(struct bidi *b);

/* The next functions form pairs: bidi_begin_... notes, under the lock, that an operation starts,
 * and the other function starts it without the lock. */

/* Returns true if a message may be sent. bidi_send becomes the owner of the message. */
bool bidi_may_send(const struct bidi *b);
void bidi_begin_send(struct bidi *b);
void bidi_send(struct bidi *b, grpc_byte_buffer *message);
/* Continues to read after BIDI_PAUSE. */
void bidi_begin_read(struct bidi *b);
void bidi_read(struct bidi *b);
/* Ends the call with a status at a server, once, while no message is being sent; none may be
 * sent afterwards. */
void bidi_begin_close(struct bidi *b);
void bidi_close(struct bidi *b, grpc_status_code code, const char *text);

#endif
