/* net/wire/message_status.c - see message.h: what people ask of servers, and what they are told.
 * The enums of status.h are those of weir.proto, number for number. */
#include "net/wire/message_impl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATUS_MAX_MEMBERS = 2 * JOB_MAX_WORKERS };

static char *text_out(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* ST_NOMEM. */
static enum status pad_to_wire(size_t bytes, ProtobufCBinaryData *to)
{
    if (bytes == 0)
        return ST_OK;
    to->data = calloc(1, bytes);
    to->len = to->data ? bytes : 0;
    return to->data ? ST_OK : ST_NOMEM;
}

enum status message_status_request_pack(int with_model, size_t pad_bytes, uint8_t **data,
                                        size_t *bytes)
{
    Weir__V1__StatusRequest wire = WEIR__V1__STATUS_REQUEST__INIT;
    wire.protocol = MESSAGE_PROTOCOL;
    wire.model = with_model != 0;
    wire.pad_bytes = (uint32_t)pad_bytes;
    enum status st = pad_to_wire(pad_bytes, &wire.pad);
    if (st == ST_OK)
        st = message_encode(&wire.base, data, bytes);
    free(wire.pad.data);
    return st;
}

enum status message_status_request_unpack(const uint8_t *data, size_t bytes,
                                          struct net_status_request *to,
                                          char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__StatusRequest *wire = weir__v1__status_request__unpack(&b.allocator, bytes, data);
    enum status st = ST_OK;
    if (!wire) {
        message_invalid(why, "the StatusRequest does not decode");
        return ST_PROTOCOL;
    }
    st = message_check_protocol(wire->protocol, why);
    if (st == ST_OK && wire->pad_bytes > STATUS_MAX_PAD_BYTES)
        st = message_invalid(why, "pad_bytes is out of bounds");
    if (st == ST_OK)
        *to = (struct net_status_request){wire->model != 0, wire->pad_bytes};
    weir__v1__status_request__free_unpacked(wire, &b.allocator);
    return st;
}

/* What a reply on its way out points to. */
struct lists {
    Weir__V1__StatusReply__Member *members, **member_list;
    Weir__V1__StatusReply__Server *servers, **server_list;
};

static void member_to_wire(const struct net_status_member *from, Weir__V1__StatusReply__Member *to)
{
    weir__v1__status_reply__member__init(to);
    to->member = (uint32_t)from->member;
    to->rank = (uint32_t)(from->rank + 1);
    to->address = text_out(from->address);
    to->state = (Weir__V1__StatusReply__Member__State)from->state;
    to->ms = (uint64_t)from->ms;
    to->times = (uint64_t)from->times;
    to->seconds = from->seconds;
    to->recent_times = (uint64_t)from->recent_times;
    to->recent_seconds = from->recent_seconds;
    to->awaited = (uint32_t)from->awaited;
    to->skipped = (uint64_t)from->skipped;
    to->refused = text_out(from->refused);
    to->refused_ms = (uint64_t)from->refused_ms;
}

static void server_to_wire(const struct net_status_server *from, Weir__V1__StatusReply__Server *to)
{
    weir__v1__status_reply__server__init(to);
    to->server = (uint32_t)(from->server + 1);
    to->address = text_out(from->address);
    to->bytes = from->bytes;
    to->chunks = (uint32_t)from->n_chunks;
    to->state = (Weir__V1__StatusReply__Server__State)from->state;
    to->heard_ms = from->heard_ms;
    to->up_ms = from->up_ms;
}

static enum status lists_to_wire(const struct net_status *s, struct lists *l,
                                 Weir__V1__StatusReply *wire)
{
    size_t n = (size_t)s->n_members, k = (size_t)s->n_servers;
    l->members = calloc(n + 1, sizeof *l->members);
    l->member_list = calloc(n + 1, sizeof *l->member_list);
    l->servers = calloc(k + 1, sizeof *l->servers);
    l->server_list = calloc(k + 1, sizeof *l->server_list);
    if (!l->members || !l->member_list || !l->servers || !l->server_list)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        member_to_wire(&s->members[i], &l->members[i]);
        l->member_list[i] = &l->members[i];
    }
    for (size_t i = 0; i < k; i++) {
        server_to_wire(&s->servers[i], &l->servers[i]);
        l->server_list[i] = &l->servers[i];
    }
    wire->n_member = n;
    wire->member = l->member_list;
    wire->n_servers = k;
    wire->servers = l->server_list;
    return ST_OK;
}

static void lists_free(struct lists *l)
{
    free(l->server_list);
    free(l->servers);
    free(l->member_list);
    free(l->members);
}

static void fields_to_wire(const struct net_status *s, Weir__V1__StatusReply *wire)
{
    wire->server = (uint32_t)(s->server + 1);
    wire->generation = s->generation;
    wire->state = (Weir__V1__StatusReply__State)s->state;
    wire->first_step = s->first_step;
    wire->step = s->step;
    wire->highest = s->highest;
    wire->position = s->position;
    wire->steps_per_s = s->steps_per_s;
    wire->up_ms = (uint64_t)s->up_ms;
    wire->change = text_out(s->change);
    wire->waiting = text_out(s->waiting);
    wire->model_name = text_out(s->model_name);
    wire->waiting_ms = (uint64_t)s->waiting_ms;
    wire->recent = (uint32_t)s->n_recent;
    message_evaluation_best_to_wire(&s->best, &wire->best, &wire->best_loss, &wire->best_accuracy);
}

static void checkpoints_to_wire(const struct net_status_checkpoints *from,
                                Weir__V1__StatusReply__Checkpoints *to)
{
    weir__v1__status_reply__checkpoints__init(to);
    to->folder = text_out(from->folder);
    to->last = from->last;
    to->ordered = from->ordered;
    to->wanted = from->wanted;
    to->given = from->given;
    to->next_ms = (uint64_t)(from->next_ms + 1);
    to->owner = from->owner;
    to->ending = from->is_ending;
}

enum status message_status_pack(const struct net_status *s, uint8_t **data, size_t *bytes)
{
    Weir__V1__StatusReply wire = WEIR__V1__STATUS_REPLY__INIT;
    Weir__V1__StatusReply__Checkpoints checkpoints;
    struct message_job job = {.params = NULL};
    struct lists l = {.members = NULL};
    enum status st = ST_OK;
    fields_to_wire(s, &wire);
    TRY(pad_to_wire(s->pad_bytes, &wire.pad));
    checkpoints_to_wire(&s->checkpoints, &checkpoints);
    if (s->checkpoints.folder[0])
        wire.checkpoints = &checkpoints;
    TRY(lists_to_wire(s, &l, &wire));
    if (s->chunks) {
        TRY(message_job_to_wire(&s->job, s->chunks, &job));
        message_job_model_to_wire(s->model, s->hidden_units, &job.wire);
        wire.job = &job.wire;
    }
    st = message_encode(&wire.base, data, bytes);
done:
    if (job.params)
        message_job_free(&job);
    lists_free(&l);
    free(wire.pad.data);
    return st;
}

static int is_figure(double x)
{
    return isfinite(x) && x >= 0;
}

static enum status member_from_wire(const Weir__V1__StatusReply__Member *from,
                                    struct net_status_member *to, char why[MESSAGE_WHY_BYTES])
{
    if (from->member >= JOB_MAX_WORKERS || from->rank > JOB_MAX_WORKERS || (int)from->state < 0 ||
        (int)from->state >= MEMBER_N_STATES || from->ms > INT64_MAX || from->times > INT64_MAX ||
        from->recent_times > INT64_MAX || !is_figure(from->seconds) ||
        !is_figure(from->recent_seconds) || from->awaited > CHUNKS_MAX_CHUNKS ||
        from->skipped > INT64_MAX || from->refused_ms > INT64_MAX)
        return message_invalid(why, "a member's number, state or figures cannot be");
    *to = (struct net_status_member){.member = (int)from->member,
                                     .rank = (int)from->rank - 1,
                                     .state = (enum member_state)from->state,
                                     .ms = (int64_t)from->ms,
                                     .times = (int64_t)from->times,
                                     .seconds = from->seconds,
                                     .recent_times = (int64_t)from->recent_times,
                                     .recent_seconds = from->recent_seconds,
                                     .awaited = (int)from->awaited,
                                     .skipped = (int64_t)from->skipped,
                                     .refused_ms = (int64_t)from->refused_ms};
    message_text_in(from->refused, to->refused, sizeof to->refused);
    message_text_in(from->address, to->address, sizeof to->address);
    return ST_OK;
}

static enum status server_from_wire(const Weir__V1__StatusReply__Server *from,
                                    struct net_status_server *to, char why[MESSAGE_WHY_BYTES])
{
    if (from->server > HOSTS_MAX || (int)from->state < 0 || (int)from->state >= SERVER_N_STATES ||
        from->chunks > CHUNKS_MAX_CHUNKS || from->heard_ms < -1 || from->up_ms < -1)
        return message_invalid(why, "a server's number, state or figures cannot be");
    *to = (struct net_status_server){.server = (int)from->server - 1,
                                     .state = (enum server_state)from->state,
                                     .bytes = from->bytes,
                                     .n_chunks = (int)from->chunks,
                                     .heard_ms = from->heard_ms,
                                     .up_ms = from->up_ms};
    message_text_in(from->address, to->address, sizeof to->address);
    return ST_OK;
}

static enum status lists_from_wire(const Weir__V1__StatusReply *wire, struct net_status *s,
                                   char why[MESSAGE_WHY_BYTES])
{
    enum status st = ST_OK;
    if (wire->n_member > STATUS_MAX_MEMBERS || wire->n_servers > HOSTS_MAX)
        return message_invalid(why, "too many members or servers");
    s->members = calloc(wire->n_member + 1, sizeof *s->members);
    s->servers = calloc(wire->n_servers + 1, sizeof *s->servers);
    if (!s->members || !s->servers)
        return ST_NOMEM;
    for (; st == ST_OK && (size_t)s->n_members < wire->n_member; s->n_members++)
        st = member_from_wire(wire->member[s->n_members], &s->members[s->n_members], why);
    for (; st == ST_OK && (size_t)s->n_servers < wire->n_servers; s->n_servers++)
        st = server_from_wire(wire->servers[s->n_servers], &s->servers[s->n_servers], why);
    return st;
}

static enum status fields_from_wire(const Weir__V1__StatusReply *wire, struct net_status *s,
                                    char why[MESSAGE_WHY_BYTES])
{
    if (wire->server > HOSTS_MAX || (int)wire->state < 0 || (int)wire->state >= STATE_N_KINDS ||
        wire->first_step < 0 || wire->step < -1 || wire->highest < -1 ||
        !is_figure(wire->steps_per_s) || wire->up_ms > INT64_MAX || wire->recent > INT32_MAX ||
        wire->waiting_ms > INT64_MAX)
        return message_invalid(why, "the state, a step or a figure cannot be");
    if (!message_evaluation_best_from_wire(wire->best, wire->best_loss, wire->best_accuracy,
                                           &s->best))
        return message_invalid(why, "the best evaluation cannot be");
    s->server = (int)wire->server - 1;
    s->generation = wire->generation;
    s->state = (enum status_state)wire->state;
    s->first_step = wire->first_step;
    s->step = wire->step;
    s->highest = wire->highest;
    s->position = wire->position;
    s->steps_per_s = wire->steps_per_s;
    s->up_ms = (int64_t)wire->up_ms;
    s->n_recent = (int)wire->recent;
    message_text_in(wire->change, s->change, sizeof s->change);
    message_text_in(wire->waiting, s->waiting, sizeof s->waiting);
    message_text_in(wire->model_name, s->model_name, sizeof s->model_name);
    s->waiting_ms = (int64_t)wire->waiting_ms;
    return ST_OK;
}

static void checkpoints_from_wire(const Weir__V1__StatusReply__Checkpoints *from,
                                  struct net_status_checkpoints *to)
{
    *to = (struct net_status_checkpoints){.last = -1, .ordered = -1, .next_ms = -1};
    if (!from)
        return;
    to->next_ms = from->next_ms <= INT64_MAX ? (int64_t)from->next_ms - 1 : -1;
    to->last = from->last;
    to->ordered = from->ordered;
    to->wanted = from->wanted;
    to->given = from->given;
    to->owner = from->owner;
    to->is_ending = from->ending;
    message_text_in(from->folder, to->folder, sizeof to->folder);
}

enum status message_status_unpack(const uint8_t *data, size_t bytes, struct net_status *status,
                                  char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    struct net_status s = {.chunks = NULL};
    enum status st = ST_OK;
    message_budget_init(&b);
    Weir__V1__StatusReply *wire = weir__v1__status_reply__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the StatusReply does not decode");
        return ST_PROTOCOL;
    }
    snprintf(why, MESSAGE_WHY_BYTES, "out of memory");
    TRY(fields_from_wire(wire, &s, why));
    checkpoints_from_wire(wire->checkpoints, &s.checkpoints);
    TRY(lists_from_wire(wire, &s, why));
    if (wire->job) {
        TRY(message_job_from_wire(wire->job, &s.job, &s.chunks, why));
        if (s.job.n_workers < 1)
            TRY(message_invalid(why, "the job has no workers"));
        TRY(message_job_model_from_wire(wire->job, &s.model, &s.hidden_units, why));
    }
done:
    weir__v1__status_reply__free_unpacked(wire, &b.allocator);
    if (st == ST_OK)
        *status = s;
    else
        net_status_free(&s);
    return st;
}

enum status message_command_pack(const struct net_command *command, uint8_t **data, size_t *bytes)
{
    Weir__V1__CommandRequest wire = WEIR__V1__COMMAND_REQUEST__INIT;
    wire.protocol = MESSAGE_PROTOCOL;
    wire.kind = (Weir__V1__CommandRequest__Kind)command->kind;
    wire.index = (uint32_t)command->index;
    return message_encode(&wire.base, data, bytes);
}

enum status message_command_unpack(const uint8_t *data, size_t bytes, struct net_command *command,
                                   char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    enum status st = ST_OK;
    message_budget_init(&b);
    Weir__V1__CommandRequest *wire = weir__v1__command_request__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the CommandRequest does not decode");
        return ST_PROTOCOL;
    }
    st = message_check_protocol(wire->protocol, why);
    if (st == ST_OK && ((int)wire->kind <= COMMAND_NONE || (int)wire->kind >= COMMAND_N_KINDS ||
                        wire->index >= JOB_MAX_WORKERS))
        st = message_invalid(why, "a command that is not known here, or an index that cannot be");
    else if (st == ST_OK)
        *command = (struct net_command){(enum command_kind)wire->kind, (int)wire->index};
    weir__v1__command_request__free_unpacked(wire, &b.allocator);
    return st;
}

enum status message_command_reply_pack(const struct net_command_reply *reply, uint8_t **data,
                                       size_t *bytes)
{
    Weir__V1__CommandReply wire = WEIR__V1__COMMAND_REPLY__INIT;
    wire.answer = (Weir__V1__CommandReply__Answer)reply->answer;
    wire.text = text_out(reply->text);
    wire.wanted = reply->wanted;
    return message_encode(&wire.base, data, bytes);
}

enum status message_command_reply_unpack(const uint8_t *data, size_t bytes,
                                         struct net_command_reply *reply,
                                         char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    enum status st = ST_OK;
    message_budget_init(&b);
    Weir__V1__CommandReply *wire = weir__v1__command_reply__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the CommandReply does not decode");
        return ST_PROTOCOL;
    }
    if ((int)wire->answer < 0 || (int)wire->answer >= COMMAND_N_ANSWERS) {
        st = message_invalid(why, "the CommandReply has an unknown answer");
    } else {
        *reply = (struct net_command_reply){.answer = (enum command_answer)wire->answer,
                                            .wanted = wire->wanted};
        message_text_in(wire->text, reply->text, sizeof reply->text);
    }
    weir__v1__command_reply__free_unpacked(wire, &b.allocator);
    return st;
}
