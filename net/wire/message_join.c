/* net/wire/message_join.c - see message.h: how a member joins and leaves. */
#include "base/flags.h"
#include "net/wire/message_impl.h"
#include <stdlib.h>
#include <string.h>

/* Reads a segment's name. If the name is malformed, it counts as absent, so that the server serves
 * the sender without a segment. */
static enum status read_segment(const void *message, void *plain, char *why)
{
    const Weir__V1__Segment *from = message;
    struct segment_name *to = plain;
    if (from->nonce.len == sizeof to->nonce)
        memcpy(to->nonce, from->nonce.data, sizeof to->nonce);
    else
        *to = (struct segment_name){.bytes = 0};
    return ST_OK;
}

static enum status write_segment(const void *plain, void *message, struct message_room *room)
{
    const struct segment_name *from = plain;
    ((Weir__V1__Segment *)message)->nonce =
        (ProtobufCBinaryData){sizeof from->nonce, (uint8_t *)(uintptr_t)from->nonce};
    return ST_OK;
}

#define OF Weir__V1__Segment, struct segment_name
static const struct message_row segment_rows[] = {
    ANY(OF, pid, pid),
    ANY(OF, fd, fd),
    ANY(OF, bytes, bytes),
};
static const struct message_type segment_type = {MESSAGE_TYPE(OF, segment, segment_rows),
                                                 .read = read_segment, .write = write_segment};
#undef OF

static const char *join_problem(const void *message)
{
    const Weir__V1__JoinRequest *from = message;
    if (!from->job || from->incarnation == 0)
        return "the request has no job or no incarnation";
    if (from->any_index && (from->member != 0 || from->job->n_workers != 0))
        return "the request asks for an index, but has an index or a number of workers";
    for (const char *c = from->address; *c; c++)
        if (*c <= ' ' || *c > '~')
            return "the member's address is not printable";
    return NULL;
}

static enum status read_join(const void *message, void *plain, char *why)
{
    const Weir__V1__JoinRequest *from = message;
    struct net_join *to = plain;
    struct chunks *chunks = NULL;
    char *model = NULL;
    enum status st = ST_OK;
    if (from->any_index)
        to->member = -1;
    if (!to->address)
        TRY((to->address = strdup("")) ? ST_OK : ST_NOMEM);
    TRY(message_job_read(from->job, &to->job, &chunks, why));
    to->chunks = chunks;
    TRY(message_job_read_model(from->job, &model, &to->hidden_units, why));
    to->model = model;
done:
    return st;
}

static enum status write_join(const void *plain, void *message, struct message_room *room)
{
    const struct net_join *from = plain;
    Weir__V1__JoinRequest *to = message;
    if (from->member < 0) {
        to->member = 0;
        to->any_index = 1;
    }
    if (from->trained_on && strlen(from->trained_on) > JOB_MAX_TRAINED_ON_BYTES)
        to->trained_on = NULL;
    if (!from->segment.bytes)
        to->segment = NULL;
    if (!from->values.bytes)
        to->values = NULL;
    enum status st = message_job_write(&from->job, from->chunks, room, &to->job);
    if (st == ST_OK)
        message_job_write_model(from->model, from->hidden_units, to->job);
    return st;
}

static void release_join(void *plain)
{
    struct net_join *join = plain;
    chunks_destroy((struct chunks *)(uintptr_t)join->chunks);
    free((char *)(uintptr_t)join->model);
}

#define OF Weir__V1__JoinRequest, struct net_join
static const char no_member[] = "the member's number or the generation is out of bounds";
static const struct message_row join_rows[] = {
    NUMBER(OF, member, member, 0, JOB_MAX_WORKERS - 1, no_member),
    NUMBER(OF, generation, generation, 0, MESSAGE_MAX_STEP, no_member),
    STRING(OF, address, address, JOB_ADDRESS_BYTES - 1, "the member's address is too long"),
    STRING(OF, trained_on, trained_on, JOB_MAX_TRAINED_ON_BYTES,
           "the description of its data is too long"),
    ANY(OF, incarnation, incarnation),
    ANY(OF, ps0, ps0),
    PART(OF, segment, segment, &segment_type),
    PART(OF, values, values, &segment_type),
};
static const struct message_type join_type = {MESSAGE_TYPE(OF, join_request, join_rows),
                                              .problem = join_problem, .read = read_join,
                                              .write = write_join, .release = release_join};
#undef OF

enum status message_join_pack(const struct net_join *join, uint8_t **data, size_t *bytes)
{
    return message_pack(&join_type, join, data, bytes);
}

enum status message_join_unpack(const uint8_t *data, size_t bytes, struct net_join *join,
                                struct chunks **chunks, char why[MESSAGE_WHY_BYTES])
{
    enum status st = message_unpack(&join_type, data, bytes, join, why);
    if (st == ST_OK)
        *chunks = (struct chunks *)(uintptr_t)join->chunks;
    return st;
}

void message_join_free(struct net_join *join)
{
    free((char *)(uintptr_t)join->model);
    free((char *)(uintptr_t)join->address);
    free((char *)(uintptr_t)join->trained_on);
    join->model = join->address = join->trained_on = NULL;
}

/* Reads the optimizer of rounds; false: not valid. */
static bool read_outer(const Weir__V1__JoinReply *from, struct net_place *to)
{
    int kind = from->outer_optimizer[0] ? flags_choice_find(OPTIM_NAMES, from->outer_optimizer) : 0;
    to->has_outer = from->outer_optimizer[0] != 0;
    if (kind < 0)
        return false;
    optim_outer_defaults((enum optim_kind)kind, 1, &to->outer);
    if (to->has_outer) {
        to->outer.learning_rate = from->outer_learning_rate;
        to->outer.momentum = from->outer_momentum;
    }
    return optim_check(&to->outer) == ST_OK;
}

static const char no_place[] = "the JoinReply's place among the members is not valid";
static const char no_region[] = "the JoinReply's region is not valid";
static const char no_step[] = "the JoinReply's step or position is out of bounds";
static const char no_dtype[] = "the JoinReply names an unknown number format";

/* Returns the problem with the place; NULL: no problem. A rank is the number of members with a
 * lower index, so it is not above the member's index. */
static const char *place_problem(const void *message)
{
    const Weir__V1__JoinReply *from = message;
    if (from->rank >= from->n_members || from->rank > from->member)
        return no_place;
    if (from->region > 0 && from->region >= from->n_regions)
        return no_region;
    return from->contributed < 0 || from->contributed > from->first_step
               ? "the JoinReply's last contribution is out of bounds"
               : NULL;
}

static enum status read_place(const void *message, void *plain, char *why)
{
    return read_outer(message, plain)
               ? ST_OK
               : message_invalid(
                     why,
                     "the JoinReply's outer optimizer is unknown, or one of its settings is out of bounds");
}

static enum status write_place(const void *plain, void *message, struct message_room *room)
{
    const struct net_place *from = plain;
    Weir__V1__JoinReply *to = message;
    if (!from->has_outer)
        return ST_OK;
    to->outer_optimizer = (char *)(uintptr_t)optim_name(from->outer.kind);
    to->outer_learning_rate = from->outer.learning_rate;
    to->outer_momentum = from->outer.momentum;
    return ST_OK;
}

#define OF Weir__V1__JoinReply, struct net_place
static const struct message_row place_rows[] = {
    NUMBER(OF, n_members, n_members, 1, JOB_MAX_WORKERS, no_place),
    NUMBER(OF, member, member, 0, JOB_MAX_WORKERS - 1, no_place),
    ANY(OF, rank, rank),
    NUMBER(OF, n_regions, n_regions, 0, JOB_MAX_WORKERS, no_region),
    ANY(OF, region, region),
    NUMBER(OF, first_step, first_step, 0, MESSAGE_MAX_STEP, no_step),
    NUMBER(OF, position, position, 0, MESSAGE_MAX_STEP, no_step),
    NUMBER(OF, train_steps, train_steps, 0, MESSAGE_MAX_STEP, no_step),
    NUMBER(OF, asked_steps, asked_steps, 0, MESSAGE_MAX_STEP, no_step),
    ANY(OF, contributed, contributed),
    ANY(OF, contributed_in, contributed_in),
    ANY(OF, validates, validates),
    BYTES(OF, rounded, rounding.n_bytes, rounding.bits, ROUNDING_MAX_BYTES,
          "the JoinReply lists the rounding of too many layers"),
    CHOICE(OF, push_dtype, push_dtype, DTYPE_NAMES, no_dtype, .is_option = true),
    CHOICE(OF, version_dtype, version_dtype, DTYPE_NAMES, no_dtype, .is_option = true),
};
static const struct message_type place_type = {MESSAGE_TYPE(OF, join_reply, place_rows),
                                               .problem = place_problem, .read = read_place,
                                               .write = write_place};
#undef OF

/* Reads the parts of a reply that only a member receives: its place and the map of chunks. */
static enum status read_welcome(const void *message, void *plain, char *why)
{
    const Weir__V1__JoinReply *from = message;
    struct net_join_reply *to = plain;
    enum status st = ST_OK;
    if (from->n_members > 0)
        TRY(message_read(&place_type, from, &to->place, why));
    st = message_plan_read_map(from->server, from->n_server,
                               to->servers.n > 0 ? to->servers.n : HOSTS_MAX, &to->server, why);
    to->n_chunks = st == ST_OK ? (int)from->n_server : 0;
done:
    return st;
}

static enum status write_welcome(const void *plain, void *message, struct message_room *room)
{
    const struct net_join_reply *from = plain;
    Weir__V1__JoinReply *to = message;
    to->n_server = from->server ? (size_t)from->n_chunks : 0;
    to->server = message_numbers(from->server);
    if (!from->segment.bytes)
        to->segment = NULL;
    return from->place.n_members != 0 ? message_fill(&place_type, &from->place, room, to) : ST_OK;
}

#define OF Weir__V1__JoinReply, struct net_join_reply
static const struct message_row welcome_rows[] = {
    NUMBER(OF, step, step, -1, MESSAGE_MAX_STEP, "the JoinReply's version is out of bounds"),
    HOSTS(OF, server_address, servers),
    PART(OF, segment, segment, &segment_type),
    ANY(OF, values, values),
};
static const struct message_type welcome_type = {MESSAGE_TYPE(OF, join_reply, welcome_rows),
                                                 .read = read_welcome, .write = write_welcome};

static enum status read_reply(const void *message, void *plain, char *why)
{
    const struct net_join_reply *to = plain;
    return to->answer == JOIN_WELCOME || to->answer == JOIN_INIT
               ? message_read(&welcome_type, message, plain, why)
               : ST_OK;
}

static enum status write_reply(const void *plain, void *message, struct message_room *room)
{
    return message_fill(&welcome_type, plain, room, message);
}

static void release_reply(void *plain)
{
    free(((struct net_join_reply *)plain)->server);
    message_release(&welcome_type, plain);
}

static const struct message_row reply_rows[] = {
    NUMBER(OF, generation, generation, 0, MESSAGE_MAX_STEP,
           "the JoinReply's generation is out of bounds"),
    NUMBER(OF, answer, answer, JOIN_WELCOME, JOIN_RETRY, "the JoinReply has an unknown answer"),
    CUT(OF, why, why),
    ANY(OF, ps0, ps0),
    ANY(OF, step, step),
};
const struct message_type message_reply = {MESSAGE_TYPE(OF, join_reply, reply_rows),
                                           .read = read_reply, .write = write_reply,
                                           .release = release_reply};
#undef OF

#define OF Weir__V1__LeaveRequest, struct net_leave
static const struct message_row leave_rows[] = {
    NUMBER(OF, member, member, 0, JOB_MAX_WORKERS - 1, "the member's number is out of bounds"),
    ANY(OF, incarnation, incarnation),
    ANY(OF, done, done),
    ANY(OF, soon, soon),
    ANY(OF, generation, generation),
    TEXT(OF, error, error),
};
const struct message_type message_leave = {MESSAGE_TYPE(OF, leave_request, leave_rows)};
