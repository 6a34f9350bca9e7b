/* net/outq.c - see outq.h. Heads of consecutive pieces without payload share one slice. */
#include "net/outq.h"
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
    q->n = 0;
}

void outq_put(struct outq *q, struct net_out *item)
{
    item->next = NULL;
    *q->last = item;
    q->last = &item->next;
    q->n++;
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
    return item;
}

static int same_head(const struct net_frame_head *a, const struct net_frame_head *b)
{
    return a->generation == b->generation && a->member == b->member &&
           a->incarnation == b->incarnation;
}

int outq_take(struct outq *q, struct outq_batch *batch)
{
    size_t bytes = 0;
    batch->n = 0;
    while (q->first && batch->n < OUTQ_FRAME_PIECES) {
        const struct net_out *next = q->first;
        if (batch->n > 0 && (bytes + next->bytes > OUTQ_FRAME_BYTES ||
                             !same_head(&next->head, &batch->items[0]->head)))
            break;
        bytes += next->bytes;
        batch->items[batch->n++] = outq_pop(q);
    }
    return batch->n;
}

static size_t encode(const struct net_out *item, uint8_t *out)
{
    struct net_piece piece;
    piece.kind = item->kind;
    piece.chunk = item->chunk;
    piece.step = item->step;
    piece.weight = item->weight;
    piece.crc32c = item->crc32c;
    snprintf(piece.why, sizeof piece.why, "%s", item->why ? item->why : "");
    return frame_encode_piece_head(&piece, item->bytes, out);
}

grpc_byte_buffer *outq_frame(const struct outq_batch *batch)
{
    grpc_slice slices[2 * OUTQ_FRAME_PIECES + 1];
    size_t n_slices = 0, n_heads = 0;
    uint8_t heads[FRAME_HEAD_MAX + 4 * PIECE_HEAD_MAX];
    atomic_fetch_add_explicit(&handed_over, 1, memory_order_release);
    n_heads = frame_encode_head(&batch->items[0]->head, heads);
    for (int i = 0; i < batch->n; i++) {
        const struct net_out *item = batch->items[i];
        if (n_heads + PIECE_HEAD_MAX > sizeof heads) {
            slices[n_slices++] = grpc_slice_from_copied_buffer((const char *)heads, n_heads);
            n_heads = 0;
        }
        n_heads += encode(item, heads + n_heads);
        if (item->bytes == 0) {
            if (item->release)
                item->release(item->owner);
            continue;
        }
        slices[n_slices++] = grpc_slice_from_copied_buffer((const char *)heads, n_heads);
        n_heads = 0;
        /* gRPC only reads the bytes; its signature is older than const. */
        slices[n_slices++] = grpc_slice_new_with_user_data((void *)(uintptr_t)item->data,
                                                           item->bytes, item->release, item->owner);
    }
    if (n_heads > 0)
        slices[n_slices++] = grpc_slice_from_copied_buffer((const char *)heads, n_heads);
    grpc_byte_buffer *frame = grpc_raw_byte_buffer_create(slices, n_slices);
    for (size_t i = 0; i < n_slices; i++)
        grpc_slice_unref(slices[i]);
    return frame;
}
