/* net/wire/message_control.c - see message.h: what servers tell each other. The phases on the wire
 * are those of ps/service/checkpoint_writer.h, number for number. */
#include "net/wire/message_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The messages inside a request, which it borrows. */
struct request_parts {
    Weir__V1__CoordinateRequest__Checkpoint checkpoint;
    Weir__V1__CoordinateRequest__Stand stand;
    Weir__V1__CoordinateRequest__Missing *missing, **list;
    Weir__V1__CoordinateRequest__Part *part, **parts;
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
        parts->missing[i].came = control->missing[i].came != 0;
    }
    return ST_OK;
}

static enum status parts_to_wire(const struct net_control *control, struct request_parts *parts)
{
    size_t n = (size_t)control->n_parts;
    if (n == 0)
        return ST_OK;
    parts->part = calloc(n, sizeof *parts->part);
    parts->parts = calloc(n, sizeof(Weir__V1__CoordinateRequest__Part *));
    if (!parts->part || !parts->parts)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct net_part *from = &control->parts[i];
        Weir__V1__CoordinateRequest__Part *to = parts->parts[i] = &parts->part[i];
        weir__v1__coordinate_request__part__init(to);
        to->generation = from->generation;
        to->step = from->step;
        to->server = (uint32_t)from->server;
        to->servers = (uint32_t)from->n_servers;
        to->bytes = from->bytes;
        to->crc32c = from->crc32c;
    }
    return ST_OK;
}

enum status message_control_pack(const struct net_control *control, uint8_t **data, size_t *bytes)
{
    Weir__V1__CoordinateRequest wire = WEIR__V1__COORDINATE_REQUEST__INIT;
    struct request_parts parts = {.missing = NULL};
    wire.protocol = MESSAGE_PROTOCOL;
    wire.server = (uint32_t)control->server;
    wire.n_servers = (uint32_t)control->n_servers;
    wire.incarnation = control->incarnation;
    wire.generation = control->generation;
    wire.ps0 = control->ps0;
    wire.heard_ps0 = control->heard_ps0;
    wire.heard_epoch = control->heard_epoch;
    wire.unreadable = control->unreadable;
    wire.seen = control->seen;
    wire.serial = control->serial;
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
    wire.folder = (char *)(uintptr_t)control->folder;
    wire.parts_known = control->knows_parts != 0;
    if (st == ST_OK)
        st = parts_to_wire(control, &parts);
    wire.n_parts = (size_t)control->n_parts;
    wire.parts = parts.parts;
    if (st == ST_OK)
        st = message_encode(&wire.base, data, bytes);
    free(parts.list);
    free(parts.missing);
    free(parts.parts);
    free(parts.part);
    return st;
}

static int is_folder_id(const char *text)
{
    size_t n = strlen(text);
    return n == 0 || (n == CONTROL_FOLDER_BYTES - 1 && strspn(text, "0123456789abcdef") == n);
}

/* NULL, or what cannot be. */
static const char *control_problem(const Weir__V1__CoordinateRequest *wire)
{
    const Weir__V1__CoordinateRequest__Checkpoint *c = wire->checkpoint;
    const Weir__V1__CoordinateRequest__Stand *stand = wire->stand;
    if (wire->incarnation == 0 || wire->generation > (uint64_t)MESSAGE_MAX_STEP ||
        wire->heard_epoch > (uint64_t)MESSAGE_MAX_STEP ||
        wire->unreadable > (uint64_t)MESSAGE_MAX_STEP)
        return "the incarnation is 0, or the generation or the term out of bounds";
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
    return is_folder_id(wire->folder) ? NULL : "the id of the server's folder cannot be";
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
        list[i] = (struct net_missing){(int)m->member, (int64_t)m->ms, m->came != 0};
    }
    to->missing = list;
    to->n_missing = (int)n;
    return ST_OK;
}

static enum status parts_from_wire(const Weir__V1__CoordinateRequest *wire, struct net_control *to,
                                   char why[MESSAGE_WHY_BYTES])
{
    size_t n = wire->n_parts;
    to->knows_parts = wire->parts_known != 0;
    if (n == 0)
        return ST_OK;
    if (n > CONTROL_MAX_PARTS)
        return message_invalid(why, "more parts of checkpoints are named than there can be");
    struct net_part *list = malloc(n * sizeof *list);
    if (!list)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const Weir__V1__CoordinateRequest__Part *p = wire->parts[i];
        if (p->generation > (uint64_t)MESSAGE_MAX_STEP || p->step < 0 ||
            p->step > MESSAGE_MAX_STEP || p->servers > HOSTS_MAX || p->server >= p->servers ||
            p->bytes > INT64_MAX) {
            free(list);
            return message_invalid(why, "a part of a checkpoint cannot be");
        }
        list[i] = (struct net_part){.generation = p->generation,
                                    .step = p->step,
                                    .server = (int)p->server,
                                    .n_servers = (int)p->servers,
                                    .bytes = p->bytes,
                                    .crc32c = p->crc32c};
    }
    to->parts = list;
    to->n_parts = (int)n;
    return ST_OK;
}

static enum status control_from_wire(const Weir__V1__CoordinateRequest *wire,
                                     struct net_control *out, char why[MESSAGE_WHY_BYTES])
{
    const Weir__V1__CoordinateRequest__Checkpoint *c = wire->checkpoint;
    const Weir__V1__CoordinateRequest__Stand *stand = wire->stand;
    if (message_check_protocol(wire->protocol, why) != ST_OK)
        return ST_INVALID;
    const char *wrong = control_problem(wire);
    if (wrong)
        return message_invalid(why, wrong);
    struct net_control to = {.server = (int)wire->server,
                             .n_servers = (int)wire->n_servers,
                             .incarnation = wire->incarnation,
                             .generation = wire->generation,
                             .ps0 = wire->ps0,
                             .heard_ps0 = wire->heard_ps0,
                             .heard_epoch = wire->heard_epoch,
                             .unreadable = wire->unreadable,
                             .seen = wire->seen,
                             .serial = wire->serial,
                             .joining = wire->joining != 0,
                             .leaving = wire->leaving != 0,
                             .lowest = -1,
                             .highest = -1};
    snprintf(to.address, sizeof to.address, "%s", wire->address);
    hosts_lower(to.address);
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
    snprintf(to.folder, sizeof to.folder, "%s", wire->folder);
    enum status st = missing_from_wire(wire, &to, why);
    if (st == ST_OK)
        st = parts_from_wire(wire, &to, why);
    if (st == ST_OK)
        *out = to;
    else
        free(to.missing);
    return st;
}

enum status message_control_unpack(const uint8_t *data, size_t bytes, struct net_control *control,
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

static enum status kept_to_wire(const struct net_control_reply *reply,
                                Weir__V1__CoordinateReply *to)
{
    size_t n = (size_t)reply->n_kept;
    to->kept_known = reply->knows_kept != 0;
    to->older_stay = reply->older_stay != 0;
    if (n == 0)
        return ST_OK;
    to->kept = calloc(n, sizeof(Weir__V1__CoordinateReply__Kept *));
    Weir__V1__CoordinateReply__Kept *list = calloc(n, sizeof *list);
    if (!to->kept || !list) {
        free(to->kept);
        free(list);
        to->kept = NULL;
        return ST_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        to->kept[i] = &list[i];
        weir__v1__coordinate_reply__kept__init(&list[i]);
        list[i].generation = reply->kept[i].generation;
        list[i].step = reply->kept[i].step;
    }
    to->n_kept = n;
    return ST_OK;
}

static enum status pack_reply(const struct net_control_reply *reply,
                              Weir__V1__CoordinateReply *wire, uint8_t **data, size_t *bytes)
{
    struct message_plan plan;
    enum status st = ST_OK;
    if (reply->plan) {
        TRY(message_plan_to_wire(reply->plan, &plan));
        wire->plan = &plan.wire;
    }
    st = message_encode(&wire->base, data, bytes);
    if (reply->plan)
        message_plan_free(&plan);
done:
    return st;
}

enum status message_control_reply_pack(const struct net_control_reply *reply, uint8_t **data,
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
    wire.failed = reply->failed != 0;
    wire.epoch = reply->epoch;
    checkpoint.order = reply->order;
    checkpoint.step = reply->step;
    checkpoint.given = reply->given;
    stop.number = reply->stop;
    stop.step = reply->stop_step;
    wire.stop = &stop;
    wire.folder = (char *)(uintptr_t)reply->folder;
    enum status st = kept_to_wire(reply, &wire);
    if (st == ST_OK)
        st = pack_reply(reply, &wire, data, bytes);
    if (wire.kept)
        free(wire.kept[0]);
    free(wire.kept);
    return st;
}

static enum status kept_from_wire(const Weir__V1__CoordinateReply *wire,
                                  struct net_control_reply *to, char why[MESSAGE_WHY_BYTES])
{
    size_t n = wire->n_kept;
    to->knows_kept = wire->kept_known != 0;
    to->older_stay = wire->older_stay != 0;
    if (n == 0)
        return ST_OK;
    if (n > CONTROL_MAX_KEPT)
        return message_invalid(why, "the CoordinateReply names too many checkpoints");
    to->kept = malloc(n * sizeof *to->kept);
    if (!to->kept)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++)
        to->kept[i] = (struct net_kept){wire->kept[i]->generation, wire->kept[i]->step};
    to->n_kept = (int)n;
    return ST_OK;
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
                                   .drained = wire->drained != 0,
                                   .failed = wire->failed != 0,
                                   .epoch = wire->epoch};
    if (strchr(wire->restore, '/') || strlen(wire->restore) >= sizeof to.restore || to.step < -1 ||
        to.stop_step < -1)
        return message_invalid(why, "the CoordinateReply names a file or a step that cannot be");
    if (wire->generation > (uint64_t)MESSAGE_MAX_STEP ||
        (wire->plan && wire->plan->generation != wire->generation))
        return message_invalid(
            why, "the CoordinateReply's plan is of another generation, or it is out of bounds");
    if (!is_folder_id(wire->folder))
        return message_invalid(why, "the CoordinateReply's folder has an id that cannot be");
    snprintf(to.refused, sizeof to.refused, "%s", wire->refused);
    snprintf(to.restore, sizeof to.restore, "%s", wire->restore);
    if (c) {
        to.order = c->order;
        to.given = c->given;
    }
    snprintf(to.folder, sizeof to.folder, "%s", wire->folder);
    enum status st = kept_from_wire(wire, &to, why);
    if (st == ST_OK && wire->plan)
        st = message_plan_from_wire(wire->plan, &to.plan, why);
    if (st == ST_OK)
        *out = to;
    else
        free(to.kept);
    return st;
}

enum status message_control_reply_unpack(const uint8_t *data, size_t bytes,
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

void message_control_free(struct net_control *control)
{
    free(control->missing);
    free(control->parts);
    control->missing = NULL;
    control->parts = NULL;
    control->n_missing = control->n_parts = 0;
}

void message_control_reply_free(struct net_control_reply *reply)
{
    net_plan_free(reply->plan);
    free(reply->kept);
    reply->plan = NULL;
    reply->kept = NULL;
    reply->n_kept = 0;
}
