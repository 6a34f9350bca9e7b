/* tests/fuzz_control.c - libFuzzer target: reads any bytes as each of the control messages (join,
 * its reply, leave, coordinate, its reply with plans, status, command, evaluate, report, fetch,
 * squares, gate, their replies); the fields of a decoded message must be within bounds, and the
 * message must encode again. Corpus: tests/corpus/control. */
#include "base/utf8.h"
#include "net/wire/message.h"
#include "net/wire/plan.h"
#include "net/wire/report.h"
#include "net/wire/tables.h"
#include "tests/fuzz.h"
#include <stdlib.h>
#include <string.h>

/* The message, encoded again. */
struct wire {
    uint8_t *data;
    size_t bytes;
    char why[MESSAGE_WHY_BYTES];
};

/* Checks `st`, the result of decoding the message again, and frees the message. */
static void wire_end(struct wire *w, enum status st)
{
    require(st == ST_OK);
    free(w->data);
}

static void read_join(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_join join = {.model = NULL}, again = {.model = NULL};
    struct chunks *chunks = NULL, *other = NULL;
    if (message_join_unpack(data, size, &join, &chunks, w.why) != ST_OK) {
        message_join_free(&join);
        chunks_destroy(chunks);
        return;
    }
    require(join.member >= -1 && join.member < JOB_MAX_WORKERS && join.incarnation);
    require(join.member >= 0 || join.job.n_workers == 0);
    require(chunks->n_params > 0 && strlen(join.address) < JOB_ADDRESS_BYTES);
    require(!join.model || strlen(join.model) <= JOB_MAX_MODEL_BYTES);
    require(message_join_pack(&join, &w.data, &w.bytes) == ST_OK);
    wire_end(&w, message_join_unpack(w.data, w.bytes, &again, &other, w.why));
    require(again.member == join.member && again.job.batch == join.job.batch);
    require(!strcmp(again.address, join.address));
    require(chunks->n_chunks - chunks->n_dense <= TABLES_MAX_ALL_BUCKETS);
    require(chunks_compare(chunks, other, w.why, sizeof w.why) == ST_OK);
    message_join_free(&again);
    message_join_free(&join);
    chunks_destroy(other);
    chunks_destroy(chunks);
}

static void read_join_reply(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_join_reply reply, again;
    if (message_reply_unpack(data, size, &reply, w.why) != ST_OK)
        return;
    require(memchr(reply.why, 0, sizeof reply.why) != NULL);
    require(reply.place.n_members == 0 || (reply.place.rank >= 0 && reply.place.member >= 0 &&
                                           reply.place.rank < reply.place.n_members));
    for (int i = 0; i < reply.n_chunks; i++)
        require(reply.server[i] >= 0 &&
                reply.server[i] < (reply.servers.n ? reply.servers.n : HOSTS_MAX));
    require(message_reply_pack(&reply, &w.data, &w.bytes) == ST_OK);
    wire_end(&w, message_reply_unpack(w.data, w.bytes, &again, w.why));
    require(again.n_chunks == reply.n_chunks && again.servers.n == reply.servers.n);
    require(again.place.position == reply.place.position);
    free(again.server);
    hosts_free(&again.servers);
    free(reply.server);
    hosts_free(&reply.servers);
}

static void read_leave(const uint8_t *data, size_t size)
{
    char why[MESSAGE_WHY_BYTES];
    struct net_leave leave;
    if (message_leave_unpack(data, size, &leave, why) != ST_OK)
        return;
    require(leave.member >= 0 && leave.member < JOB_MAX_WORKERS);
    const char *end = memchr(leave.error, 0, sizeof leave.error);
    require(end != NULL);
    for (const char *c = leave.error; c < end; c += utf8_printable(c, (size_t)(end - c)))
        require(utf8_printable(c, (size_t)(end - c)) > 0);
}

static void read_control(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_control control, again;
    if (message_control_unpack(data, size, &control, w.why) != ST_OK)
        return;
    require(control.joining || (control.server >= 0 && control.server < control.n_servers));
    require(control.phase >= 0 && control.phase < PART_N_PHASES);
    require(control.lowest >= -1 && control.lowest <= control.highest);
    for (int i = 0; i < control.n_missing; i++)
        require(control.missing[i].member >= 0 && control.missing[i].member < JOB_MAX_WORKERS);
    require(control.n_parts <= CONTROL_MAX_PARTS);
    for (int i = 0; i < control.n_parts; i++)
        require(control.parts[i].server >= 0 &&
                control.parts[i].server < control.parts[i].n_servers);
    require(message_control_pack(&control, &w.data, &w.bytes) == ST_OK);
    wire_end(&w, message_control_unpack(w.data, w.bytes, &again, w.why));
    require(again.order == control.order && again.bytes == control.bytes);
    require(again.n_missing == control.n_missing && again.highest == control.highest);
    require(again.n_parts == control.n_parts && again.knows_parts == control.knows_parts);
    require(strcmp(again.folder, control.folder) == 0);
    message_control_free(&again);
    message_control_free(&control);
}

static void check_plan(const struct net_plan *p)
{
    require(p->generation > 0 && p->step >= 0 && p->n_members > 0 && p->servers.n > 0);
    for (int i = 0; i < p->n_members; i++)
        require(net_plan_rank(p, p->member[i]) == i && p->member[i] < JOB_MAX_WORKERS);
    for (int i = 0; i < p->servers.n; i++)
        require(net_plan_server(p, p->servers.addr[i]) == i);
    for (int i = 0; i < p->chunks->n_chunks; i++) {
        require(p->shard[i] >= 0 && p->shard[i] < p->servers.n);
        require(p->source != PLAN_MEMORY || (p->held_by[i] >= 0 && p->held_by[i] < p->holders.n));
    }
}

static void read_control_reply(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_control_reply reply, again;
    struct net_plan *copy;
    if (message_control_reply_unpack(data, size, &reply, w.why) != ST_OK)
        return;
    require(strlen(reply.restore) < sizeof reply.restore && !strchr(reply.restore, '/'));
    if (reply.plan) {
        check_plan(reply.plan);
        require(net_plan_copy(reply.plan, &copy) == ST_OK);
        check_plan(copy);
        net_plan_free(copy);
    }
    require(message_control_reply_pack(&reply, &w.data, &w.bytes) == ST_OK);
    wire_end(&w, message_control_reply_unpack(w.data, w.bytes, &again, w.why));
    require(!again.plan == !reply.plan && again.stop_step == reply.stop_step);
    message_control_reply_free(&again);
    message_control_reply_free(&reply);
}

static void read_status(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_status status, again;
    struct net_status_request request;
    if (message_status_unpack(data, size, &status, w.why) == ST_OK) {
        require(status.state >= 0 && status.state < STATE_N_KINDS && status.steps_per_s >= 0);
        for (int i = 0; i < status.n_members; i++)
            require(status.members[i].rank >= -1 && status.members[i].state < MEMBER_N_STATES);
        require(message_status_pack(&status, &w.data, &w.bytes) == ST_OK);
        wire_end(&w, message_status_unpack(w.data, w.bytes, &again, w.why));
        require(again.step == status.step && again.n_members == status.n_members);
        require(!again.chunks == !status.chunks && !again.model == !status.model);
        net_status_free(&again);
        net_status_free(&status);
    }
    message_status_request_unpack(data, size, &request, w.why);
}

static void read_command(const uint8_t *data, size_t size)
{
    char why[MESSAGE_WHY_BYTES];
    struct net_command command;
    struct net_command_reply reply;
    if (message_command_unpack(data, size, &command, why) == ST_OK)
        require(command.kind > COMMAND_NONE && command.kind < COMMAND_N_KINDS &&
                command.index >= 0);
    if (message_command_reply_unpack(data, size, &reply, why) == ST_OK)
        require(reply.answer >= 0 && reply.answer < COMMAND_N_ANSWERS &&
                memchr(reply.text, 0, sizeof reply.text) != NULL);
}

static void read_evaluation(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_evaluation v, again;
    struct net_evaluation_reply reply;
    if (message_evaluation_unpack(data, size, &v, w.why) == ST_OK) {
        require(v.part >= 0 && v.part < v.n_parts && v.n_parts <= JOB_MAX_WORKERS);
        require(v.n >= 0 && v.right >= 0 && v.right <= v.n && v.n <= v.data.n);
        require(message_evaluation_pack(&v, &w.data, &w.bytes) == ST_OK);
        wire_end(&w, message_evaluation_unpack(w.data, w.bytes, &again, w.why));
        require(again.step == v.step && again.data.samples == v.data.samples);
    }
    if (message_evaluation_reply_unpack(data, size, &reply, w.why) == ST_OK)
        require(reply.best.step >= -1 && reply.right <= reply.n);
}

static void read_fetch(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_fetch_request request, again;
    if (message_fetch_unpack(data, size, &request, w.why) != ST_OK)
        return;
    require(request.n > 0 && request.generation > 0 && request.step >= 0);
    for (int i = 0; i < request.n; i++)
        require(request.chunk[i] >= 0 && request.chunk[i] < CHUNKS_MAX_CHUNKS);
    require(message_fetch_pack(&request, &w.data, &w.bytes) == ST_OK);
    wire_end(&w, message_fetch_unpack(w.data, w.bytes, &again, w.why));
    require(again.n == request.n && again.step == request.step);
    require(again.has_after == request.has_after && again.after == request.after);
    free(again.chunk);
    free(request.chunk);
}

static void read_squares(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_squares squares, again;
    struct net_squares_reply reply;
    if (message_squares_reply_unpack(data, size, &reply, w.why) == ST_OK)
        require(reply.answer < SQUARES_N_ANSWERS && memchr(reply.why, 0, sizeof reply.why) != NULL);
    if (message_squares_unpack(data, size, &squares, w.why) != ST_OK)
        return;
    require(squares.n > 0 && squares.generation > 0 && squares.step >= 0);
    require(message_squares_pack(&squares, &w.data, &w.bytes) == ST_OK);
    wire_end(&w, message_squares_unpack(w.data, w.bytes, &again, w.why));
    require(again.n == squares.n && again.step == squares.step && again.ps0 == squares.ps0);
    require(!memcmp(again.square, squares.square, (size_t)again.n * sizeof *again.square));
    free(again.square);
    free(squares.square);
}

static void read_report(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_report report, again;
    struct net_report_reply reply;
    if (message_report_reply_unpack(data, size, &reply, w.why) == ST_OK)
        require(reply.next_ms >= 0 && reply.next_ms <= REPORT_MAX_NEXT_MS);
    if (message_report_unpack(data, size, &report, w.why) != ST_OK)
        return;
    require(report.member >= 0 && report.member < JOB_MAX_WORKERS && report.life);
    require(report.steps >= 0 && report.images >= 0 && report.ms >= 0 && report.memory_bytes >= 0);
    require(message_report_pack(&report, &w.data, &w.bytes) == ST_OK);
    wire_end(&w, message_report_unpack(w.data, w.bytes, &again, w.why));
    require(again.life == report.life && again.loss_sum == report.loss_sum);
}

static void read_gate(const uint8_t *data, size_t size)
{
    struct wire w;
    struct net_gate gate, again;
    if (message_gate_unpack(data, size, &gate, w.why) != ST_OK)
        return;
    require(gate.n > 0 && gate.n <= GATE_MAX_ITEMS && gate.generation > 0);
    require(message_gate_pack(&gate, &w.data, &w.bytes) == ST_OK);
    wire_end(&w, message_gate_unpack(w.data, w.bytes, &again, w.why));
    require(again.n == gate.n && again.server == gate.server && again.ps0 == gate.ps0);
    message_gate_free(&again);
    message_gate_free(&gate);
}

/* Reads all values of a fetched chunk. */
static enum status take(void *ctx, const struct net_fetched *c)
{
    float sum = 0;
    for (size_t i = 0; i < c->n_value; i++)
        sum += c->value[i];
    for (size_t i = 0; i < c->n_slots; i++)
        sum += c->slots[i];
    for (size_t i = 0; i < c->n_idle; i++)
        sum += (float)c->idle[i];
    for (size_t i = 0; i < c->n_rows; i++) {
        sum += (float)c->steps[i];
        require(i == 0 || c->keys[i - 1] < c->keys[i]);
    }
    for (size_t i = 0; i < c->n_pending; i++) {
        sum += (float)(c->pending_steps[i] + c->pending_counts[i]);
        require(i == 0 || c->pending_keys[i - 1] < c->pending_keys[i]);
    }
    require(!c->has_more || c->n_rows + c->n_pending > 0);
    *(volatile float *)ctx = sum;
    require(c->version >= 0 && (c->n_value > 0 || (c->is_bucket && c->n_rows == 0)));
    require(c->n_rows == 0 || (c->is_bucket && c->n_value % c->n_rows == 0));
    return ST_OK;
}

static void read_fetch_reply(const uint8_t *data, size_t size)
{
    static const int list[] = {0, 1, 2};
    char why[MESSAGE_WHY_BYTES];
    volatile float sum;
    struct message_fetched to = {
        .n = 3, .chunk = list, .receive = take, .ctx = (void *)(uintptr_t)&sum};
    if (message_fetch_reply_unpack(data, size, &to, why) == ST_OK)
        require(to.n_received + to.has_after > 0 && to.n_received <= 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_join(data, size);
    read_join_reply(data, size);
    read_leave(data, size);
    read_control(data, size);
    read_control_reply(data, size);
    read_status(data, size);
    read_command(data, size);
    read_evaluation(data, size);
    read_fetch(data, size);
    read_fetch_reply(data, size);
    read_squares(data, size);
    read_report(data, size);
    read_gate(data, size);
    return 0;
}
