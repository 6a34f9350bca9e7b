/* net/wire/message_control.c - see message.h: the state that servers send each other. The phases on
 * the wire have the numbers of enum part_phase. */
#include "net/wire/message_impl.h"
#include <stdlib.h>
#include <string.h>

static const char no_phase[] = "the checkpoint's phase or size is not valid";
static const char no_version[] = "the versions of the server's chunks are not valid";
static const char no_missing[] = "a missing member's index or time is not valid";
static const char no_part[] = "a part of a checkpoint is not valid";
static const char no_term[] =
    "the incarnation is 0, or the generation or the term is out of bounds";

#define OF Weir__V1__CoordinateRequest__Checkpoint, struct net_control
static const struct message_row checkpoint_rows[] = {
    ANY(OF, wanted, wanted),
    ANY(OF, order, order),
    NUMBER(OF, phase, phase, 0, PART_N_PHASES - 1, no_phase),
    NUMBER(OF, bytes, bytes, 0, INT64_MAX, no_phase),
    ANY(OF, crc32c, crc32c),
};
static const struct message_type checkpoint_type = {
    MESSAGE_TYPE(OF, coordinate_request__checkpoint, checkpoint_rows)};
#undef OF

#define OF Weir__V1__CoordinateRequest__Stand, struct net_control
static const struct message_row stand_rows[] = {
    ANY(OF, stop, stop),
    ANY(OF, reached, stopped),
    NUMBER(OF, lowest, lowest, -1, MESSAGE_MAX_STEP, no_version),
    NUMBER(OF, highest, highest, -1, MESSAGE_MAX_STEP, no_version),
};
static const struct message_type stand_type = {
    MESSAGE_TYPE(OF, coordinate_request__stand, stand_rows)};
#undef OF

#define OF Weir__V1__CoordinateRequest__Missing, struct net_missing
static const struct message_row missing_rows[] = {
    NUMBER(OF, member, member, 0, JOB_MAX_WORKERS - 1, no_missing),
    NUMBER(OF, ms, ms, 0, MESSAGE_MAX_STEP, no_missing),
    ANY(OF, came, came),
};
static const struct message_type missing_type = {
    MESSAGE_TYPE(OF, coordinate_request__missing, missing_rows)};
#undef OF

static const char *part_problem(const void *message)
{
    const Weir__V1__CoordinateRequest__Part *wire = message;
    return wire->server >= wire->servers ? no_part : NULL;
}

#define OF Weir__V1__CoordinateRequest__Part, struct net_part
static const struct message_row part_rows[] = {
    NUMBER(OF, generation, generation, 0, MESSAGE_MAX_STEP, no_part),
    NUMBER(OF, step, step, 0, MESSAGE_MAX_STEP, no_part),
    ANY(OF, server, server),
    NUMBER(OF, servers, n_servers, 0, HOSTS_MAX, no_part),
    NUMBER(OF, bytes, bytes, 0, INT64_MAX, no_part),
    ANY(OF, crc32c, crc32c),
};
static const struct message_type part_type = {MESSAGE_TYPE(OF, coordinate_request__part, part_rows),
                                              .problem = part_problem};
#undef OF

static bool is_folder_id(const char *text)
{
    size_t n = strlen(text);
    return n == 0 || (n == CONTROL_FOLDER_BYTES - 1 && strspn(text, "0123456789abcdef") == n);
}

static const char *problem(const void *message)
{
    const Weir__V1__CoordinateRequest *wire = message;
    if (wire->incarnation == 0)
        return no_term;
    if (wire->joining
            ? wire->server != 0 || wire->n_servers != 0 || !wire->address[0]
            : wire->n_servers < 1 || wire->n_servers > HOSTS_MAX || wire->server >= wire->n_servers)
        return "the server's number or the number of servers is not valid, or a joining server has no address";
    if (wire->address[0] &&
        (strlen(wire->address) >= CONTROL_TEXT_BYTES || hosts_problem(wire->address)))
        return "the server's address is not host:port";
    if (wire->stand && wire->stand->highest < wire->stand->lowest)
        return no_version;
    return is_folder_id(wire->folder) ? NULL : "the id of the server's folder is not valid";
}

static enum status read_control(const void *message, void *plain, char *why)
{
    struct net_control *to = plain;
    hosts_lower(to->address);
    if (!((const Weir__V1__CoordinateRequest *)message)->stand)
        to->lowest = to->highest = -1;
    return ST_OK;
}

#define OF Weir__V1__CoordinateRequest, struct net_control
static const struct message_row rows[] = {
    NUMBER(OF, generation, generation, 0, MESSAGE_MAX_STEP, no_term),
    NUMBER(OF, heard_epoch, heard_epoch, 0, MESSAGE_MAX_STEP, no_term),
    NUMBER(OF, unreadable, unreadable, 0, MESSAGE_MAX_STEP, no_term),
    ANY(OF, server, server),
    ANY(OF, n_servers, n_servers),
    ANY(OF, incarnation, incarnation),
    ANY(OF, ps0, ps0),
    ANY(OF, heard_ps0, heard_ps0),
    ANY(OF, seen, seen),
    ANY(OF, serial, serial),
    ANY(OF, joining, joining),
    ANY(OF, leaving, leaving),
    CUT(OF, address, address),
    CUT(OF, folder, folder),
    FLAT(OF, checkpoint, &checkpoint_type),
    FLAT(OF, stand, &stand_type),
    LIST(OF, missing, n_missing, missing, &missing_type, 0, JOB_MAX_WORKERS,
         "too many members are missing"),
    ANY(OF, parts_known, knows_parts),
    LIST(OF, parts, n_parts, parts, &part_type, 0, CONTROL_MAX_PARTS,
         "too many parts of checkpoints"),
};
const struct message_type message_control = {MESSAGE_TYPE(OF, coordinate_request, rows),
                                             .problem = problem, .read = read_control};
#undef OF

static const char no_file[] = "the CoordinateReply has an invalid file or step";
static const char no_plan[] =
    "the CoordinateReply's plan is of another generation, or its generation is out of bounds";

#define OF Weir__V1__CoordinateReply__Checkpoint, struct net_control_reply
static const struct message_row order_rows[] = {
    ANY(OF, order, order),
    NUMBER(OF, step, step, -1, INT64_MAX, no_file),
    ANY(OF, given, given),
};
static const struct message_type order_type = {
    MESSAGE_TYPE(OF, coordinate_reply__checkpoint, order_rows)};
#undef OF

#define OF Weir__V1__CoordinateReply__Stop, struct net_control_reply
static const struct message_row stop_rows[] = {
    ANY(OF, number, stop),
    NUMBER(OF, step, stop_step, -1, INT64_MAX, no_file),
};
static const struct message_type stop_type = {MESSAGE_TYPE(OF, coordinate_reply__stop, stop_rows)};
#undef OF

#define OF Weir__V1__CoordinateReply__Kept, struct net_kept
static const struct message_row kept_rows[] = {
    ANY(OF, generation, generation),
    ANY(OF, step, step),
};
static const struct message_type kept_type = {MESSAGE_TYPE(OF, coordinate_reply__kept, kept_rows)};
#undef OF

static const char *reply_problem(const void *message)
{
    const Weir__V1__CoordinateReply *wire = message;
    if (strchr(wire->restore, '/'))
        return no_file;
    if (wire->plan && wire->plan->generation != wire->generation)
        return no_plan;
    return is_folder_id(wire->folder) ? NULL
                                      : "the id of the CoordinateReply's folder is not valid";
}

static enum status read_reply(const void *message, void *plain, char *why)
{
    const Weir__V1__CoordinateReply *wire = message;
    struct net_control_reply *to = plain;
    if (!wire->checkpoint)
        to->step = -1;
    if (!wire->stop)
        to->stop_step = -1;
    if (!wire->plan)
        return ST_OK;
    to->plan = calloc(1, sizeof *to->plan);
    return to->plan ? message_read(&message_plan, wire->plan, to->plan, why) : ST_NOMEM;
}

static enum status write_reply(const void *plain, void *message, struct message_room *room)
{
    const struct net_control_reply *reply = plain;
    void *plan = NULL;
    enum status st = ST_OK;
    if (reply->plan)
        st = message_write(&message_plan, reply->plan, room, &plan);
    ((Weir__V1__CoordinateReply *)message)->plan = plan;
    return st;
}

static void release_reply(void *reply)
{
    net_plan_free(((struct net_control_reply *)reply)->plan);
}

#define OF Weir__V1__CoordinateReply, struct net_control_reply
static const struct message_row reply_rows[] = {
    FIT(OF, restore, restore, no_file),
    FLAT(OF, checkpoint, &order_type),
    FLAT(OF, stop, &stop_type),
    NUMBER(OF, generation, generation, 0, MESSAGE_MAX_STEP, no_plan),
    ANY(OF, number, number),
    CUT(OF, refused, refused),
    ANY(OF, closing, closing),
    ANY(OF, incarnation, incarnation),
    ANY(OF, settled, settled),
    ANY(OF, drained, drained),
    ANY(OF, failed, failed),
    ANY(OF, epoch, epoch),
    CUT(OF, folder, folder),
    ANY(OF, kept_known, knows_kept),
    ANY(OF, older_stay, older_stay),
    LIST(OF, kept, n_kept, kept, &kept_type, 0, CONTROL_MAX_KEPT,
         "the CoordinateReply names too many checkpoints"),
};
const struct message_type message_control_reply = {MESSAGE_TYPE(OF, coordinate_reply, reply_rows),
                                                   .problem = reply_problem, .read = read_reply,
                                                   .write = write_reply, .release = release_reply};

void message_control_free(struct net_control *control)
{
    message_release(&message_control, control);
}

void message_control_reply_free(struct net_control_reply *reply)
{
    message_release(&message_control_reply, reply);
    reply->plan = NULL;
}
