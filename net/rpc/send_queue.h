/* net/rpc/send_queue.h - pieces waiting to be sent on one stream, and their making into frames.
 * Many small pieces go out as one frame (up to about SEND_QUEUE_FRAME_BYTES of payload). A payload
 * is handed to gRPC by reference, but for those of at most SEND_QUEUE_COPY_BYTES: a slice of its
 * own costs more than copying so few bytes. Items belong to the caller, who gets each back when it
 * is taken. Owns:    nothing but the list. Threads: none of its own; the stream's lock covers all
 * but send_queue_frame, which calls gRPC and so runs without it. Errors:  none. */
#ifndef NET_RPC_SEND_QUEUE_H
#define NET_RPC_SEND_QUEUE_H
#include "net/wire/frame.h"
#include <grpc/byte_buffer.h>

enum {
    SEND_QUEUE_FRAME_BYTES = 1 << 20, /* payload after which a frame takes no further piece */
    SEND_QUEUE_FRAME_PIECES = 512,    /* at most FRAME_MAX_PIECES, which a receiver takes */
    SEND_QUEUE_COPY_BYTES = 2048,
    SEND_QUEUE_EAGER_BYTES = 128 << 10, /* so much is sent even if more pieces may follow at once */
};

struct send_queue_item {
    struct send_queue_item *next;
    struct net_frame_head head;
    enum piece_kind kind;
    enum dtype dtype; /* of the payload; PULL: wanted */
    uint32_t chunk, crc32c;
    uint64_t step;
    float weight;
    char *why;                    /* owned by the caller; NULL: none */
    const void *data;             /* payload, or NULL */
    size_t bytes;                 /* of data, also where it goes by reference */
    uint64_t shared_offset;       /* 1 + its place in this program's segment: the piece says so and
                                     data is not looked at; 0: it goes as it is */
    uint64_t shared_stamp;        /* likewise */
    int shared, ask_taken;        /* as in net_piece */
    uint64_t samples;             /* likewise */
    void (*release)(void *owner); /* once gRPC no longer looks at data; from any thread */
    void *owner;
};

struct send_queue {
    struct send_queue_item *first, **last;
    size_t n, bytes; /* items, and their payload */
};

struct send_queue_batch {
    int n;
    size_t bytes;
    struct send_queue_item *items[SEND_QUEUE_FRAME_PIECES];
};

void send_queue_init(struct send_queue *q);
void send_queue_push(struct send_queue *q, struct send_queue_item *item);
struct send_queue_item *send_queue_pop(struct send_queue *q); /* NULL if empty */
/* Takes the items of the next frame off the queue; 0 if there are none. */
int send_queue_take(struct send_queue *q, struct send_queue_batch *batch);
/* Adds an item to a frame in the making; 0 if it has to wait for the next. */
int send_queue_batch_add(struct send_queue_batch *batch, struct send_queue_item *item);
/* Called first by every release function: whatever thread gRPC runs it on, what the sender wrote
 * before send_queue_frame is then seen. */
void send_queue_take_back(void);
/* Makes the frame of a batch. Each item's `release` will be called once, even if NULL data is sent
 * (then at once). */
grpc_byte_buffer *send_queue_frame(const struct send_queue_batch *batch);

#endif
