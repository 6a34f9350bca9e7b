/* net/wire/message_gate.c - see message.h: what the servers of a region tell each other. */
#include "base/digest.h"
#include "net/wire/message_impl.h"
#include <stdlib.h>
#include <string.h>

static int has_value(int kind)
{
    return kind != GATE_OWN && kind != GATE_READ;
}

static void item_to_wire(const struct net_gate_item *from, Weir__V1__GateRequest__Item *to)
{
    weir__v1__gate_request__item__init(to);
    to->kind = (Weir__V1__GateRequest__Kind)from->kind;
    to->chunk = (uint32_t)from->chunk;
    to->version = from->version;
    to->slots_since = from->slots_since;
    to->alone = from->alone;
    to->mix = from->mix;
    if (!from->value)
        return;
    to->value.data = from->value->data;
    to->value.len = from->value->bytes;
    to->crc32c = digest_crc32c(0, from->value->data, from->value->bytes);
}

enum status message_gate_pack(const struct net_gate *gate, uint8_t **data, size_t *bytes)
{
    Weir__V1__GateRequest wire = WEIR__V1__GATE_REQUEST__INIT;
    size_t n = (size_t)gate->n;
    Weir__V1__GateRequest__Item *items = calloc(n + 1, sizeof *items), **list;
    enum status st = ST_NOMEM;
    list = calloc(n + 1, sizeof(Weir__V1__GateRequest__Item *));
    if (!items || !list)
        goto done;
    for (size_t i = 0; i < n; i++) {
        item_to_wire(&gate->item[i], &items[i]);
        list[i] = &items[i];
    }
    wire.protocol = MESSAGE_PROTOCOL;
    wire.generation = gate->generation;
    wire.ps0 = gate->ps0;
    wire.server = (uint32_t)gate->server;
    wire.n_items = n;
    wire.items = list;
    st = message_pack(&wire.base, data, bytes);
done:
    free(list);
    free(items);
    return st;
}

static enum status item_from_wire(const Weir__V1__GateRequest__Item *from, struct net_gate_item *to,
                                  char why[MESSAGE_WHY_BYTES])
{
    enum status st = ST_OK;
    size_t n = from->value.len;
    if ((unsigned)from->kind >= GATE_N_KINDS || from->chunk >= CHUNKS_MAX_CHUNKS ||
        from->version < 0 || from->version > MESSAGE_MAX_STEP || from->slots_since < 0 ||
        from->slots_since > MESSAGE_MAX_STEP || !(from->mix >= 0 && from->mix <= 1))
        return message_invalid(why, "a chunk's number, version or kind cannot be");
    if (n % sizeof(float) != 0 || n > CHUNKS_MAX_BYTES || (n > 0) != has_value((int)from->kind))
        return message_invalid(why, "a chunk's value has a size that cannot be");
    if (n > 0 && digest_crc32c(0, from->value.data, n) != from->crc32c)
        return message_invalid(why, "a chunk came with a wrong checksum");
    *to = (struct net_gate_item){.kind = (enum gate_kind)from->kind,
                                 .chunk = (int)from->chunk,
                                 .version = from->version,
                                 .slots_since = from->slots_since,
                                 .mix = from->mix,
                                 .alone = from->alone != 0};
    if (n == 0)
        return ST_OK;
    TRY(buf_create(n, &to->value));
    memcpy(to->value->data, from->value.data, n);
done:
    return st;
}

static enum status from_wire(const Weir__V1__GateRequest *wire, struct net_gate *out,
                             char why[MESSAGE_WHY_BYTES])
{
    enum status st = ST_OK;
    if (message_check_protocol(wire->protocol, why) != ST_OK)
        return ST_INVALID;
    if (wire->generation == 0 || wire->server >= HOSTS_MAX)
        return message_invalid(why, "the generation or the server's number is out of bounds");
    if (wire->n_items < 1 || wire->n_items > GATE_MAX_ITEMS)
        return message_invalid(why, "there are no chunks, or more than there can be");
    *out = (struct net_gate){
        .generation = wire->generation, .ps0 = wire->ps0, .server = (int)wire->server};
    out->item = calloc(wire->n_items, sizeof *out->item);
    TRY(out->item ? ST_OK : ST_NOMEM);
    for (; (size_t)out->n < wire->n_items; out->n++)
        TRY(item_from_wire(wire->items[out->n], &out->item[out->n], why));
done:
    if (st != ST_OK)
        message_gate_free(out);
    return st;
}

enum status message_gate_unpack(const uint8_t *data, size_t bytes, struct net_gate *gate,
                                char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__GateRequest *wire = weir__v1__gate_request__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the GateRequest does not decode");
        return ST_PROTOCOL;
    }
    enum status st = from_wire(wire, gate, why);
    weir__v1__gate_request__free_unpacked(wire, &b.allocator);
    return st;
}

void message_gate_free(struct net_gate *g)
{
    for (int i = 0; i < g->n; i++)
        buf_unref(g->item[i].value);
    free(g->item);
    *g = (struct net_gate){.generation = 0};
}
