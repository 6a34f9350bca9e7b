/* net/rpc/send_queue.c - see send_queue.h. All heads and small payloads of a frame lie in one
 * block, of which the slices between the large payloads are parts. */
#include "net/rpc/send_queue.h"
#include <grpc/slice.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Counts frames made; its order is the order of handing bytes to gRPC and getting them back. */
static _Atomic unsigned handed_over;

void outq_take_back(void)
{
    atomic_load_explicit(&handed_over, memory_order_acquire);
}

void outq_init(struct outq *q)
{
    q->first = NULL;
    q->last = &q->first;
    q->n = q->bytes = 0;
}

void outq_put(struct outq *q, struct net_out *item)
{
    item->next = NULL;
    *q->last = item;
    q->last = &item->next;
    q->n++;
    q->bytes += item->bytes;
}

struct net_out *outq_pop(struct outq *q)
{
    struct net_out *item = q->first;
    if (!item)
        return NULL;
    q->first = item->next;
    if (!q->first)
        q->last = &q->first;
    q->n--;
    q->bytes -= item->bytes;
    return item;
}

int outq_batch_add(struct outq_batch *batch, struct net_out *item)
{
    if (batch->n == OUTQ_FRAME_PIECES)
        return 0;
    if (batch->n > 0 && (batch->bytes + item->bytes > OUTQ_FRAME_BYTES ||
                         !frame_same_head(&item->head, &batch->items[0]->head)))
        return 0;
    batch->bytes += item->bytes;
    batch->items[batch->n++] = item;
    return 1;
}

int outq_take(struct outq *q, struct outq_batch *batch)
{
    batch->n = 0;
    batch->bytes = 0;
    while (q->first && outq_batch_add(batch, q->first))
        outq_pop(q);
    return batch->n;
}

/* Of the payload, those that go with the frame. */
static size_t bytes_along(const struct net_out *item)
{
    return item->shared_offset ? 0 : item->bytes;
}

static size_t encode(const struct net_out *item, uint8_t *out)
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
    piece.ask_taken = item->ask_taken;
    piece.samples = item->samples;
    if (item->why)
        snprintf(piece.why, sizeof piece.why, "%s", item->why);
    return frame_encode_piece_head(&piece, bytes_along(item), out);
}

static size_t room_for_heads(const struct outq_batch *batch)
{
    size_t n = FRAME_HEAD_MAX;
    for (int i = 0; i < batch->n; i++) {
        const struct net_out *item = batch->items[i];
        n += item->why ? PIECE_HEAD_MAX : PIECE_HEAD_MAX - FRAME_MAX_WHY;
        n += bytes_along(item) <= OUTQ_COPY_BYTES ? bytes_along(item) : 0;
    }
    return n;
}

grpc_byte_buffer *outq_frame(const struct outq_batch *batch)
{
    grpc_slice slices[2 * OUTQ_FRAME_PIECES + 1];
    size_t n_slices = 0, from = 0, at;
    grpc_slice block = grpc_slice_malloc(room_for_heads(batch));
    uint8_t *heads = GRPC_SLICE_START_PTR(block);
    atomic_fetch_add_explicit(&handed_over, 1, memory_order_release);
    at = frame_encode_head(&batch->items[0]->head, heads);
    for (int i = 0; i < batch->n; i++) {
        const struct net_out *item = batch->items[i];
        size_t bytes = bytes_along(item);
        at += encode(item, heads + at);
        if (bytes <= OUTQ_COPY_BYTES) {
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
