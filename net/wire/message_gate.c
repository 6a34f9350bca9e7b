/* net/wire/message_gate.c - see message.h: values of chunks at a region's gates, between ps 0 and
 * the region's other servers. */
#include "base/digest.h"
#include "net/wire/message_impl.h"
#include <stdbool.h>
#include <string.h>

static const char no_chunk[] = "a chunk's number, version or kind is not valid";

static const char *item_problem(const void *message)
{
    const Weir__V1__GateRequest__Item *wire = message;
    size_t n = wire->value.len;
    bool has_value = wire->kind != (unsigned)GATE_OWN && wire->kind != (unsigned)GATE_READ;
    if (n % sizeof(float) != 0 || n > CHUNKS_MAX_BYTES || (n > 0) != has_value)
        return "the size of a chunk's value is not valid";
    return n > 0 && digest_crc32c(0, wire->value.data, n) != wire->crc32c
               ? "a chunk does not match its checksum"
               : NULL;
}

static enum status read_value(const void *message, void *plain, char *why)
{
    const Weir__V1__GateRequest__Item *wire = message;
    struct net_gate_item *item = plain;
    enum status st = ST_OK;
    if (wire->value.len == 0)
        return ST_OK;
    TRY(buf_create(wire->value.len, &item->value));
    memcpy(item->value->data, wire->value.data, wire->value.len);
done:
    return st;
}

static enum status write_value(const void *plain, void *message, struct message_room *room)
{
    const struct net_gate_item *item = plain;
    Weir__V1__GateRequest__Item *wire = message;
    if (!item->value)
        return ST_OK;
    wire->value = (ProtobufCBinaryData){item->value->bytes, item->value->data};
    wire->crc32c = digest_crc32c(0, item->value->data, item->value->bytes);
    return ST_OK;
}

static void release_value(void *item)
{
    buf_unref(((struct net_gate_item *)item)->value);
}

#define OF Weir__V1__GateRequest__Item, struct net_gate_item
static const struct message_row item_rows[] = {
    NUMBER(OF, kind, kind, 0, GATE_N_KINDS - 1, no_chunk),
    NUMBER(OF, chunk, chunk, 0, CHUNKS_MAX_CHUNKS - 1, no_chunk),
    NUMBER(OF, version, version, 0, MESSAGE_MAX_STEP, no_chunk),
    NUMBER(OF, slots_since, slots_since, 0, MESSAGE_MAX_STEP, no_chunk),
    REAL(OF, mix, mix, 0, 1, no_chunk),
    ANY(OF, alone, alone),
};
static const struct message_type item_type = {MESSAGE_TYPE(OF, gate_request__item, item_rows),
                                              .problem = item_problem, .read = read_value,
                                              .write = write_value, .release = release_value};
#undef OF

static const char no_place[] = "the generation or the server's number is out of bounds";

static const char *problem(const void *message)
{
    return ((const Weir__V1__GateRequest *)message)->generation == 0 ? no_place : NULL;
}

#define OF Weir__V1__GateRequest, struct net_gate
static const struct message_row rows[] = {
    ANY(OF, generation, generation),
    ANY(OF, ps0, ps0),
    NUMBER(OF, server, server, 0, HOSTS_MAX - 1, no_place),
    LIST(OF, items, n, item, &item_type, 1, GATE_MAX_ITEMS, "there are no chunks, or too many"),
};
const struct message_type message_gate = {MESSAGE_TYPE(OF, gate_request, rows), .problem = problem};

void message_gate_free(struct net_gate *gate)
{
    message_release(&message_gate, gate);
    *gate = (struct net_gate){.generation = 0};
}
