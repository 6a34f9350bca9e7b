/* net/wire/message_fetch.c - see message.h: chunks that go from server to server. */
#include "base/digest.h"
#include "net/wire/message_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status message_fetch_pack(const struct net_fetch_request *request, uint8_t **data,
                               size_t *bytes)
{
    Weir__V1__FetchRequest wire = WEIR__V1__FETCH_REQUEST__INIT;
    wire.protocol = MESSAGE_PROTOCOL;
    wire.generation = request->generation;
    wire.step = request->step;
    wire.n_chunk = (size_t)request->n;
    wire.chunk = message_plan_map_to_wire(request->chunk);
    return message_pack(&wire.base, data, bytes);
}

static enum status request_from_wire(const Weir__V1__FetchRequest *wire,
                                     struct net_fetch_request *out, char why[MESSAGE_WHY_BYTES])
{
    if (message_check_protocol(wire->protocol, why) != ST_OK)
        return ST_INVALID;
    if (wire->generation == 0 || wire->step < 0 || wire->step > MESSAGE_MAX_STEP)
        return message_invalid(why, "the generation or the step is out of bounds");
    if (wire->n_chunk < 1 || wire->n_chunk > CHUNKS_MAX_CHUNKS)
        return message_invalid(why, "no chunks are asked for, or more than there can be");
    int *chunk = malloc(wire->n_chunk * sizeof *chunk);
    if (!chunk)
        return ST_NOMEM;
    for (size_t i = 0; i < wire->n_chunk; i++) {
        if (wire->chunk[i] >= CHUNKS_MAX_CHUNKS) {
            free(chunk);
            return message_invalid(why, "a chunk that there cannot be is asked for");
        }
        chunk[i] = (int)wire->chunk[i];
    }
    *out = (struct net_fetch_request){.generation = wire->generation,
                                      .step = wire->step,
                                      .n = (int)wire->n_chunk,
                                      .chunk = chunk};
    return ST_OK;
}

enum status message_fetch_unpack(const uint8_t *data, size_t bytes,
                                 struct net_fetch_request *request, char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__FetchRequest *wire = weir__v1__fetch_request__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the FetchRequest does not decode");
        return ST_PROTOCOL;
    }
    enum status st = request_from_wire(wire, request, why);
    weir__v1__fetch_request__free_unpacked(wire, &b.allocator);
    return st;
}

static void item_to_wire(const struct net_fetch_item *from, Weir__V1__FetchReply__Chunk *to)
{
    weir__v1__fetch_reply__chunk__init(to);
    to->chunk = (uint32_t)from->chunk;
    to->version = from->version;
    to->value.data = from->value->data;
    to->value.len = from->value_bytes;
    to->crc32c = digest_crc32c(0, from->value->data, from->value_bytes);
    to->n_samples = from->n_samples;
    to->samples = from->samples;
    if (from->slots_bytes == 0)
        return;
    to->slots.data = from->slots->data;
    to->slots.len = from->slots_bytes;
    to->crc32c = digest_crc32c(to->crc32c, from->slots->data, from->slots_bytes);
}

enum status message_fetch_reply_pack(const struct net_fetch_reply *reply, uint8_t **data,
                                     size_t *bytes)
{
    size_t n = reply->refused[0] ? 0 : (size_t)reply->n;
    Weir__V1__FetchReply wire = WEIR__V1__FETCH_REPLY__INIT;
    Weir__V1__FetchReply__Chunk *items = calloc(n + 1, sizeof *items), **list;
    enum status st = ST_NOMEM;
    list = calloc(n + 1, sizeof(Weir__V1__FetchReply__Chunk *));
    if (!items || !list)
        goto done;
    for (size_t i = 0; i < n; i++) {
        item_to_wire(&reply->item[i], &items[i]);
        list[i] = &items[i];
    }
    wire.refused = (char *)(uintptr_t)reply->refused;
    wire.n_chunks = n;
    wire.chunks = list;
    st = message_pack(&wire.base, data, bytes);
done:
    free(list);
    free(items);
    return st;
}

/* protobuf-c's bytes are a block of their own, and so aligned. */
static enum status fetched_from_wire(const Weir__V1__FetchReply__Chunk *from,
                                     struct net_fetched *to, char why[MESSAGE_WHY_BYTES])
{
    if (from->chunk >= CHUNKS_MAX_CHUNKS || from->version < 0 || from->version > MESSAGE_MAX_STEP ||
        from->value.len == 0 || from->value.len % sizeof(float) != 0 ||
        from->slots.len % from->value.len != 0)
        return message_invalid(why, "a chunk's number, version or size cannot be");
    uint32_t crc = digest_crc32c(0, from->value.data, from->value.len);
    if (digest_crc32c(crc, from->slots.data, from->slots.len) != from->crc32c) {
        snprintf(why, MESSAGE_WHY_BYTES, "chunk %u came with a wrong checksum", from->chunk);
        return ST_CORRUPT;
    }
    *to = (struct net_fetched){.chunk = (int)from->chunk,
                               .version = from->version,
                               .value = (const void *)from->value.data,
                               .slots = (const void *)from->slots.data,
                               .n_value = from->value.len / sizeof(float),
                               .n_slots = from->slots.len / sizeof(float),
                               .samples = from->samples,
                               .n_samples = from->n_samples};
    return ST_OK;
}

static enum status reply_from_wire(const Weir__V1__FetchReply *wire, struct message_fetched *to,
                                   char why[MESSAGE_WHY_BYTES])
{
    enum status st = ST_OK;
    if (wire->refused[0]) {
        snprintf(why, MESSAGE_WHY_BYTES, "%s", wire->refused);
        return ST_REFUSED;
    }
    if (wire->n_chunks < 1 || wire->n_chunks > (size_t)to->n)
        return message_invalid(why, "the FetchReply has no chunks, or more than asked for");
    for (to->n_taken = 0; st == ST_OK && (size_t)to->n_taken < wire->n_chunks; to->n_taken++) {
        struct net_fetched chunk;
        st = fetched_from_wire(wire->chunks[to->n_taken], &chunk, why);
        if (st == ST_OK && chunk.chunk != to->chunk[to->n_taken])
            st = message_invalid(why, "the FetchReply has other chunks than asked for");
        if (st == ST_OK) {
            snprintf(why, MESSAGE_WHY_BYTES, "what came is not what is wanted");
            st = to->take(to->ctx, &chunk);
        }
    }
    return st;
}

enum status message_fetch_reply_unpack(const uint8_t *data, size_t bytes,
                                       struct message_fetched *to, char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__FetchReply *wire = weir__v1__fetch_reply__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the FetchReply does not decode");
        return ST_PROTOCOL;
    }
    enum status st = reply_from_wire(wire, to, why);
    weir__v1__fetch_reply__free_unpacked(wire, &b.allocator);
    return st;
}
