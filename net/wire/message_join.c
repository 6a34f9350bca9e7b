/* net/wire/message_join.c - see message.h: how a member joins and leaves. */
#include "base/flags.h"
#include "base/hosts.h"
#include "net/wire/message.h"
#include "net/wire/message_impl.h"
#include "net/wire/weir.pb-c.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void segment_to_wire(const struct segment_name *from, Weir__V1__Segment *to)
{
    weir__v1__segment__init(to);
    to->pid = from->pid;
    to->fd = from->fd;
    to->bytes = from->bytes;
    to->nonce.data = (uint8_t *)(uintptr_t)from->nonce;
    to->nonce.len = sizeof from->nonce;
}

/* One that is malformed is none: who sent it is served without. */
static struct segment_name segment_from_wire(const Weir__V1__Segment *from)
{
    struct segment_name to = {.bytes = 0};
    if (!from || from->nonce.len != sizeof to.nonce)
        return to;
    to.pid = from->pid;
    to.fd = from->fd;
    to.bytes = from->bytes;
    memcpy(to.nonce, from->nonce.data, sizeof to.nonce);
    return to;
}

enum status message_join_pack(const struct net_join *join, uint8_t **data, size_t *bytes)
{
    struct message_job job;
    enum status st = message_job_to_wire(&join->job, join->chunks, &job);
    if (st != ST_OK)
        return st;
    Weir__V1__JoinRequest request = WEIR__V1__JOIN_REQUEST__INIT;
    request.protocol = MESSAGE_PROTOCOL;
    request.member = join->member < 0 ? 0 : (uint32_t)join->member;
    request.any_index = join->member < 0;
    request.address = (char *)(uintptr_t)(join->address ? join->address : "");
    request.incarnation = join->incarnation;
    request.generation = join->generation;
    request.ps0 = join->ps0;
    request.job = &job.wire;
    message_job_model_to_wire(join->model, join->hidden_units, &job.wire);
    if (join->trained_on && strlen(join->trained_on) <= JOB_MAX_TRAINED_ON_BYTES)
        request.trained_on = (char *)(uintptr_t)join->trained_on;
    Weir__V1__Segment segment;
    segment_to_wire(&join->segment, &segment);
    request.segment = join->segment.bytes ? &segment : NULL;
    st = message_encode(&request.base, data, bytes);
    message_job_free(&job);
    return st;
}

/* NULL, or what cannot be. */
static const char *join_problem(const Weir__V1__JoinRequest *from)
{
    size_t n = strlen(from->address);
    if (!from->job || from->incarnation == 0)
        return "the request has no job or no incarnation";
    if (from->any_index && (from->member != 0 || from->job->n_workers != 0))
        return "the request wants to be given an index, but has one, or knows of how many";
    if (from->member >= JOB_MAX_WORKERS || from->generation > (uint64_t)MESSAGE_MAX_STEP)
        return "the member's number or the generation is out of bounds";
    if (n >= JOB_ADDRESS_BYTES)
        return "the member's address is too long";
    if (strlen(from->trained_on) > JOB_MAX_TRAINED_ON_BYTES)
        return "what it says of its data is too long";
    for (size_t i = 0; i < n; i++)
        if (from->address[i] <= ' ' || from->address[i] > '~')
            return "the member's address is not printable";
    return NULL;
}

static enum status join_from_wire(const Weir__V1__JoinRequest *from, struct net_join *to,
                                  struct chunks **chunks, char why[MESSAGE_WHY_BYTES])
{
    if (message_check_protocol(from->protocol, why) != ST_OK)
        return ST_INVALID;
    const char *wrong = join_problem(from);
    if (wrong)
        return message_invalid(why, wrong);
    struct net_job plain;
    enum status st = message_job_from_wire(from->job, &plain, chunks, why);
    if (st != ST_OK)
        return st;
    char *model = NULL, *address = strdup(from->address);
    char *trained_on = from->trained_on[0] ? strdup(from->trained_on) : NULL;
    int hidden_units = 0, lacks = !address || (from->trained_on[0] && !trained_on);
    st = lacks ? ST_NOMEM : message_job_model_from_wire(from->job, &model, &hidden_units, why);
    if (st != ST_OK) {
        free(address);
        free(trained_on);
        return st;
    }
    *to = (struct net_join){.member = from->any_index ? -1 : (int)from->member,
                            .incarnation = from->incarnation,
                            .address = address,
                            .job = plain,
                            .chunks = *chunks,
                            .segment = segment_from_wire(from->segment),
                            .generation = from->generation,
                            .ps0 = from->ps0,
                            .model = model,
                            .hidden_units = hidden_units,
                            .trained_on = trained_on};
    return ST_OK;
}

void message_join_free(struct net_join *join)
{
    free((char *)(uintptr_t)join->model);
    free((char *)(uintptr_t)join->address);
    free((char *)(uintptr_t)join->trained_on);
    join->model = join->address = join->trained_on = NULL;
}

enum status message_join_unpack(const uint8_t *data, size_t bytes, struct net_join *join,
                                struct chunks **chunks, char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__JoinRequest *request = weir__v1__join_request__unpack(&b.allocator, bytes, data);
    if (!request) {
        message_invalid(why, "the JoinRequest does not decode");
        return ST_PROTOCOL;
    }
    enum status st = join_from_wire(request, join, chunks, why);
    weir__v1__join_request__free_unpacked(request, &b.allocator);
    return st;
}

static void place_to_wire(const struct net_place *from, Weir__V1__JoinReply *to)
{
    if (from->n_members == 0)
        return;
    to->member = (uint32_t)from->member;
    to->rank = (uint32_t)from->rank;
    to->n_members = (uint32_t)from->n_members;
    to->first_step = from->first_step;
    to->position = from->position;
    to->train_steps = (uint64_t)from->train_steps;
    to->asked_steps = (uint64_t)from->asked_steps;
    to->validates = from->validates != 0;
    to->region = (uint32_t)from->region;
    to->n_regions = (uint32_t)from->n_regions;
    to->contributed = from->contributed;
    to->rounded.len = (size_t)from->rounding.n_bytes;
    to->rounded.data = (uint8_t *)(uintptr_t)from->rounding.bits;
    to->push_dtype = (char *)(uintptr_t)dtype_name(from->push_dtype);
    to->version_dtype = (char *)(uintptr_t)dtype_name(from->version_dtype);
    if (!from->has_outer)
        return;
    to->outer_optimizer = (char *)(uintptr_t)optim_name(from->outer.kind);
    to->outer_learning_rate = from->outer.learning_rate;
    to->outer_momentum = from->outer.momentum;
}

enum status message_reply_pack(const struct net_join_reply *reply, uint8_t **data, size_t *bytes)
{
    static const Weir__V1__JoinReply__Answer answers[] = {
        [JOIN_WELCOME] = WEIR__V1__JOIN_REPLY__ANSWER__WELCOME,
        [JOIN_INIT] = WEIR__V1__JOIN_REPLY__ANSWER__INIT,
        [JOIN_REFUSED] = WEIR__V1__JOIN_REPLY__ANSWER__REFUSED,
        [JOIN_RETRY] = WEIR__V1__JOIN_REPLY__ANSWER__RETRY};
    Weir__V1__JoinReply wire = WEIR__V1__JOIN_REPLY__INIT;
    wire.answer = answers[reply->answer];
    wire.why = (char *)(uintptr_t)reply->why;
    wire.generation = reply->generation;
    wire.ps0 = reply->ps0;
    wire.step = reply->step;
    Weir__V1__Segment segment;
    segment_to_wire(&reply->segment, &segment);
    wire.segment = reply->segment.bytes ? &segment : NULL;
    wire.n_server = reply->server ? (size_t)reply->n_chunks : 0;
    wire.server = message_plan_map_to_wire(reply->server);
    wire.n_server_address = (size_t)reply->servers.n;
    wire.server_address = reply->servers.addr;
    place_to_wire(&reply->place, &wire);
    return message_encode(&wire.base, data, bytes);
}

/* Returns false if there can be no such optimizer of rounds. */
static bool outer_from_wire(const Weir__V1__JoinReply *from, struct net_place *to)
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

/* NULL, or what cannot be: a member's rank counts those below its index. */
static const char *place_problem(const Weir__V1__JoinReply *from)
{
    const uint64_t most = (uint64_t)MESSAGE_MAX_STEP;
    enum dtype dtype;
    if (from->n_members == 0)
        return NULL;
    if (from->n_members > JOB_MAX_WORKERS || from->member >= JOB_MAX_WORKERS ||
        from->rank >= from->n_members || from->rank > from->member)
        return "the JoinReply's place among the members cannot be";
    if (from->n_regions > JOB_MAX_WORKERS || (from->region > 0 && from->region >= from->n_regions))
        return "the JoinReply's region cannot be";
    if (from->first_step < 0 || from->first_step > MESSAGE_MAX_STEP || from->position > most ||
        from->train_steps > most || from->asked_steps > most)
        return "the JoinReply's step or position is out of bounds";
    if (from->contributed < 0 || from->contributed > from->first_step)
        return "the JoinReply's last contribution is none that can be";
    if (from->rounded.len > ROUNDING_MAX_BYTES)
        return "the JoinReply says of too many layers what they round";
    if (!message_job_dtype_from_wire(from->push_dtype, &dtype) ||
        !message_job_dtype_from_wire(from->version_dtype, &dtype))
        return "the JoinReply names a number format that is not known here";
    if (!outer_from_wire(from, &(struct net_place){.member = 0}))
        return "the JoinReply's optimizer of rounds is unknown, or a setting of it out of bounds";
    return NULL;
}

static void place_from_wire(const Weir__V1__JoinReply *from, struct net_place *to)
{
    if (from->n_members == 0)
        return;
    *to = (struct net_place){.member = (int)from->member,
                             .rank = (int)from->rank,
                             .n_members = (int)from->n_members,
                             .first_step = from->first_step,
                             .position = from->position,
                             .train_steps = (int64_t)from->train_steps,
                             .asked_steps = (int64_t)from->asked_steps,
                             .region = (int)from->region,
                             .n_regions = (int)from->n_regions,
                             .contributed = from->contributed,
                             .validates = from->validates != 0};
    message_job_dtype_from_wire(from->push_dtype, &to->push_dtype);
    message_job_dtype_from_wire(from->version_dtype, &to->version_dtype);
    outer_from_wire(from, to);
    to->rounding.n_bytes = (int)from->rounded.len;
    if (from->rounded.len > 0)
        memcpy(to->rounding.bits, from->rounded.data, from->rounded.len);
}

/* The parts that only a member gets. */
static enum status welcome_from_wire(const Weir__V1__JoinReply *wire, struct net_join_reply *to,
                                     char why[MESSAGE_WHY_BYTES])
{
    const char *wrong = place_problem(wire);
    if (!wrong && (wire->step < -1 || wire->step > MESSAGE_MAX_STEP))
        wrong = "the JoinReply's version is out of bounds";
    if (wrong)
        return message_invalid(why, wrong);
    struct hosts servers;
    enum status st =
        message_plan_hosts_from_wire(wire->server_address, wire->n_server_address, &servers, why);
    if (st != ST_OK)
        return st;
    st = message_plan_map_from_wire(wire->server, wire->n_server,
                                    servers.n > 0 ? servers.n : HOSTS_MAX, &to->server, why);
    if (st != ST_OK) {
        hosts_free(&servers);
        return st;
    }
    to->n_chunks = (int)wire->n_server;
    to->servers = servers;
    to->segment = segment_from_wire(wire->segment);
    place_from_wire(wire, &to->place);
    return ST_OK;
}

static enum status reply_from_wire(const Weir__V1__JoinReply *wire, struct net_join_reply *out,
                                   char why[MESSAGE_WHY_BYTES])
{
    struct net_join_reply to = {
        .generation = wire->generation, .ps0 = wire->ps0, .step = wire->step};
    snprintf(to.why, sizeof to.why, "%s", wire->why);
    enum status st = ST_OK;
    if (wire->generation > (uint64_t)MESSAGE_MAX_STEP)
        return message_invalid(why, "the JoinReply's generation is out of bounds");
    switch (wire->answer) {
    case WEIR__V1__JOIN_REPLY__ANSWER__WELCOME:
        to.answer = JOIN_WELCOME;
        st = welcome_from_wire(wire, &to, why);
        break;
    case WEIR__V1__JOIN_REPLY__ANSWER__INIT:
        to.answer = JOIN_INIT;
        st = welcome_from_wire(wire, &to, why);
        break;
    case WEIR__V1__JOIN_REPLY__ANSWER__REFUSED:
        to.answer = JOIN_REFUSED;
        break;
    case WEIR__V1__JOIN_REPLY__ANSWER__RETRY:
        to.answer = JOIN_RETRY;
        break;
    default:
        st = message_invalid(why, "the JoinReply has an unknown answer");
    }
    if (st == ST_OK)
        *out = to;
    return st;
}

enum status message_reply_unpack(const uint8_t *data, size_t bytes, struct net_join_reply *reply,
                                 char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__JoinReply *wire = weir__v1__join_reply__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the JoinReply does not decode");
        return ST_PROTOCOL;
    }
    enum status st = reply_from_wire(wire, reply, why);
    weir__v1__join_reply__free_unpacked(wire, &b.allocator);
    return st;
}

enum status message_leave_pack(const struct net_leave *leave, uint8_t **data, size_t *bytes)
{
    Weir__V1__LeaveRequest wire = WEIR__V1__LEAVE_REQUEST__INIT;
    wire.member = (uint32_t)leave->member;
    wire.incarnation = leave->incarnation;
    wire.done = leave->done != 0;
    wire.soon = leave->soon != 0;
    wire.generation = leave->generation;
    wire.error = (char *)(uintptr_t)leave->error;
    return message_encode(&wire.base, data, bytes);
}

enum status message_leave_unpack(const uint8_t *data, size_t bytes, struct net_leave *leave,
                                 char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__LeaveRequest *wire = weir__v1__leave_request__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the LeaveRequest does not decode");
        return ST_PROTOCOL;
    }
    struct net_leave l = {(int)wire->member, wire->incarnation, wire->done != 0,
                          wire->soon != 0,   wire->generation,  ""};
    message_text_in(wire->error, l.error, sizeof l.error);
    int bad = wire->member >= JOB_MAX_WORKERS;
    weir__v1__leave_request__free_unpacked(wire, &b.allocator);
    if (bad)
        return message_invalid(why, "the member's number is out of bounds");
    *leave = l;
    return ST_OK;
}
