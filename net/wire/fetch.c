/* net/wire/fetch.c - see fetch.h. */
#include "net/wire/fetch.h"
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const struct buf *b)
{
    return b ? b->bytes : 0;
}

enum status net_fetch_put(struct net_fetch_reply *reply, const struct net_fetch_item *item)
{
    size_t list_bytes = item->n_samples * sizeof *item->samples;
    size_t idle_bytes = item->idle ? 2 * item->idle->bytes : 0; /* a varint has up to 10 bytes */
    size_t bytes = item->value_bytes + item->slots_bytes;
    bytes += bytes_of(item->keys) + bytes_of(item->steps) + bytes_of(item->pending);
    uint64_t *samples = NULL;
    if (reply->n == FETCH_REPLY_CHUNKS ||
        (reply->n > 0 && (reply->bytes + bytes > FETCH_REPLY_BYTES ||
                          reply->list_bytes + list_bytes > FETCH_REPLY_BYTES ||
                          reply->idle_bytes + idle_bytes > FETCH_IDLE_BYTES)))
        return ST_RANGE;
    if (reply->n == reply->room) {
        int room = reply->room > 0 ? 2 * reply->room : 16;
        struct net_fetch_item *grown = realloc(reply->item, (size_t)room * sizeof *grown);
        if (!grown)
            return ST_NOMEM;
        reply->item = grown;
        reply->room = room;
    }
    if (list_bytes > 0 && !(samples = malloc(list_bytes)))
        return ST_NOMEM;
    if (samples)
        memcpy(samples, item->samples, list_bytes);
    reply->list_bytes += list_bytes;
    reply->idle_bytes += idle_bytes;
    struct net_fetch_item *kept = &reply->item[reply->n++];
    *kept = *item;
    kept->samples = samples;
    struct buf *const bufs[] = {kept->value, kept->slots, kept->idle,
                                kept->keys,  kept->steps, kept->pending};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        if (bufs[i])
            buf_ref(bufs[i]);
    reply->bytes += bytes;
    return ST_OK;
}

void net_fetch_reply_free(struct net_fetch_reply *reply)
{
    for (int i = 0; i < reply->n; i++) {
        buf_unref(reply->item[i].value);
        buf_unref(reply->item[i].slots);
        buf_unref(reply->item[i].idle);
        buf_unref(reply->item[i].keys);
        buf_unref(reply->item[i].steps);
        buf_unref(reply->item[i].pending);
        free(reply->item[i].samples);
    }
    free(reply->item);
    *reply = (struct net_fetch_reply){.n = 0};
}
