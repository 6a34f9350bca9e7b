/* net/rpc/send_queue.c - see send_queue.h. All heads and small payloads of a frame are stored in
 * one block of memory. The slices between the large payloads are parts of this block. */
#include "net/rpc/send_queue.h"
#include <grpc/slice.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Number of frames that were encoded. Each increment orders this program's earlier writes before
 * the moment when gRPC releases the bytes. */
static _Atomic unsigned handed_over;

void send_queue_acquire(void)
{
    atomic_load_explicit(&handed_over, memory_order_acquire);
}

void send_queue_init(struct send_queue *q)
{
    q->first = NULL;
    q->last = &q->first;
    q->n = q->bytes = 0;
}

void send_queue_push(struct send_queue *q, struct send_queue_item *item)
{
    item->next = NULL;
    *q->last = item;
    q->last = &item->next;
    q->n++;
    q->bytes += item->bytes;
}

struct send_queue_item *send_queue_pop(struct send_queue *q)
{
    struct send_queue_item *item = q->first;
    if (!item)
        return NULL;
    q->first = item->next;
    if (!q->first)
        q->last = &q->first;
    q->n--;
    q->bytes -= item->bytes;
    return item;
}

/* Returns the number of the item's payload bytes that the frame contains. */
static size_t bytes_along(const struct send_queue_item *item)
{
    return item->shared_offset ? 0 : item->bytes;
}

bool send_queue_batch_add(struct send_queue_batch *batch, struct send_queue_item *item)
{
    if (batch->n == SEND_QUEUE_FRAME_PIECES)
        return false;
    size_t bytes = bytes_along(item);
    if (batch->n > 0 && (batch->bytes + bytes > SEND_QUEUE_FRAME_BYTES ||
                         !frame_same_head(&item->head, &batch->items[0]->head)))
        return false;
    batch->bytes += bytes;
    batch->items[batch->n++] = item;
    return true;
}

bool send_queue_next(struct send_queue *q, struct send_queue_batch *batch)
{
    batch->n = 0;
    batch->bytes = 0;
    while (q->first && send_queue_batch_add(batch, q->first))
        send_queue_pop(q);
    return batch->n;
}

static size_t encode(const struct send_queue_item *item, uint8_t *out)
{
    struct net_piece piece;
    piece.kind = item->kind;
    piece.dtype = item->dtype;
    piece.chunk = item->chunk;
    piece.step = item->step;
    piece.weight = item->weight;
    piece.crc32c = item->crc32c;
    piece.why[0] = 0;
    piece.shared_offset = item->shared_offset;
    piece.shared_bytes = item->shared_offset ? (uint32_t)item->bytes : 0;
    piece.shared_stamp = item->shared_stamp;
    piece.shared = item->shared;
    piece.placed = item->placed;
    piece.ask_taken = item->ask_taken;
    piece.samples = item->samples;
    piece.has_rate = item->has_rate;
    piece.rate = item->rate;
    const struct net_span lacking = {item->lacking, item->lacking_bytes};
    piece.lacking = (struct net_payload){&lacking, 0, item->lacking_bytes};
    piece.rows = item->rows;
    piece.reads = item->reads;
    if (item->why)
        snprintf(piece.why, sizeof piece.why, "%s", item->why);
    return frame_encode_piece_head(&piece, bytes_along(item), out);
}

static size_t room_for_heads(const struct send_queue_batch *batch)
{
    size_t n = FRAME_HEAD_MAX;
    for (int i = 0; i < batch->n; i++) {
        const struct send_queue_item *item = batch->items[i];
        n += item->why ? PIECE_HEAD_MAX : PIECE_HEAD_MAX - FRAME_MAX_WHY;
        n += item->lacking_bytes;
        n += bytes_along(item) <= SEND_QUEUE_COPY_BYTES ? bytes_along(item) : 0;
    }
    return n;
}

grpc_byte_buffer *send_queue_frame(const struct send_queue_batch *batch)
{
    grpc_slice slices[2 * SEND_QUEUE_FRAME_PIECES + 1];
    size_t n_slices = 0, from = 0, at;
    grpc_slice block = grpc_slice_malloc(room_for_heads(batch));
    uint8_t *heads = GRPC_SLICE_START_PTR(block);
    atomic_fetch_add_explicit(&handed_over, 1, memory_order_release);
    at = frame_encode_head(&batch->items[0]->head, heads);
    for (int i = 0; i < batch->n; i++) {
        const struct send_queue_item *item = batch->items[i];
        size_t bytes = bytes_along(item);
        at += encode(item, heads + at);
        if (bytes <= SEND_QUEUE_COPY_BYTES) {
            if (bytes)
                memcpy(heads + at, item->data, bytes);
            at += bytes;
            if (item->release)
                item->release(item->owner);
            continue;
        }
        slices[n_slices++] = grpc_slice_sub(block, from, at);
        from = at;
        /* gRPC only reads the bytes; its signature is older than const. */
        slices[n_slices++] = grpc_slice_new_with_user_data((void *)(uintptr_t)item->data, bytes,
                                                           item->release, item->owner);
    }
    if (at > from)
        slices[n_slices++] = grpc_slice_sub(block, from, at);
    grpc_byte_buffer *frame = grpc_raw_byte_buffer_create(slices, n_slices);
    for (size_t i = 0; i < n_slices; i++)
        grpc_slice_unref(slices[i]);
    grpc_slice_unref(block);
    return frame;
}
