/* net/message_control.c - see message.h: what servers tell each other. The phases on the wire are
 * those of ps/saver.h, number for number. */
#include "base/hosts.h"
#include "net/message.h"
#include "net/message_impl.h"
#include "net/weir.pb-c.h"
#include <stdio.h>
#include <string.h>

enum status message_pack_control(const struct net_control *control, uint8_t **data, size_t *bytes)
{
    Weir__V1__CoordinateRequest wire = WEIR__V1__COORDINATE_REQUEST__INIT;
    Weir__V1__CoordinateRequest__Checkpoint checkpoint =
        WEIR__V1__COORDINATE_REQUEST__CHECKPOINT__INIT;
    wire.protocol = MESSAGE_PROTOCOL;
    wire.server = (uint32_t)control->server;
    wire.n_servers = (uint32_t)control->n_servers;
    wire.incarnation = control->incarnation;
    wire.generation = control->generation;
    wire.seen = control->seen;
    wire.checkpoint = &checkpoint;
    checkpoint.wanted = control->wanted;
    checkpoint.order = control->order;
    checkpoint.phase = (Weir__V1__CoordinateRequest__Phase)control->phase;
    checkpoint.bytes = control->bytes;
    checkpoint.crc32c = control->crc32c;
    return message_pack(&wire.base, data, bytes);
}

static enum status control_from_wire(const Weir__V1__CoordinateRequest *wire,
                                     struct net_control *to, char why[MESSAGE_WHY_BYTES])
{
    const Weir__V1__CoordinateRequest__Checkpoint *c = wire->checkpoint;
    if (wire->protocol != MESSAGE_PROTOCOL)
        return message_invalid(why, "another protocol than this server's");
    if (wire->n_servers < 1 || wire->n_servers > HOSTS_MAX || wire->server >= wire->n_servers ||
        wire->incarnation == 0)
        return message_invalid(why,
                               "the server's number, their count or the incarnation cannot be");
    if (c && ((int)c->phase < 0 || (int)c->phase >= CONTROL_N_PHASES || c->bytes > INT64_MAX))
        return message_invalid(why, "the checkpoint's phase or size cannot be");
    *to = (struct net_control){.server = (int)wire->server,
                               .n_servers = (int)wire->n_servers,
                               .incarnation = wire->incarnation,
                               .generation = wire->generation,
                               .seen = wire->seen};
    if (c) {
        to->wanted = c->wanted;
        to->order = c->order;
        to->phase = (int)c->phase;
        to->bytes = c->bytes;
        to->crc32c = c->crc32c;
    }
    return ST_OK;
}

enum status message_unpack_control(const uint8_t *data, size_t bytes, struct net_control *control,
                                   char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__CoordinateRequest *wire =
        weir__v1__coordinate_request__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the CoordinateRequest does not decode");
        return ST_PROTOCOL;
    }
    enum status st = control_from_wire(wire, control, why);
    weir__v1__coordinate_request__free_unpacked(wire, &b.allocator);
    return st;
}

enum status message_pack_control_reply(const struct net_control_reply *reply, uint8_t **data,
                                       size_t *bytes)
{
    Weir__V1__CoordinateReply wire = WEIR__V1__COORDINATE_REPLY__INIT;
    Weir__V1__CoordinateReply__Checkpoint checkpoint = WEIR__V1__COORDINATE_REPLY__CHECKPOINT__INIT;
    wire.number = reply->number;
    wire.refused = (char *)(uintptr_t)reply->refused;
    wire.restore = (char *)(uintptr_t)reply->restore;
    wire.checkpoint = &checkpoint;
    wire.closing = reply->closing;
    wire.incarnation = reply->incarnation;
    wire.generation = reply->generation;
    checkpoint.order = reply->order;
    checkpoint.step = reply->step;
    checkpoint.given = reply->given;
    return message_pack(&wire.base, data, bytes);
}

enum status message_unpack_control_reply(const uint8_t *data, size_t bytes,
                                         struct net_control_reply *reply,
                                         char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__CoordinateReply *wire = weir__v1__coordinate_reply__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the CoordinateReply does not decode");
        return ST_PROTOCOL;
    }
    const Weir__V1__CoordinateReply__Checkpoint *c = wire->checkpoint;
    *reply = (struct net_control_reply){.number = wire->number,
                                        .incarnation = wire->incarnation,
                                        .generation = wire->generation,
                                        .step = -1,
                                        .closing = wire->closing != 0};
    snprintf(reply->refused, sizeof reply->refused, "%s", wire->refused);
    snprintf(reply->restore, sizeof reply->restore, "%s", wire->restore);
    if (c) {
        reply->order = c->order;
        reply->step = c->step;
        reply->given = c->given;
    }
    enum status st = ST_OK;
    if (strchr(reply->restore, '/') || reply->step < -1)
        st = message_invalid(why, "the CoordinateReply names a file or a step that cannot be");
    weir__v1__coordinate_reply__free_unpacked(wire, &b.allocator);
    return st;
}
