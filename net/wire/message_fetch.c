/* net/wire/message_fetch.c - see message.h: chunks that move from server to server. */
#include "base/digest.h"
#include "net/wire/message_impl.h"
#include <stdio.h>

static const char no_step[] = "the generation or the step is out of bounds";

static const char *problem(const void *message)
{
    const Weir__V1__FetchRequest *wire = message;
    if (wire->generation == 0)
        return no_step;
    for (size_t i = 0; i < wire->n_chunk; i++)
        if (wire->chunk[i] >= CHUNKS_MAX_CHUNKS)
            return "a requested chunk's number is out of bounds";
    return NULL;
}

#define OF Weir__V1__FetchRequest, struct net_fetch_request
static const struct message_row rows[] = {
    ANY(OF, generation, generation),
    NUMBER(OF, step, step, 0, MESSAGE_MAX_STEP, no_step),
    ARRAY(OF, chunk, n, chunk, 1, CHUNKS_MAX_CHUNKS, "no chunks are requested, or too many"),
};
const struct message_type message_fetch = {MESSAGE_TYPE(OF, fetch_request, rows),
                                           .problem = problem};
#undef OF

static enum status write_item(const void *plain, void *message, struct message_room *room)
{
    const struct net_fetch_item *from = plain;
    Weir__V1__FetchReply__Chunk *to = message;
    to->value = (ProtobufCBinaryData){from->value_bytes, from->value->data};
    to->crc32c = digest_crc32c(0, from->value->data, from->value_bytes);
    to->n_samples = from->n_samples;
    to->samples = from->samples;
    to->n_idle = from->idle ? from->idle->bytes / sizeof(uint64_t) : 0;
    to->idle = from->idle ? from->idle->data : NULL;
    if (from->slots_bytes == 0)
        return ST_OK;
    to->slots = (ProtobufCBinaryData){from->slots_bytes, from->slots->data};
    to->crc32c = digest_crc32c(to->crc32c, from->slots->data, from->slots_bytes);
    return ST_OK;
}

#define OF Weir__V1__FetchReply__Chunk, struct net_fetch_item
static const struct message_row item_rows[] = {
    ANY(OF, chunk, chunk),
    ANY(OF, version, version),
};
static const struct message_type item_type = {MESSAGE_TYPE(OF, fetch_reply__chunk, item_rows),
                                              .write = write_item};
#undef OF

static enum status write_reply(const void *plain, void *message, struct message_room *room)
{
    if (((const struct net_fetch_reply *)plain)->refused[0])
        ((Weir__V1__FetchReply *)message)->n_chunks = 0;
    return ST_OK;
}

#define OF Weir__V1__FetchReply, struct net_fetch_reply
static const struct message_row reply_rows[] = {
    CUT(OF, refused, refused),
    LIST(OF, chunks, n, item, &item_type, 0, FETCH_REPLY_CHUNKS, NULL),
};
static const struct message_type reply_type = {MESSAGE_TYPE(OF, fetch_reply, reply_rows),
                                               .write = write_reply};

enum status message_fetch_reply_pack(const struct net_fetch_reply *reply, uint8_t **data,
                                     size_t *bytes)
{
    return message_pack(&reply_type, reply, data, bytes);
}

/* Reads a chunk in place: protobuf-c allocates the bytes as a separate block, so they are
 * aligned. */
static enum status read_chunk(const Weir__V1__FetchReply__Chunk *from, struct net_fetched *to,
                              char why[MESSAGE_WHY_BYTES])
{
    if (from->chunk >= CHUNKS_MAX_CHUNKS || from->version < 0 || from->version > MESSAGE_MAX_STEP ||
        from->value.len == 0 || from->value.len % sizeof(float) != 0 ||
        from->slots.len % from->value.len != 0)
        return message_invalid(why, "a chunk's number, version or size is not valid");
    uint32_t crc = digest_crc32c(0, from->value.data, from->value.len);
    if (digest_crc32c(crc, from->slots.data, from->slots.len) != from->crc32c) {
        snprintf(why, MESSAGE_WHY_BYTES, "chunk %u does not match its checksum", from->chunk);
        return ST_CORRUPT;
    }
    *to = (struct net_fetched){.chunk = (int)from->chunk,
                               .version = from->version,
                               .value = (const void *)from->value.data,
                               .slots = (const void *)from->slots.data,
                               .n_value = from->value.len / sizeof(float),
                               .n_slots = from->slots.len / sizeof(float),
                               .samples = from->samples,
                               .n_samples = from->n_samples,
                               .idle = from->idle,
                               .n_idle = from->n_idle};
    return ST_OK;
}

static enum status receive_chunks(const Weir__V1__FetchReply *wire, struct message_fetched *to,
                                  char why[MESSAGE_WHY_BYTES])
{
    enum status st = ST_OK;
    if (wire->refused[0]) {
        snprintf(why, MESSAGE_WHY_BYTES, "%s", wire->refused);
        return ST_REFUSED;
    }
    if (wire->n_chunks < 1 || wire->n_chunks > (size_t)to->n)
        return message_invalid(why, "the FetchReply has no chunks, or more than requested");
    for (to->n_received = 0; st == ST_OK && (size_t)to->n_received < wire->n_chunks;
         to->n_received++) {
        struct net_fetched chunk;
        st = read_chunk(wire->chunks[to->n_received], &chunk, why);
        if (st == ST_OK && chunk.chunk != to->chunk[to->n_received])
            st = message_invalid(why, "the FetchReply has other chunks than requested");
        if (st == ST_OK) {
            snprintf(why, MESSAGE_WHY_BYTES, "a received chunk does not fit the request");
            st = to->receive(to->ctx, &chunk);
        }
    }
    return st;
}

enum status message_fetch_reply_unpack(const uint8_t *data, size_t bytes,
                                       struct message_fetched *to, char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    Weir__V1__FetchReply *wire =
        message_decode(&weir__v1__fetch_reply__descriptor, data, bytes, &b, why);
    if (!wire)
        return ST_PROTOCOL;
    enum status st = receive_chunks(wire, to, why);
    protobuf_c_message_free_unpacked(&wire->base, &b.allocator);
    return st;
}
