/* net/message.c - see message.h. */
#include "net/message.h"
#include "base/hosts.h"
#include "net/health.pb-c.h"
#include "net/message_impl.h"
#include "net/weir.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *budget_alloc(void *ctx, size_t bytes)
{
    struct budget *b = ctx;
    size_t cost = bytes + 32; /* what malloc itself takes, at most */
    if (bytes > b->left || cost > b->left)
        return NULL;
    b->left -= cost;
    return malloc(bytes);
}

static void budget_free(void *ctx, void *data)
{
    free(data);
}

void message_budget_init(struct budget *b)
{
    b->allocator = (ProtobufCAllocator){budget_alloc, budget_free, b};
    b->left = MESSAGE_MAX_MEMORY;
}

enum status message_pack(const ProtobufCMessage *message, uint8_t **data, size_t *bytes)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *out = malloc(n ? n : 1);
    if (!out)
        return ST_NOMEM;
    *bytes = protobuf_c_message_pack(message, out);
    *data = out;
    return ST_OK;
}

static void optim_to_wire(const struct optim_config *from, Weir__V1__Optimizer *to)
{
    weir__v1__optimizer__init(to);
    to->name = (char *)(uintptr_t)optim_name(from->kind);
    to->learning_rate = from->learning_rate;
    to->momentum = from->momentum;
    to->decay = from->decay;
    to->beta1 = from->beta1;
    to->beta2 = from->beta2;
    to->epsilon = from->epsilon;
    to->weight_decay = from->weight_decay;
    to->schedule = (char *)(uintptr_t)optim_schedule_name(from->schedule);
}

static void params_to_wire(const struct chunks *chunks, Weir__V1__Parameter *params,
                           Weir__V1__Parameter **list, uint64_t *dims)
{
    for (int i = 0; i < chunks->n_params; i++, dims += SHAPE_MAX_DIMS) {
        const struct net_param *from = &chunks->params[i];
        weir__v1__parameter__init(&params[i]);
        params[i].name = (char *)(uintptr_t)from->name;
        params[i].n_dims = (size_t)from->shape.n_dims;
        params[i].dims = dims;
        for (int d = 0; d < from->shape.n_dims; d++)
            dims[d] = (uint64_t)from->shape.dim[d];
        params[i].rule = from->rule == PARAM_AVERAGE ? WEIR__V1__PARAMETER__RULE__AVERAGE
                                                     : WEIR__V1__PARAMETER__RULE__TRAINED;
        params[i].keep = from->keep;
        list[i] = &params[i];
    }
}

static void job_to_wire(const struct net_job *from, Weir__V1__Job *to)
{
    to->n_workers = (uint32_t)from->n_workers;
    to->sync_mode = (char *)(uintptr_t)job_sync_mode_name(from->sync_mode);
    to->train_steps = (uint64_t)from->train_steps;
    to->seed = from->seed;
    to->aggregate = (uint32_t)from->aggregate;
    to->staleness = (uint64_t)from->staleness;
    to->delay_compensation = from->delay_compensation;
    to->push_dtype = (char *)(uintptr_t)dtype_name(from->push_dtype);
    to->version_dtype = (char *)(uintptr_t)dtype_name(from->version_dtype);
}

static void segment_to_wire(const struct net_shared_name *from, Weir__V1__Segment *to)
{
    weir__v1__segment__init(to);
    to->pid = from->pid;
    to->fd = from->fd;
    to->bytes = from->bytes;
    to->nonce.data = (uint8_t *)(uintptr_t)from->nonce;
    to->nonce.len = sizeof from->nonce;
}

/* One that is malformed is none: who sent it is served without. */
static struct net_shared_name segment_from_wire(const Weir__V1__Segment *from)
{
    struct net_shared_name to = {.bytes = 0};
    if (!from || from->nonce.len != sizeof to.nonce)
        return to;
    to.pid = from->pid;
    to.fd = from->fd;
    to.bytes = from->bytes;
    memcpy(to.nonce, from->nonce.data, sizeof to.nonce);
    return to;
}

enum status message_pack_join(const struct net_join *join, uint8_t **data, size_t *bytes)
{
    enum status st = ST_NOMEM;
    size_t n = (size_t)join->chunks->n_params;
    Weir__V1__Parameter *params = calloc(n, sizeof *params);
    Weir__V1__Parameter **list = calloc(n, sizeof *list);
    uint64_t *dims = calloc(n * SHAPE_MAX_DIMS, sizeof *dims);
    if (!params || !list || !dims)
        goto done;
    params_to_wire(join->chunks, params, list, dims);
    Weir__V1__Optimizer optimizer;
    optim_to_wire(&join->job.optim, &optimizer);
    Weir__V1__Job job = WEIR__V1__JOB__INIT;
    job_to_wire(&join->job, &job);
    job.optimizer = &optimizer;
    job.chunk_bytes = (uint64_t)join->chunks->chunk_bytes;
    job.n_parameters = n;
    job.parameters = list;
    Weir__V1__JoinRequest request = WEIR__V1__JOIN_REQUEST__INIT;
    request.protocol = MESSAGE_PROTOCOL;
    request.member = (uint32_t)join->member;
    request.incarnation = join->incarnation;
    request.generation = join->generation;
    request.job = &job;
    Weir__V1__Segment segment;
    segment_to_wire(&join->segment, &segment);
    request.segment = join->segment.bytes ? &segment : NULL;
    st = message_pack(&request.base, data, bytes);
done:
    free(dims);
    free(list);
    free(params);
    return st;
}

static enum status invalid(char why[MESSAGE_WHY_BYTES], const char *text)
{
    snprintf(why, MESSAGE_WHY_BYTES, "%s", text);
    return ST_INVALID;
}

static enum status optim_from_wire(const Weir__V1__Optimizer *from, struct optim_config *to,
                                   char why[MESSAGE_WHY_BYTES])
{
    int kind = 0;
    struct optim_config defaults;
    if (!from)
        return invalid(why, "the job names no optimizer");
    while (kind < OPTIM_N_KINDS && strcmp(from->name, optim_name((enum optim_kind)kind)))
        kind++;
    if (kind == OPTIM_N_KINDS) {
        snprintf(why, MESSAGE_WHY_BYTES, "unknown optimizer '%.40s', this server knows %s",
                 from->name, OPTIM_NAMES);
        return ST_INVALID;
    }
    to->kind = (enum optim_kind)kind;
    optim_defaults(to->kind, &defaults);
    to->learning_rate = from->learning_rate;
    to->momentum = from->momentum;
    to->decay = from->decay;
    to->beta1 = from->beta1;
    to->beta2 = from->beta2;
    to->epsilon = from->epsilon;
    if (kind <= OPTIM_NESTEROV && from->epsilon == 0) /* they have none; any value is as good */
        to->epsilon = defaults.epsilon;
    to->weight_decay = from->weight_decay;
    int schedule = 0;
    while (from->schedule[0] && schedule < SCHEDULE_N_KINDS &&
           strcmp(from->schedule, optim_schedule_name((enum optim_schedule)schedule)))
        schedule++;
    if (schedule == SCHEDULE_N_KINDS) {
        snprintf(why, MESSAGE_WHY_BYTES, "unknown schedule '%.40s', this server knows %s",
                 from->schedule, SCHEDULE_NAMES);
        return ST_INVALID;
    }
    to->schedule = (enum optim_schedule)schedule;
    if (optim_check(to) != ST_OK) {
        snprintf(why, MESSAGE_WHY_BYTES, "a setting of optimizer %s is out of bounds", from->name);
        return ST_INVALID;
    }
    return ST_OK;
}

static enum status param_from_wire(const Weir__V1__Parameter *from, size_t index,
                                   struct net_param *to, char why[MESSAGE_WHY_BYTES])
{
    const char *wrong = NULL;
    if (from->n_dims > SHAPE_MAX_DIMS)
        wrong = "too many dimensions";
    else if (from->rule != WEIR__V1__PARAMETER__RULE__TRAINED &&
             from->rule != WEIR__V1__PARAMETER__RULE__AVERAGE)
        wrong = "an unknown rule";
    else if (!(from->keep >= 0 && from->keep <= 1))
        wrong = "a `keep` outside 0..1";
    for (size_t d = 0; !wrong && d < from->n_dims; d++) {
        if (from->dims[d] > (uint64_t)1 << 40)
            wrong = "a dimension above 2^40";
        else
            to->shape.dim[d] = (int64_t)from->dims[d];
    }
    if (wrong) {
        snprintf(why, MESSAGE_WHY_BYTES, "parameter %zu '%.255s' has %s", index, from->name, wrong);
        return ST_INVALID;
    }
    to->name = from->name;
    to->shape.n_dims = (int)from->n_dims;
    to->rule = from->rule == WEIR__V1__PARAMETER__RULE__AVERAGE ? PARAM_AVERAGE : PARAM_TRAINED;
    to->keep = from->keep;
    return ST_OK;
}

static enum status chunks_from_wire(const Weir__V1__Job *job, struct chunks **out,
                                    char why[MESSAGE_WHY_BYTES])
{
    if (job->n_parameters < 1 || job->n_parameters > CHUNKS_MAX_PARAMS)
        return invalid(why, "the number of parameters is out of bounds");
    if (job->chunk_bytes > CHUNKS_MAX_BYTES)
        return invalid(why, "chunk_bytes is out of bounds");
    struct net_param *params = calloc(job->n_parameters, sizeof *params);
    if (!params)
        return ST_NOMEM;
    enum status st = ST_OK;
    for (size_t i = 0; i < job->n_parameters; i++)
        TRY(param_from_wire(job->parameters[i], i, &params[i], why));
    st = chunks_create(params, (int)job->n_parameters, (int64_t)job->chunk_bytes, out);
    if (st != ST_OK && st != ST_NOMEM)
        st = invalid(why, "the table of parameters is malformed (names, shapes or chunk_bytes)");
done:
    free(params);
    return st;
}

static int dtype_from_wire(const char *name, enum dtype *out)
{
    *out = DTYPE_F32;
    for (int i = 0; name[0] && i < DTYPE_N_KINDS; i++) {
        *out = (enum dtype)i;
        if (!strcmp(name, dtype_name(*out)))
            return 1;
    }
    return !name[0];
}

/* All but the optimizer and the table of chunks. */
static enum status job_from_wire(const Weir__V1__Job *from, struct net_job *to,
                                 char why[MESSAGE_WHY_BYTES])
{
    if (from->n_workers < 1 || from->n_workers > JOB_MAX_WORKERS)
        return invalid(why, "n_workers is out of bounds");
    if (from->train_steps > (uint64_t)1 << 62)
        return invalid(why, "train_steps is out of bounds");
    int mode = 0;
    while (mode < JOB_N_MODES &&
           strcmp(from->sync_mode, job_sync_mode_name((enum job_sync_mode)mode)))
        mode++;
    if (mode == JOB_N_MODES)
        return invalid(why, "sync_mode is none of sync, async, ssp");
    *to = (struct net_job){.n_workers = (int)from->n_workers,
                           .sync_mode = (enum job_sync_mode)mode,
                           .train_steps = (int64_t)from->train_steps,
                           .seed = from->seed,
                           .delay_compensation = from->delay_compensation};
    if (from->aggregate > from->n_workers)
        return invalid(why, "aggregate is above n_workers");
    if (from->staleness > (uint64_t)1 << 62)
        return invalid(why, "staleness is out of bounds");
    to->aggregate = from->aggregate ? (int)from->aggregate : to->n_workers;
    to->staleness = (int64_t)from->staleness;
    if (!dtype_from_wire(from->push_dtype, &to->push_dtype) ||
        !dtype_from_wire(from->version_dtype, &to->version_dtype))
        return invalid(why, "push_dtype or version_dtype is none of " DTYPE_NAMES);
    const char *wrong = job_check_mode(to);
    return wrong ? invalid(why, wrong) : ST_OK;
}

static enum status join_from_wire(const Weir__V1__JoinRequest *from, struct net_join *to,
                                  struct chunks **chunks, char why[MESSAGE_WHY_BYTES])
{
    const Weir__V1__Job *job = from->job;
    if (from->protocol != MESSAGE_PROTOCOL) {
        snprintf(why, MESSAGE_WHY_BYTES, "protocol %u, this server speaks %d", from->protocol,
                 MESSAGE_PROTOCOL);
        return ST_INVALID;
    }
    if (!job || from->incarnation == 0)
        return invalid(why, "the request has no job or no incarnation");
    struct net_job plain;
    enum status st = job_from_wire(job, &plain, why);
    if (st != ST_OK)
        return st;
    if (from->member >= job->n_workers)
        return invalid(why, "the member's number is not below n_workers");
    st = optim_from_wire(job->optimizer, &plain.optim, why);
    plain.optim.total_steps = job->train_steps;
    if (st == ST_OK)
        st = chunks_from_wire(job, chunks, why);
    if (st != ST_OK)
        return st;
    *to = (struct net_join){.member = (int)from->member,
                            .incarnation = from->incarnation,
                            .job = plain,
                            .chunks = *chunks,
                            .segment = segment_from_wire(from->segment),
                            .generation = from->generation};
    return ST_OK;
}

enum status message_unpack_join(const uint8_t *data, size_t bytes, struct net_join *join,
                                struct chunks **chunks, char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__JoinRequest *request = weir__v1__join_request__unpack(&b.allocator, bytes, data);
    if (!request) {
        invalid(why, "the JoinRequest does not decode");
        return ST_PROTOCOL;
    }
    enum status st = join_from_wire(request, join, chunks, why);
    weir__v1__join_request__free_unpacked(request, &b.allocator);
    return st;
}

enum status message_pack_reply(const struct net_join_reply *reply, uint8_t **data, size_t *bytes)
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
    wire.step = reply->step;
    Weir__V1__Segment segment;
    segment_to_wire(&reply->segment, &segment);
    wire.segment = reply->segment.bytes ? &segment : NULL;
    uint32_t *server = NULL;
    if (reply->server && reply->n_chunks > 0) {
        wire.n_server = (size_t)reply->n_chunks;
        server = malloc(wire.n_server * sizeof *server);
        if (!server)
            return ST_NOMEM;
        for (int i = 0; i < reply->n_chunks; i++)
            server[i] = (uint32_t)reply->server[i];
        wire.server = server;
    }
    enum status st = message_pack(&wire.base, data, bytes);
    free(server);
    return st;
}

static enum status map_from_wire(const Weir__V1__JoinReply *wire, int **out,
                                 char why[MESSAGE_WHY_BYTES])
{
    if (wire->n_server == 0)
        return ST_OK;
    if (wire->n_server > CHUNKS_MAX_CHUNKS)
        return invalid(why, "the shard map is too long");
    int *map = malloc(wire->n_server * sizeof *map);
    if (!map)
        return ST_NOMEM;
    for (size_t i = 0; i < wire->n_server; i++)
        map[i] = wire->server[i] < HOSTS_MAX ? (int)wire->server[i] : -1;
    *out = map;
    return ST_OK;
}

enum status message_unpack_reply(const uint8_t *data, size_t bytes, struct net_join_reply *reply,
                                 char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__JoinReply *wire = weir__v1__join_reply__unpack(&b.allocator, bytes, data);
    if (!wire) {
        invalid(why, "the JoinReply does not decode");
        return ST_PROTOCOL;
    }
    enum status st = ST_OK;
    struct net_join_reply r = {.generation = wire->generation,
                               .step = wire->step,
                               .segment = segment_from_wire(wire->segment)};
    snprintf(r.why, sizeof r.why, "%s", wire->why);
    switch (wire->answer) {
    case WEIR__V1__JOIN_REPLY__ANSWER__WELCOME:
        r.answer = JOIN_WELCOME;
        break;
    case WEIR__V1__JOIN_REPLY__ANSWER__INIT:
        r.answer = JOIN_INIT;
        break;
    case WEIR__V1__JOIN_REPLY__ANSWER__REFUSED:
        r.answer = JOIN_REFUSED;
        break;
    case WEIR__V1__JOIN_REPLY__ANSWER__RETRY:
        r.answer = JOIN_RETRY;
        break;
    default:
        st = invalid(why, "the JoinReply has an unknown answer");
    }
    if (st == ST_OK)
        st = map_from_wire(wire, &r.server, why);
    r.n_chunks = (int)wire->n_server;
    weir__v1__join_reply__free_unpacked(wire, &b.allocator);
    if (st == ST_OK)
        *reply = r;
    return st;
}

enum status message_pack_leave(const struct net_leave *leave, uint8_t **data, size_t *bytes)
{
    Weir__V1__LeaveRequest wire = WEIR__V1__LEAVE_REQUEST__INIT;
    wire.member = (uint32_t)leave->member;
    wire.incarnation = leave->incarnation;
    wire.done = leave->done != 0;
    return message_pack(&wire.base, data, bytes);
}

enum status message_unpack_leave(const uint8_t *data, size_t bytes, struct net_leave *leave,
                                 char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__LeaveRequest *wire = weir__v1__leave_request__unpack(&b.allocator, bytes, data);
    if (!wire) {
        invalid(why, "the LeaveRequest does not decode");
        return ST_PROTOCOL;
    }
    struct net_leave l = {(int)wire->member, wire->incarnation, wire->done};
    int bad = wire->member >= JOB_MAX_WORKERS;
    weir__v1__leave_request__free_unpacked(wire, &b.allocator);
    if (bad)
        return invalid(why, "the member's number is out of bounds");
    *leave = l;
    return ST_OK;
}

enum status message_unpack_health(const uint8_t *data, size_t bytes, char *service, size_t room)
{
    struct budget b;
    message_budget_init(&b);
    Grpc__Health__V1__HealthCheckRequest *wire =
        grpc__health__v1__health_check_request__unpack(&b.allocator, bytes, data);
    if (!wire)
        return ST_PROTOCOL;
    snprintf(service, room, "%s", wire->service);
    grpc__health__v1__health_check_request__free_unpacked(wire, &b.allocator);
    return ST_OK;
}

enum status message_pack_health(enum health_status status, uint8_t **data, size_t *bytes)
{
    Grpc__Health__V1__HealthCheckResponse wire = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    wire.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
    return message_pack(&wire.base, data, bytes);
}
