/* net/wire/message_status.c - see message.h: a job's status and commands, for weirctl and other
 * programs. The enums of status.h have the same numbers as those of weir.proto. */
#include "net/wire/message_impl.h"
#include "net/wire/table_status.h"
#include "net/wire/tables.h"
#include <stdlib.h>

/* Writes padding, by which a client measures the speed of its connection. */
static enum status write_pad(size_t bytes, struct message_room *room, ProtobufCBinaryData *pad)
{
    pad->len = bytes;
    pad->data = bytes > 0 ? message_alloc(room, bytes, 1) : NULL;
    return bytes > 0 && !pad->data ? ST_NOMEM : ST_OK;
}

static enum status write_request(const void *plain, void *message, struct message_room *room)
{
    const struct net_status_request *request = plain;
    return write_pad(request->pad_bytes, room, &((Weir__V1__StatusRequest *)message)->pad);
}

#define OF Weir__V1__StatusRequest, struct net_status_request
static const struct message_row request_rows[] = {
    ANY(OF, model, with_model),
    NUMBER(OF, pad_bytes, pad_bytes, 0, STATUS_MAX_PAD_BYTES, "pad_bytes is out of bounds"),
};
const struct message_type message_status_request = {MESSAGE_TYPE(OF, status_request, request_rows),
                                                    .write = write_request};
#undef OF

static const char no_member[] = "a member's number, state or figures are not valid";
static const char no_server[] = "a server's number, state or figures are not valid";
static const char no_list[] = "too many members or servers";
static const char no_state[] = "the state, a step or a figure is not valid";
static const char no_best[] = "the best evaluation is not valid";

#define OF Weir__V1__StatusReply__Member, struct net_status_member
static const struct message_row member_rows[] = {
    NUMBER(OF, member, member, 0, JOB_MAX_WORKERS - 1, no_member),
    MORE1(OF, rank, rank, -1, JOB_MAX_WORKERS - 1, no_member),
    TEXT(OF, address, address),
    NUMBER(OF, state, state, 0, MEMBER_N_STATES - 1, no_member),
    NUMBER(OF, ms, ms, 0, INT64_MAX, no_member),
    NUMBER(OF, times, times, 0, INT64_MAX, no_member),
    REAL(OF, seconds, seconds, 0, DBL_MAX, no_member),
    NUMBER(OF, recent_times, recent_times, 0, INT64_MAX, no_member),
    REAL(OF, recent_seconds, recent_seconds, 0, DBL_MAX, no_member),
    NUMBER(OF, awaited, awaited, 0, CHUNKS_MAX_CHUNKS, no_member),
    NUMBER(OF, skipped, skipped, 0, INT64_MAX, no_member),
    TEXT(OF, refused, refused),
    NUMBER(OF, refused_ms, refused_ms, 0, INT64_MAX, no_member),
};
static const struct message_type member_type = {
    MESSAGE_TYPE(OF, status_reply__member, member_rows)};
#undef OF

#define OF Weir__V1__StatusReply__Server, struct net_status_server
static const struct message_row server_rows[] = {
    MORE1(OF, server, server, -1, HOSTS_MAX - 1, no_server),
    TEXT(OF, address, address),
    ANY(OF, bytes, bytes),
    NUMBER(OF, chunks, n_chunks, 0, CHUNKS_MAX_CHUNKS, no_server),
    NUMBER(OF, state, state, 0, SERVER_N_STATES - 1, no_server),
    NUMBER(OF, heard_ms, heard_ms, -1, INT64_MAX, no_server),
    NUMBER(OF, up_ms, up_ms, -1, INT64_MAX, no_server),
};
static const struct message_type server_type = {
    MESSAGE_TYPE(OF, status_reply__server, server_rows)};
#undef OF

#define OF Weir__V1__StatusReply__Checkpoints, struct net_status_checkpoints
static const struct message_row checkpoints_rows[] = {
    TEXT(OF, folder, folder), ANY(OF, last, last),        ANY(OF, ordered, ordered),
    ANY(OF, wanted, wanted),  ANY(OF, given, given),      MORE1(OF, next_ms, next_ms, 0, 0, NULL),
    ANY(OF, owner, owner),    ANY(OF, ending, is_ending),
};
static const struct message_type checkpoints_type = {
    MESSAGE_TYPE(OF, status_reply__checkpoints, checkpoints_rows)};
#undef OF

static const char no_table[] = "the figures of a table are not valid";
#define OF Weir__V1__TableStatus, struct net_status_table
static const struct message_row table_rows[] = {
    NUMBER(OF, buckets, n_buckets, 0, TABLES_MAX_BUCKETS, no_table),
    ANY(OF, rows, rows),
    ANY(OF, pending, pending),
    ANY(OF, bytes, bytes),
    ANY(OF, removed, removed),
    ANY(OF, keys, keys),
    NUMBER(OF, hottest, hottest, 0, TABLES_MAX_BUCKETS - 1, no_table),
    ANY(OF, hottest_keys, hottest_keys),
};
static const struct message_type table_type = {MESSAGE_TYPE(OF, table_status, table_rows)};
#undef OF

static const char *problem(const void *message)
{
    const Weir__V1__StatusReply *wire = message;
    return message_evaluation_is_accuracy(wire->best_accuracy) ? NULL : no_best;
}

static enum status read_job(const void *message, void *plain, char *why)
{
    const Weir__V1__StatusReply *wire = message;
    struct net_status *s = plain;
    enum status st = ST_OK;
    if (!wire->checkpoints)
        s->checkpoints = (struct net_status_checkpoints){.last = -1, .ordered = -1, .next_ms = -1};
    else if (wire->checkpoints->next_ms > INT64_MAX)
        s->checkpoints.next_ms = -1;
    if (!wire->job)
        return wire->n_tables == 0 ? ST_OK : message_invalid(why, no_table);
    TRY(message_job_read(wire->job, &s->job, &s->chunks, why));
    if (s->job.n_workers < 1)
        TRY(message_invalid(why, "the job has no workers"));
    if (s->n_tables > 0 && s->n_tables != s->chunks->n_tables)
        TRY(message_invalid(why, no_table));
    st = message_job_read_model(wire->job, &s->model, &s->hidden_units, why);
done:
    return st;
}

static enum status write_job(const void *plain, void *message, struct message_room *room)
{
    const struct net_status *s = plain;
    Weir__V1__StatusReply *wire = message;
    enum status st = write_pad(s->pad_bytes, room, &wire->pad);
    if (!s->checkpoints.folder[0])
        wire->checkpoints = NULL;
    if (s->best.step < 0)
        wire->best_loss = wire->best_accuracy = 0;
    if (st == ST_OK && s->chunks)
        st = message_job_write(&s->job, s->chunks, room, &wire->job);
    if (st == ST_OK && s->chunks)
        message_job_write_model(s->model, s->hidden_units, wire->job);
    return st;
}

static void release_job(void *plain)
{
    struct net_status *s = plain;
    chunks_destroy(s->chunks);
    free(s->model);
}

#define OF Weir__V1__StatusReply, struct net_status
static const struct message_row rows[] = {
    MORE1(OF, server, server, -1, HOSTS_MAX - 1, no_state),
    ANY(OF, generation, generation),
    NUMBER(OF, state, state, 0, STATE_N_KINDS - 1, no_state),
    NUMBER(OF, first_step, first_step, 0, INT64_MAX, no_state),
    NUMBER(OF, step, step, -1, INT64_MAX, no_state),
    NUMBER(OF, highest, highest, -1, INT64_MAX, no_state),
    ANY(OF, position, position),
    REAL(OF, steps_per_s, steps_per_s, 0, DBL_MAX, no_state),
    NUMBER(OF, up_ms, up_ms, 0, INT64_MAX, no_state),
    NUMBER(OF, recent, n_recent, 0, INT32_MAX, no_state),
    NUMBER(OF, waiting_ms, waiting_ms, 0, INT64_MAX, no_state),
    TEXT(OF, change, change),
    TEXT(OF, waiting, waiting),
    TEXT(OF, model_name, model_name),
    MORE1(OF, best, best.step, -1, MESSAGE_MAX_STEP - 1, no_best),
    REAL(OF, best_loss, best.loss, -DBL_MAX, DBL_MAX, no_best),
    ANY(OF, best_accuracy, best.accuracy),
    PART(OF, checkpoints, checkpoints, &checkpoints_type),
    LIST(OF, member, n_members, members, &member_type, 0, 2 * JOB_MAX_WORKERS, no_list),
    LIST(OF, servers, n_servers, servers, &server_type, 0, HOSTS_MAX, no_list),
    LIST(OF, tables, n_tables, tables, &table_type, 0, TABLES_MAX, no_table),
};
const struct message_type message_status = {MESSAGE_TYPE(OF, status_reply, rows),
                                            .problem = problem, .read = read_job,
                                            .write = write_job, .release = release_job};
#undef OF

static const char no_command[] = "the command is unknown, or its index is out of bounds";

#define OF Weir__V1__CommandRequest, struct net_command
static const struct message_row command_rows[] = {
    NUMBER(OF, kind, kind, COMMAND_NONE + 1, COMMAND_N_KINDS - 1, no_command),
    NUMBER(OF, index, index, 0, JOB_MAX_WORKERS - 1, no_command),
};
const struct message_type message_command = {MESSAGE_TYPE(OF, command_request, command_rows)};
#undef OF

#define OF Weir__V1__CommandReply, struct net_command_reply
static const struct message_row reply_rows[] = {
    NUMBER(OF, answer, answer, 0, COMMAND_N_ANSWERS - 1, "the CommandReply has an unknown answer"),
    TEXT(OF, text, text),
    ANY(OF, wanted, wanted),
};
const struct message_type message_command_reply = {MESSAGE_TYPE(OF, command_reply, reply_rows)};
