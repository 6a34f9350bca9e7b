/* net/rpc/send_queue.h - queues the pieces for one stream and encodes them into frames. Many small
 * pieces form one frame (up to about SEND_QUEUE_FRAME_BYTES of payload), and so do pieces whose
 * payload stays in shared memory. gRPC receives a payload by reference, except one of at most
 * SEND_QUEUE_COPY_BYTES: a separate slice costs more than copying so few bytes. Items belong to the
 * caller again when they are removed from the queue.
 * Owns:    nothing but the list.
 * Threads: none of its own. The caller holds the stream's lock, except for send_queue_frame, which
 *          calls gRPC.
 * Errors:  none. */
#ifndef NET_RPC_SEND_QUEUE_H
#define NET_RPC_SEND_QUEUE_H
#include "net/wire/frame.h"
#include <grpc/byte_buffer.h>
#include <stdbool.h>

enum {
    SEND_QUEUE_FRAME_BYTES = 1 << 20, /* most bytes of payload in a frame with several pieces */
    SEND_QUEUE_FRAME_PIECES = 512,    /* not above FRAME_MAX_PIECES, the receiver's limit */
    SEND_QUEUE_COPY_BYTES = 2048,
    SEND_QUEUE_EAGER_BYTES = 128 << 10, /* payload that is sent at once, even if more pieces may
                                           follow */
};

struct send_queue_item {
    struct send_queue_item *next;
    struct net_frame_head head;
    enum piece_kind kind;
    enum dtype dtype; /* dtype of the payload; PULL: the requested one */
    uint32_t chunk, crc32c;
    uint64_t step;
    float weight;
    char *why;                      /* owned by the caller; NULL: none */
    const void *data;               /* payload, or NULL */
    size_t bytes;                   /* length of the payload, even if `data` is not read */
    uint64_t shared_offset;         /* 1 + offset in this program's segment: the piece contains the
                                       offset, and data is not read; 0: data is sent */
    uint64_t shared_stamp;          /* stamp of the payload in the segment */
    bool shared, placed, ask_taken; /* values for the fields of struct net_piece */
    uint64_t samples;               /* value for the field of struct net_piece */
    bool has_rate;                  /* values for the fields of struct net_piece */
    float rate;
    /* marks (lacking.h), which stay unchanged until the answer; NULL: none */
    const uint8_t *lacking;
    size_t lacking_bytes;
    uint32_t rows, reads; /* values for the fields of struct net_piece */
    /* Called from any thread when gRPC does not read `data` any more. */
    void (*release)(void *owner);
    void *owner;
};

struct send_queue {
    struct send_queue_item *first, **last;
    size_t n, bytes; /* number of items, and bytes of their payload */
};

struct send_queue_batch {
    int n;
    size_t bytes; /* bytes of payload that the frame contains */
    struct send_queue_item *items[SEND_QUEUE_FRAME_PIECES];
};

void send_queue_init(struct send_queue *q);
void send_queue_push(struct send_queue *q, struct send_queue_item *item);
/* Removes the first item, and returns it; NULL: the queue is empty. */
struct send_queue_item *send_queue_pop(struct send_queue *q);
/* Moves the items of the next frame into the batch. Returns false if the queue is empty. */
bool send_queue_next(struct send_queue *q, struct send_queue_batch *batch);
/* Adds an item to a frame that is not encoded yet. Returns false if it must wait for the next
 * frame. */
bool send_queue_batch_add(struct send_queue_batch *batch, struct send_queue_item *item);
/* Makes all writes before send_queue_frame visible to this thread. Every release function calls
 * it first, because gRPC may run it on any thread. */
void send_queue_acquire(void);
/* Encodes the frame of a batch. Each item's `release` is called once, even if data is NULL (then
 * at once). */
grpc_byte_buffer *send_queue_frame(const struct send_queue_batch *batch);

#endif
