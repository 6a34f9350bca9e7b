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
    ANY(OF, has_after, has_after),
    ANY(OF, after, after),
    ARRAY(OF, chunk, n, chunk, 1, CHUNKS_MAX_CHUNKS, "no chunks are requested, or too many"),
};
const struct message_type message_fetch = {MESSAGE_TYPE(OF, fetch_request, rows),
                                           .problem = problem};
#undef OF

/* Sets a field to the first bytes of a buffer, and returns the CRC-32C with these bytes. */
static uint32_t put_bytes(uint32_t crc, const struct buf *from, size_t bytes,
                          ProtobufCBinaryData *to)
{
    if (bytes == 0)
        return crc;
    *to = (ProtobufCBinaryData){bytes, from->data};
    return digest_crc32c(crc, from->data, bytes);
}

static uint32_t put_all(uint32_t crc, const struct buf *from, ProtobufCBinaryData *to)
{
    return put_bytes(crc, from, from ? from->bytes : 0, to);
}

static enum status write_item(const void *plain, void *message, struct message_room *room)
{
    const struct net_fetch_item *from = plain;
    Weir__V1__FetchReply__Chunk *to = message;
    to->crc32c = put_bytes(0, from->value, from->value_bytes, &to->value);
    to->crc32c = put_bytes(to->crc32c, from->slots, from->slots_bytes, &to->slots);
    to->n_samples = from->n_samples;
    to->samples = from->samples;
    to->n_idle = from->idle ? from->idle->bytes / sizeof(uint64_t) : 0;
    to->idle = from->idle ? from->idle->data : NULL;
    if (from->is_bucket) {
        to->rows = 1 + (from->keys ? (uint32_t)(from->keys->bytes / sizeof(uint64_t)) : 0);
        to->more = from->has_more;
        to->crc32c = put_all(to->crc32c, from->keys, &to->keys);
        to->crc32c = put_all(to->crc32c, from->steps, &to->steps);
        to->crc32c = put_all(to->crc32c, from->pending, &to->pending);
    }
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

/* Returns true if the sizes of a bucket's part fit each other. */
static bool rows_fit(const Weir__V1__FetchReply__Chunk *from)
{
    size_t n = from->rows - 1, keys = n * sizeof(uint64_t), unit = n * sizeof(float);
    if (from->keys.len != keys || from->steps.len != keys ||
        from->pending.len % (3 * sizeof(uint64_t)) != 0)
        return false;
    if (n == 0)
        return from->value.len == 0 && from->slots.len == 0 &&
               !(from->more && from->pending.len == 0);
    return from->value.len > 0 && from->value.len % unit == 0 && from->slots.len % unit == 0;
}

static bool sizes_fit(const Weir__V1__FetchReply__Chunk *from)
{
    if (from->rows > 0)
        return rows_fit(from);
    return from->value.len > 0 && from->value.len % sizeof(float) == 0 &&
           from->slots.len % from->value.len == 0 && from->keys.len == 0 && from->steps.len == 0 &&
           from->pending.len == 0 && !from->more;
}

static uint32_t checksum(const Weir__V1__FetchReply__Chunk *from)
{
    const ProtobufCBinaryData *const runs[] = {&from->value, &from->slots, &from->keys,
                                               &from->steps, &from->pending};
    uint32_t crc = 0;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        crc = digest_crc32c(crc, runs[i]->data, runs[i]->len);
    return crc;
}

/* Reads a chunk in place: protobuf-c allocates the bytes as a separate block, so they are
 * aligned. */
static enum status read_chunk(const Weir__V1__FetchReply__Chunk *from, struct net_fetched *to,
                              char why[MESSAGE_WHY_BYTES])
{
    if (from->chunk >= CHUNKS_MAX_CHUNKS || from->version < 0 || from->version > MESSAGE_MAX_STEP ||
        !sizes_fit(from))
        return message_invalid(why, "a chunk's number, version or size is not valid");
    if (checksum(from) != from->crc32c) {
        snprintf(why, MESSAGE_WHY_BYTES, "chunk %u does not match its checksum", from->chunk);
        return ST_CORRUPT;
    }
    size_t n_pending = from->pending.len / (3 * sizeof(uint64_t));
    const uint64_t *pending = (const void *)from->pending.data;
    *to = (struct net_fetched){.chunk = (int)from->chunk,
                               .version = from->version,
                               .value = (const void *)from->value.data,
                               .slots = (const void *)from->slots.data,
                               .n_value = from->value.len / sizeof(float),
                               .n_slots = from->slots.len / sizeof(float),
                               .samples = from->samples,
                               .n_samples = from->n_samples,
                               .idle = from->idle,
                               .n_idle = from->n_idle,
                               .is_bucket = from->rows > 0,
                               .has_more = from->more,
                               .n_rows = from->keys.len / sizeof(uint64_t),
                               .n_pending = n_pending,
                               .keys = (const void *)from->keys.data,
                               .steps = (const void *)from->steps.data,
                               .pending_keys = pending,
                               .pending_steps = n_pending ? pending + n_pending : NULL,
                               .pending_counts = n_pending ? pending + 2 * n_pending : NULL};
    return ST_OK;
}

/* Returns true if the keys ascend and are above the cursor. Sets *last to the highest one, unless a
 * higher one is there. */
static bool keys_ascend(const struct message_fetched *to, const uint64_t *keys, size_t n,
                        uint64_t *last)
{
    for (size_t i = 0; i < n; i++)
        if (i > 0 ? keys[i] <= keys[i - 1] : to->has_after && keys[0] <= to->after)
            return false;
    if (n > 0 && keys[n - 1] > *last)
        *last = keys[n - 1];
    return true;
}

/* Checks the keys of a bucket's part, and sets the cursor of the next request. */
static enum status advance_cursor(const struct net_fetched *chunk, bool is_last,
                                  struct message_fetched *to, char why[MESSAGE_WHY_BYTES])
{
    uint64_t last = 0;
    if (!keys_ascend(to, chunk->keys, chunk->n_rows, &last) ||
        !keys_ascend(to, chunk->pending_keys, chunk->n_pending, &last))
        return message_invalid(why, "the keys of a bucket do not ascend");
    if (chunk->has_more && !is_last)
        return message_invalid(why, "a FetchReply continues after a part of a bucket");
    to->has_after = chunk->has_more;
    to->after = last;
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
    to->n_received = 0;
    for (size_t i = 0; st == ST_OK && i < wire->n_chunks; i++) {
        struct net_fetched chunk;
        st = read_chunk(wire->chunks[i], &chunk, why);
        if (st == ST_OK && chunk.chunk != to->chunk[i])
            st = message_invalid(why, "the FetchReply has other chunks than requested");
        if (st == ST_OK)
            st = advance_cursor(&chunk, i + 1 == wire->n_chunks, to, why);
        if (st == ST_OK) {
            snprintf(why, MESSAGE_WHY_BYTES, "a received chunk does not fit the request");
            st = to->receive(to->ctx, &chunk);
        }
        to->n_received += st == ST_OK && !chunk.has_more;
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
