/* tests/net_status_test.c - operators' requests to a server: status and commands arrive
 * unchanged. Also covers servers without handlers, ports without a server, and peers that send
 * invalid values. */
#include "base/clock.h"
#include "net/exchange/status_client.h"
#include "net/rpc/server.h"
#include "net/wire/message.h"
#include "net/wire/table_status.h"
#include "net/wire/tables.h"
#include "net/wire/weir.pb-c.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/net_wire.h"
#include "tests/table_rig.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Number of gRPC's next calls of connect() after which the test changes errno. */
static atomic_int n_wrong_errno;

int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t n)
{
    int (*real)(int, __CONST_SOCKADDR_ARG, socklen_t) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "connect");
    int rc = real(fd, addr, n);
    if (rc < 0 && errno == EINPROGRESS && atomic_fetch_sub(&n_wrong_errno, 1) > 0)
        errno = ENOENT;
    return rc;
}

enum { LONG_MS = 30000, N_MEMBERS = 3, N_SERVERS = 2 };

static const char model_text[] = "{\"name\": \"small\"}";

static const struct net_status_checkpoints checkpoints = {.folder = "/ckpt",
                                                          .last = 30,
                                                          .ordered = 40,
                                                          .wanted = 4,
                                                          .given = 3,
                                                          .next_ms = 2500,
                                                          .owner = 77,
                                                          .is_ending = true};

static void fill_tables(struct net_status *s)
{
    const struct net_table table = {.name = "ads",
                                    .dim = 4,
                                    .n_buckets = 4,
                                    .max_rows = 1000,
                                    .step_rows = 100,
                                    .optimizer = TABLE_RIG_SGD};
    assert_int_equal(tables_add(s->chunks, &table, 1), ST_OK);
    s->n_tables = 1;
    s->tables = calloc(2, sizeof *s->tables);
    *s->tables = (struct net_status_table){2, 101, 102, 103, 104, 105, 3, 106};
}

/* Fills a status in which all numbers differ. */
static void fill(struct net_status *s, int with_model)
{
    struct net_param params[2] = {{.name = "w", .shape = {.n_dims = 2, .dim = {3, 4}}},
                                  {.name = "b", .shape = {.n_dims = 1, .dim = {4}}}};
    *s = (struct net_status){.server = 1,
                             .generation = 6,
                             .state = STATE_STOPPED,
                             .first_step = 20,
                             .step = 31,
                             .highest = 32,
                             .position = 4000,
                             .steps_per_s = 12.5,
                             .up_ms = 777,
                             .hidden_units = 9,
                             .n_members = N_MEMBERS,
                             .n_servers = N_SERVERS,
                             .change = "a worker joins at step 40",
                             .waiting = "worker 1 (never joined)",
                             .waiting_ms = 12345,
                             .model_name = "small",
                             .n_recent = 128};
    s->job = (struct net_job){.n_workers = 3,
                              .train_steps = 99,
                              .asked_steps = 120,
                              .seed = 5,
                              .batch = 16,
                              .validation = {{600, 0xfedcba98, 7}, 50, 4}};
    s->best = (struct net_best){25, 0.5, 0.75};
    optim_defaults(OPTIM_ADAM, &s->job.optim);
    assert_int_equal(chunks_create(params, 2, 4096, &s->chunks), ST_OK);
    fill_tables(s);
    s->model = with_model ? strdup(model_text) : NULL;
    s->members = calloc(N_MEMBERS, sizeof *s->members);
    s->servers = calloc(N_SERVERS, sizeof *s->servers);
    for (int i = 0; i < N_MEMBERS; i++)
        s->members[i] = (struct net_status_member){.member = 2 * i,
                                                   .rank = i - 1,
                                                   .state = MEMBER_JOINING,
                                                   .address = "10.0.0.7:2223",
                                                   .ms = 41 + i,
                                                   .times = 51 + i,
                                                   .seconds = 61.5 + i,
                                                   .recent_times = 71 + i,
                                                   .recent_seconds = 81.25 + i,
                                                   .awaited = 91 + i,
                                                   .refused = "another job: --seed",
                                                   .refused_ms = 95 + i};
    for (int i = 0; i < N_SERVERS; i++)
        s->servers[i] = (struct net_status_server){.server = i - 1,
                                                   .state = SERVER_LEAVING,
                                                   .address = "10.0.0.1:2221",
                                                   .bytes = (uint64_t)100 + i,
                                                   .n_chunks = 7 + i,
                                                   .heard_ms = i - 1,
                                                   .up_ms = 21 + i};
    s->checkpoints = checkpoints;
}

static enum status on_status(void *ctx, int with_model, struct net_status *out)
{
    if (atomic_load((atomic_int *)ctx))
        fill(out, with_model);
    return ST_OK;
}

static void on_command(void *ctx, const struct net_command *command, struct net_command_reply *out)
{
    out->answer = command->kind == COMMAND_CHECKPOINT ? COMMAND_ACCEPTED : COMMAND_DONE;
    out->wanted = (uint64_t)command->index;
    snprintf(out->text, sizeof out->text, "as you say");
}

static struct net_server *start(const struct net_admin_handlers *admin, char addr[64])
{
    struct net_server *server;
    struct net_server_config cfg = {.addr = "127.0.0.1:0", .admin = *admin};
    assert_int_equal(net_server_create(&cfg, &server), ST_OK);
    snprintf(addr, 64, "127.0.0.1:%d", net_server_port(server));
    return server;
}

static void same_lists(const struct net_status *a, const struct net_status *b)
{
    assert_int_equal(a->n_members, b->n_members);
    for (int i = 0; i < a->n_members; i++) {
        const struct net_status_member *m = &a->members[i], *n = &b->members[i];
        assert_true(m->member == n->member && m->rank == n->rank && m->state == n->state &&
                    m->ms == n->ms && m->times == n->times && m->seconds == n->seconds &&
                    m->recent_times == n->recent_times && m->recent_seconds == n->recent_seconds &&
                    m->awaited == n->awaited && m->refused_ms == n->refused_ms);
        assert_string_equal(m->refused, n->refused);
        assert_string_equal(m->address, n->address);
    }
    assert_int_equal(a->n_servers, b->n_servers);
    for (int i = 0; i < a->n_servers; i++) {
        const struct net_status_server *s = &a->servers[i], *t = &b->servers[i];
        assert_true(s->server == t->server && s->state == t->state && s->bytes == t->bytes &&
                    s->n_chunks == t->n_chunks && s->heard_ms == t->heard_ms &&
                    s->up_ms == t->up_ms);
        assert_string_equal(s->address, t->address);
    }
    assert_int_equal(a->n_tables, b->n_tables);
    for (int i = 0; i < a->n_tables; i++) {
        const struct net_status_table *t = &a->tables[i], *u = &b->tables[i];
        assert_true(t->n_buckets == u->n_buckets && t->rows == u->rows &&
                    t->pending == u->pending && t->bytes == u->bytes && t->removed == u->removed &&
                    t->keys == u->keys && t->hottest == u->hottest &&
                    t->hottest_keys == u->hottest_keys);
    }
}

static void same(const struct net_status *a, const struct net_status *b)
{
    const struct net_status_checkpoints *c = &a->checkpoints, *d = &b->checkpoints;
    char why[256];
    assert_true(a->server == b->server && a->generation == b->generation && a->state == b->state);
    assert_true(a->first_step == b->first_step && a->step == b->step && a->highest == b->highest);
    assert_true(a->position == b->position && a->steps_per_s == b->steps_per_s);
    assert_true(a->up_ms == b->up_ms && a->n_recent == b->n_recent);
    assert_true(a->best.step == b->best.step && a->best.loss == b->best.loss &&
                a->best.accuracy == b->best.accuracy);
    assert_string_equal(a->change, b->change);
    assert_string_equal(a->waiting, b->waiting);
    assert_string_equal(a->model_name, b->model_name);
    assert_true(a->waiting_ms == b->waiting_ms);
    assert_true(a->job.n_workers == b->job.n_workers && a->job.seed == b->job.seed &&
                a->job.train_steps == b->job.train_steps && a->job.batch == b->job.batch);
    assert_true(a->job.optim.kind == b->job.optim.kind);
    assert_int_equal(chunks_compare(a->chunks, b->chunks, why, sizeof why), ST_OK);
    same_lists(a, b);
    assert_true(c->last == d->last && c->ordered == d->ordered);
    assert_true(c->wanted == d->wanted && c->given == d->given && c->next_ms == d->next_ms);
    assert_string_equal(c->folder, d->folder);
}

static void status_arrives_unchanged(void **state)
{
    atomic_int has_job = 1;
    char addr[64], why[CONTROL_TEXT_BYTES] = "";
    struct net_admin_handlers admin = {&has_job, NULL, on_status, on_command, NULL, NULL};
    struct net_server *server = start(&admin, addr);
    struct net_status expect, got;
    fill(&expect, 1);
    for (int with_model = 0; with_model <= 1; with_model++) {
        assert_int_equal(status_client_ask(addr, with_model, LONG_MS, &got, why), ST_OK);
        same(&got, &expect);
        assert_int_equal(got.model != NULL, with_model);
        if (with_model) {
            assert_string_equal(got.model, model_text);
            assert_int_equal(got.hidden_units, 9);
        }
        net_status_free(&got);
    }
    atomic_store(&has_job, 0);
    assert_int_equal(status_client_ask(addr, 1, LONG_MS, &got, why), ST_OK);
    assert_true(!got.chunks && !got.model && got.n_members == 0 && got.checkpoints.last == -1);
    net_status_free(&got);
    net_status_free(&expect);
    net_server_destroy(server);
}

/* gRPC aborts a connection in progress if errno changes after connect() has returned. */
static void changed_errno_does_not_end_call(void **state)
{
    atomic_int has_job = 0;
    char addr[64], why[CONTROL_TEXT_BYTES] = "";
    struct net_admin_handlers admin = {&has_job, NULL, on_status, on_command, NULL, NULL};
    struct net_server *server = start(&admin, addr);
    struct net_status got;
    atomic_store(&n_wrong_errno, 1);
    assert_int_equal(status_client_ask(addr, 0, LONG_MS, &got, why), ST_OK);
    assert_true(atomic_load(&n_wrong_errno) <= 0);
    net_status_free(&got);
    atomic_store(&n_wrong_errno, 2);
    assert_int_equal(status_client_ask(addr, 0, LONG_MS, &got, why), ST_UNAVAILABLE);
    assert_non_null(strstr(why, "failed to connect"));
    atomic_store(&n_wrong_errno, 0);
    net_server_destroy(server);
}

static void commands_are_answered(void **state)
{
    char addr[64], why[CONTROL_TEXT_BYTES] = "";
    struct net_admin_handlers admin = {NULL, NULL, on_status, on_command, NULL, NULL};
    struct net_server *server = start(&admin, addr);
    struct net_command_reply got;
    struct net_command command = {COMMAND_CHECKPOINT, 0};
    assert_int_equal(status_client_send_command(addr, &command, LONG_MS, &got, why), ST_OK);
    assert_int_equal(got.answer, COMMAND_ACCEPTED);
    assert_string_equal(got.text, "as you say");
    command = (struct net_command){COMMAND_DRAIN_SERVER, 7};
    assert_int_equal(status_client_send_command(addr, &command, LONG_MS, &got, why), ST_OK);
    assert_true(got.answer == COMMAND_DONE && got.wanted == 7);
    const struct net_command wrong[] = {
        {COMMAND_NONE, 0}, {COMMAND_N_KINDS, 0}, {COMMAND_CHECKPOINT, JOB_MAX_WORKERS}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        enum status st = CAPTURE(status_client_send_command(addr, &wrong[i], LONG_MS, &got, why));
        assert_int_equal(st, ST_PROTOCOL);
        assert_non_null(strstr(why, "the command is unknown, or its index"));
    }
    net_server_destroy(server);
}

/* A server without the handlers refuses, and a port without a server or a silent server does not
 * answer: each case is reported. */
static void missing_answers_are_reported(void **state)
{
    char addr[64], why[CONTROL_TEXT_BYTES] = "";
    struct net_admin_handlers nobody = {.ctx = NULL};
    struct net_server *server = start(&nobody, addr);
    struct net_status got;
    struct net_command_reply reply;
    struct net_command command = {COMMAND_CHECKPOINT, 0};
    enum status st = CAPTURE(status_client_ask(addr, 0, LONG_MS, &got, why));
    assert_int_equal(st, ST_PROTOCOL);
    assert_string_equal(why, "this server does not report its status");
    st = CAPTURE(status_client_send_command(addr, &command, LONG_MS, &reply, why));
    assert_int_equal(st, ST_PROTOCOL);
    assert_string_equal(why, "this server accepts no commands");
    net_server_destroy(server);
    assert_int_equal(status_client_ask(addr, 0, LONG_MS, &got, why), ST_UNAVAILABLE);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&any, n), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &n), 0);
    snprintf(addr, sizeof addr, "127.0.0.1:%d", ntohs(any.sin_port));
    st = status_client_ask(addr, 0, 300, &got, why);
    assert_true(st == ST_DEADLINE || st == ST_UNAVAILABLE);
    close(fd);
}

/* A call over a new connection may last longer than its deadline, because the connection is still
 * being established. So a single missing answer proves nothing. */
static void first_call_without_answer_shows_nothing(void **state)
{
    char addr[64], why[CONTROL_TEXT_BYTES] = "";
    struct status_asker *asker;
    struct net_status got;
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&any, n), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &n), 0);
    snprintf(addr, sizeof addr, "127.0.0.1:%d", ntohs(any.sin_port));
    assert_int_equal(status_asker_create(addr, &asker), ST_OK);
    for (int i = 1; i <= 6; i++) {
        assert_int_equal(status_asker_ask(asker, 50, &got, why), ST_DEADLINE);
        assert_string_equal(why, "no answer");
        assert_int_equal(status_asker_is_unanswered(asker), i >= 5);
    }
    status_asker_destroy(asker);
    close(fd);
}

static atomic_int is_held;

static enum status on_status_held(void *ctx, int with_model, struct net_status *out)
{
    while (atomic_load(&is_held))
        usleep(1000);
    return on_status(ctx, with_model, out);
}

static void later_call_without_answer_shows_hung_server(void **state)
{
    atomic_int has_job = 0;
    char addr[64], why[CONTROL_TEXT_BYTES] = "";
    struct net_admin_handlers admin = {&has_job, NULL, on_status_held, on_command, NULL, NULL};
    struct net_server *server = start(&admin, addr);
    struct status_asker *asker;
    struct net_status got;
    assert_int_equal(status_asker_create(addr, &asker), ST_OK);
    for (int i = 0; i < 2; i++) {
        atomic_store(&is_held, 0);
        assert_int_equal(status_asker_ask(asker, LONG_MS, &got, why), ST_OK);
        assert_false(status_asker_is_unanswered(asker));
        net_status_free(&got);
        atomic_store(&is_held, 1);
        assert_int_equal(status_asker_ask(asker, 50, &got, why), ST_DEADLINE);
        assert_true(status_asker_is_unanswered(asker));
    }
    atomic_store(&is_held, 0);
    net_server_destroy(server);
    status_asker_destroy(asker);
}

static void refused_calls_count_as_answers(void **state)
{
    char addr[64], why[CONTROL_TEXT_BYTES] = "";
    struct net_admin_handlers nobody = {.ctx = NULL};
    struct net_server *server = start(&nobody, addr);
    struct status_asker *asker;
    struct net_status got;
    assert_int_equal(status_asker_create(addr, &asker), ST_OK);
    for (int i = 0; i < 6; i++) {
        enum status st = CAPTURE(status_asker_ask(asker, LONG_MS, &got, why));
        assert_int_equal(st, ST_PROTOCOL);
        assert_string_equal(why, "this server does not report its status");
        assert_false(status_asker_is_unanswered(asker));
    }
    status_asker_destroy(asker);
    net_server_destroy(server);
}

static void refused(const struct net_status *bad)
{
    struct net_status got = {.generation = 12345};
    assert_int_equal(wire_through(&message_status, bad, &got), ST_INVALID);
    assert_int_equal(got.generation, 12345); /* outputs are only written on success */
}

/* Checks that one invalid value is refused, while all other values are valid. */
#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        struct net_status bad;                                                                     \
        fill(&bad, 1);                                                                             \
        bad.field = value;                                                                         \
        refused(&bad);                                                                             \
        net_status_free(&bad);                                                                     \
    } while (0)

static void invalid_statuses_are_refused(void **state)
{
    REFUSED(server, HOSTS_MAX);
    REFUSED(state, (enum status_state)STATE_N_KINDS);
    REFUSED(first_step, -1);
    REFUSED(step, -2);
    REFUSED(highest, INT64_MIN);
    REFUSED(steps_per_s, -1);
    REFUSED(waiting_ms, UINT64_MAX);
    REFUSED(steps_per_s, 0.0 / 0.0);
    REFUSED(up_ms, -1);
    REFUSED(n_recent, -1);
    REFUSED(best.loss, 0.0 / 0.0);
    REFUSED(best.accuracy, 1.5);
    REFUSED(best.step, -2);
    REFUSED(job.asked_steps, 98);
    REFUSED(job.asked_steps, -1);
    REFUSED(job.validation.data.n, -1);
    REFUSED(job.validation.every, -1);
    REFUSED(job.validation.patience, -1);
    REFUSED(job.n_workers, JOB_MAX_WORKERS + 1);
    REFUSED(job.n_workers, 0);
    REFUSED(members[2].member, JOB_MAX_WORKERS);
    REFUSED(members[0].rank, JOB_MAX_WORKERS);
    REFUSED(members[0].state, MEMBER_N_STATES);
    REFUSED(members[0].ms, -1);
    REFUSED(members[0].times, -1);
    REFUSED(members[0].seconds, 1.0 / 0.0);
    REFUSED(members[1].recent_times, -5);
    REFUSED(members[1].recent_seconds, -0.5);
    REFUSED(members[1].awaited, -1);
    REFUSED(members[1].refused_ms, -1);
    REFUSED(servers[0].server, -2);
    REFUSED(servers[0].server, HOSTS_MAX);
    REFUSED(servers[0].state, SERVER_N_STATES);
    REFUSED(servers[0].n_chunks, -1);
    REFUSED(servers[1].heard_ms, -2);
    REFUSED(servers[1].up_ms, -2);
    REFUSED(n_tables, 2); /* the job has one */
    REFUSED(tables[0].n_buckets, -1);
    REFUSED(tables[0].hottest, TABLES_MAX_BUCKETS);
}

/* Returns true if a job is accepted whose model text has this length. */
static bool accepts_model(size_t bytes)
{
    struct net_status s, got = {.chunks = NULL};
    char why[MESSAGE_WHY_BYTES] = "";
    uint8_t *data;
    size_t n;
    fill(&s, 0);
    assert_int_equal(message_status_pack(&s, &data, &n), ST_OK);
    Weir__V1__StatusReply *wire = weir__v1__status_reply__unpack(NULL, n, data);
    assert_non_null(wire);
    free(data);
    char *text = malloc(bytes + 1), *none = wire->job->model;
    memset(text, 'x', bytes);
    text[bytes] = 0;
    wire->job->model = text;
    data = malloc(weir__v1__status_reply__get_packed_size(wire));
    n = weir__v1__status_reply__pack(wire, data);
    wire->job->model = none;
    enum status st = message_status_unpack(data, n, &got, why);
    bool is_accepted = st == ST_OK && got.model && strlen(got.model) == bytes;
    assert_true(is_accepted || (st == ST_INVALID && strstr(why, "model")));
    weir__v1__status_reply__free_unpacked(wire, NULL);
    net_status_free(&got);
    net_status_free(&s);
    free(text);
    free(data);
    return is_accepted;
}

/* Terminals show texts that a peer sends, so these texts must be printable. */
static void texts_are_made_printable(void **state)
{
    struct net_status s, got;
    fill(&s, 0);
    snprintf(s.members[0].address, sizeof s.members[0].address, "a\033[2Jb\tc\xff");
    snprintf(s.change, sizeof s.change, "x\ny");
    assert_int_equal(wire_through(&message_status, &s, &got), ST_OK);
    assert_string_equal(got.members[0].address, "a?[2Jb?c?");
    assert_string_equal(got.change, "x?y");
    net_status_free(&got);
    net_status_free(&s);
}

static void long_models_are_refused(void **state)
{
    assert_true(accepts_model(JOB_MAX_MODEL_BYTES));
    assert_false(accepts_model(JOB_MAX_MODEL_BYTES + 1));
}

/* A message whose few bytes would decode to far more memory, or to too many members, is refused. */
static void messages_that_need_much_memory_are_refused(void **state)
{
    static const struct {
        size_t n;
        enum status st;
    } floods[] = {{2 * JOB_MAX_WORKERS + 1, ST_INVALID}, {2000000, ST_PROTOCOL}};
    for (size_t k = 0; k < sizeof floods / sizeof *floods; k++) {
        struct net_status got;
        char why[MESSAGE_WHY_BYTES] = "";
        uint8_t *data = malloc(2 * floods[k].n);
        for (size_t i = 0; i < floods[k].n; i++) {
            data[2 * i] = 11 << 3 | 2; /* an empty member */
            data[2 * i + 1] = 0;
        }
        assert_int_equal(message_status_unpack(data, 2 * floods[k].n, &got, why), floods[k].st);
        free(data);
    }
}

static void join_contains_the_model(void **state)
{
    struct net_status s;
    struct net_join got;
    struct chunks *chunks = NULL;
    char why[MESSAGE_WHY_BYTES];
    uint8_t *data;
    size_t n;
    fill(&s, 1);
    struct net_join join = {.member = 1,
                            .incarnation = 5,
                            .job = s.job,
                            .chunks = s.chunks,
                            .model = s.model,
                            .hidden_units = s.hidden_units};
    assert_int_equal(message_join_pack(&join, &data, &n), ST_OK);
    assert_int_equal(message_join_unpack(data, n, &got, &chunks, why), ST_OK);
    assert_string_equal(got.model, model_text);
    assert_int_equal(got.hidden_units, 9);
    assert_int_equal(got.job.batch, 16);
    assert_true(job_validation_same(&got.job.validation.data, &s.job.validation.data));
    assert_true(got.job.validation.every == 50 && got.job.validation.patience == 4);
    assert_true(got.job.asked_steps == 120 && got.job.optim.total_steps == 120);
    message_join_free(&got);
    chunks_destroy(chunks);
    net_status_free(&s);
    free(data);
}

int main(void)
{
    return RUN_TESTS(status_arrives_unchanged, commands_are_answered, missing_answers_are_reported,
                     first_call_without_answer_shows_nothing,
                     later_call_without_answer_shows_hung_server, refused_calls_count_as_answers,
                     invalid_statuses_are_refused, long_models_are_refused,
                     messages_that_need_much_memory_are_refused, join_contains_the_model,
                     texts_are_made_printable, changed_errno_does_not_end_call);
}
