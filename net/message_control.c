/* net/message_control.c - see message.h: what servers tell each other. The phases on the wire are
 * those of ps/saver.h, number for number. */
#include "net/message.h"
#include "net/message_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The messages inside a request, which it borrows. */
struct request_parts {
    Weir__V1__CoordinateRequest__Checkpoint checkpoint;
    Weir__V1__CoordinateRequest__Stand stand;
    Weir__V1__CoordinateRequest__Missing *missing, **list;
};

static void checkpoint_to_wire(const struct net_control *control,
                               Weir__V1__CoordinateRequest__Checkpoint *to)
{
    weir__v1__coordinate_request__checkpoint__init(to);
    to->wanted = control->wanted;
    to->order = control->order;
    to->phase = (Weir__V1__CoordinateRequest__Phase)control->phase;
    to->bytes = control->bytes;
    to->crc32c = control->crc32c;
}

static void stand_to_wire(const struct net_control *control, Weir__V1__CoordinateRequest__Stand *to)
{
    weir__v1__coordinate_request__stand__init(to);
    to->stop = control->stop;
    to->reached = control->stopped != 0;
    to->lowest = control->lowest;
    to->highest = control->highest;
}

static enum status missing_to_wire(const struct net_control *control, struct request_parts *parts)
{
    size_t n = (size_t)control->n_missing;
    if (n == 0)
        return ST_OK;
    parts->missing = calloc(n, sizeof *parts->missing);
    parts->list = calloc(n, sizeof(Weir__V1__CoordinateRequest__Missing *));
    if (!parts->missing || !parts->list)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        parts->list[i] = &parts->missing[i];
        weir__v1__coordinate_request__missing__init(parts->list[i]);
        parts->missing[i].member = (uint32_t)control->missing[i].member;
        parts->missing[i].ms = (uint64_t)control->missing[i].ms;
    }
    return ST_OK;
}

enum status message_pack_control(const struct net_control *control, uint8_t **data, size_t *bytes)
{
    Weir__V1__CoordinateRequest wire = WEIR__V1__COORDINATE_REQUEST__INIT;
    struct request_parts parts = {.missing = NULL};
    wire.protocol = MESSAGE_PROTOCOL;
    wire.server = (uint32_t)control->server;
    wire.n_servers = (uint32_t)control->n_servers;
    wire.incarnation = control->incarnation;
    wire.generation = control->generation;
    wire.seen = control->seen;
    wire.address = (char *)(uintptr_t)control->address;
    wire.joining = control->joining != 0;
    wire.leaving = control->leaving != 0;
    checkpoint_to_wire(control, &parts.checkpoint);
    wire.checkpoint = &parts.checkpoint;
    stand_to_wire(control, &parts.stand);
    wire.stand = &parts.stand;
    enum status st = missing_to_wire(control, &parts);
    wire.n_missing = (size_t)control->n_missing;
    wire.missing = parts.list;
    if (st == ST_OK)
        st = message_pack(&wire.base, data, bytes);
    free(parts.list);
    free(parts.missing);
    return st;
}

/* NULL, or what cannot be. */
static const char *control_problem(const Weir__V1__CoordinateRequest *wire)
{
    const Weir__V1__CoordinateRequest__Checkpoint *c = wire->checkpoint;
    const Weir__V1__CoordinateRequest__Stand *stand = wire->stand;
    if (wire->protocol != MESSAGE_PROTOCOL)
        return "another protocol than this server's";
    if (wire->incarnation == 0 || wire->generation > (uint64_t)MESSAGE_MAX_STEP)
        return "the incarnation is 0, or the generation out of bounds";
    if (wire->joining
            ? wire->server != 0 || wire->n_servers != 0 || !wire->address[0]
            : wire->n_servers < 1 || wire->n_servers > HOSTS_MAX || wire->server >= wire->n_servers)
        return "the server's number or their count cannot be, or one that joins has no address";
    if (wire->address[0] &&
        (strlen(wire->address) >= CONTROL_TEXT_BYTES || hosts_problem(wire->address)))
        return "the server's address is no host:port";
    if (c && ((int)c->phase < 0 || (int)c->phase >= CONTROL_N_PHASES || c->bytes > INT64_MAX))
        return "the checkpoint's phase or size cannot be";
    if (stand &&
        (stand->lowest < -1 || stand->highest < stand->lowest || stand->highest > MESSAGE_MAX_STEP))
        return "the versions of the server's chunks cannot be";
    return NULL;
}

static enum status missing_from_wire(const Weir__V1__CoordinateRequest *wire,
                                     struct net_control *to, char why[MESSAGE_WHY_BYTES])
{
    size_t n = wire->n_missing;
    if (n == 0)
        return ST_OK;
    if (n > JOB_MAX_WORKERS)
        return message_invalid(why, "more members are missing than there can be");
    struct net_missing *list = malloc(n * sizeof *list);
    if (!list)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const Weir__V1__CoordinateRequest__Missing *m = wire->missing[i];
        if (m->member >= JOB_MAX_WORKERS || m->ms > (uint64_t)MESSAGE_MAX_STEP) {
            free(list);
            return message_invalid(why, "a missing member's index or time cannot be");
        }
        list[i] = (struct net_missing){(int)m->member, (int64_t)m->ms};
    }
    to->missing = list;
    to->n_missing = (int)n;
    return ST_OK;
}

static enum status control_from_wire(const Weir__V1__CoordinateRequest *wire,
                                     struct net_control *out, char why[MESSAGE_WHY_BYTES])
{
    const Weir__V1__CoordinateRequest__Checkpoint *c = wire->checkpoint;
    const Weir__V1__CoordinateRequest__Stand *stand = wire->stand;
    const char *wrong = control_problem(wire);
    if (wrong)
        return message_invalid(why, wrong);
    struct net_control to = {.server = (int)wire->server,
                             .n_servers = (int)wire->n_servers,
                             .incarnation = wire->incarnation,
                             .generation = wire->generation,
                             .seen = wire->seen,
                             .joining = wire->joining != 0,
                             .leaving = wire->leaving != 0,
                             .lowest = -1,
                             .highest = -1};
    snprintf(to.address, sizeof to.address, "%s", wire->address);
    if (c) {
        to.wanted = c->wanted;
        to.order = c->order;
        to.phase = (int)c->phase;
        to.bytes = c->bytes;
        to.crc32c = c->crc32c;
    }
    if (stand) {
        to.stop = stand->stop;
        to.stopped = stand->reached != 0;
        to.lowest = stand->lowest;
        to.highest = stand->highest;
    }
    enum status st = missing_from_wire(wire, &to, why);
    if (st == ST_OK)
        *out = to;
    return st;
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
    Weir__V1__CoordinateReply__Stop stop = WEIR__V1__COORDINATE_REPLY__STOP__INIT;
    wire.number = reply->number;
    wire.refused = (char *)(uintptr_t)reply->refused;
    wire.restore = (char *)(uintptr_t)reply->restore;
    wire.checkpoint = &checkpoint;
    wire.closing = reply->closing;
    wire.incarnation = reply->incarnation;
    wire.generation = reply->generation;
    wire.settled = reply->settled;
    wire.drained = reply->drained != 0;
    checkpoint.order = reply->order;
    checkpoint.step = reply->step;
    checkpoint.given = reply->given;
    stop.number = reply->stop;
    stop.step = reply->stop_step;
    wire.stop = &stop;
    if (!reply->plan)
        return message_pack(&wire.base, data, bytes);
    struct message_plan plan;
    enum status st = message_plan_to_wire(reply->plan, &plan);
    if (st != ST_OK)
        return st;
    wire.plan = &plan.wire;
    st = message_pack(&wire.base, data, bytes);
    message_plan_free(&plan);
    return st;
}

static enum status reply_from_wire(const Weir__V1__CoordinateReply *wire,
                                   struct net_control_reply *out, char why[MESSAGE_WHY_BYTES])
{
    const Weir__V1__CoordinateReply__Checkpoint *c = wire->checkpoint;
    struct net_control_reply to = {.number = wire->number,
                                   .incarnation = wire->incarnation,
                                   .generation = wire->generation,
                                   .step = c ? c->step : -1,
                                   .closing = wire->closing != 0,
                                   .stop = wire->stop ? wire->stop->number : 0,
                                   .stop_step = wire->stop ? wire->stop->step : -1,
                                   .settled = wire->settled,
                                   .drained = wire->drained != 0};
    if (strchr(wire->restore, '/') || strlen(wire->restore) >= sizeof to.restore || to.step < -1 ||
        to.stop_step < -1)
        return message_invalid(why, "the CoordinateReply names a file or a step that cannot be");
    if (wire->generation > (uint64_t)MESSAGE_MAX_STEP ||
        (wire->plan && wire->plan->generation != wire->generation))
        return message_invalid(
            why, "the CoordinateReply's plan is of another generation, or it is out of bounds");
    snprintf(to.refused, sizeof to.refused, "%s", wire->refused);
    snprintf(to.restore, sizeof to.restore, "%s", wire->restore);
    if (c) {
        to.order = c->order;
        to.given = c->given;
    }
    enum status st = wire->plan ? message_plan_from_wire(wire->plan, &to.plan, why) : ST_OK;
    if (st == ST_OK)
        *out = to;
    return st;
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
    enum status st = reply_from_wire(wire, reply, why);
    weir__v1__coordinate_reply__free_unpacked(wire, &b.allocator);
    return st;
}
