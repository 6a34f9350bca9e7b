/* tests/net_protocol_test.c - programs of two versions: each request contains its sender's
 * protocol, and a sentence with both numbers refuses an older or newer sender. */
#include "tests/net_wire.h"
#include <stdio.h>
#include <string.h>

static struct chunks *chunks;

static int setup(void **state)
{
    static const struct net_param param = {.name = "w", .shape = {1, {4096}}};
    return chunks_create(&param, 1, CHUNKS_MIN_BYTES, &chunks) != ST_OK;
}

static int teardown(void **state)
{
    chunks_destroy(chunks);
    return 0;
}

static void pack_join(struct wire *w)
{
    struct net_join join = {.member = 1, .incarnation = 5, .chunks = chunks};
    join.job = (struct net_job){.n_workers = 2, .sync_mode = JOB_SYNC, .train_steps = 10};
    optim_defaults(OPTIM_SGD, &join.job.optim);
    assert_int_equal(message_join_pack(&join, &w->data, &w->bytes), ST_OK);
}

static enum status unpack_join(struct wire *w)
{
    struct net_join join = {.model = NULL};
    struct chunks *of_join = NULL;
    enum status st = message_join_unpack(w->data, w->bytes, &join, &of_join, w->why);
    message_join_free(&join);
    chunks_destroy(of_join);
    return st;
}

static void pack_control(struct wire *w)
{
    const struct net_control control = {
        .n_servers = 2, .server = 1, .incarnation = 5, .lowest = -1, .highest = -1};
    assert_int_equal(message_control_pack(&control, &w->data, &w->bytes), ST_OK);
}

static enum status unpack_control(struct wire *w)
{
    struct net_control control = {.n_missing = 0};
    enum status st = message_control_unpack(w->data, w->bytes, &control, w->why);
    if (st == ST_OK)
        message_control_free(&control);
    return st;
}

static void pack_status(struct wire *w)
{
    assert_int_equal(
        message_status_request_pack(&(struct net_status_request){1, 0}, &w->data, &w->bytes),
        ST_OK);
}

static enum status unpack_status(struct wire *w)
{
    struct net_status_request request;
    return message_status_request_unpack(w->data, w->bytes, &request, w->why);
}

static void pack_command(struct wire *w)
{
    const struct net_command command = {.kind = COMMAND_CHECKPOINT};
    assert_int_equal(message_command_pack(&command, &w->data, &w->bytes), ST_OK);
}

static enum status unpack_command(struct wire *w)
{
    struct net_command command;
    return message_command_unpack(w->data, w->bytes, &command, w->why);
}

static void pack_fetch(struct wire *w)
{
    int chunk[] = {0};
    const struct net_fetch_request request = {.generation = 1, .step = 1, .n = 1, .chunk = chunk};
    assert_int_equal(message_fetch_pack(&request, &w->data, &w->bytes), ST_OK);
}

static enum status unpack_fetch(struct wire *w)
{
    struct net_fetch_request request = {.chunk = NULL};
    enum status st = message_fetch_unpack(w->data, w->bytes, &request, w->why);
    free(request.chunk);
    return st;
}

static void pack_squares(struct wire *w)
{
    double square[] = {0.25, 3};
    const struct net_squares squares = {
        .generation = 1, .ps0 = 7, .step = 4, .server = 2, .n = 2, .square = square};
    assert_int_equal(message_squares_pack(&squares, &w->data, &w->bytes), ST_OK);
}

static enum status unpack_squares(struct wire *w)
{
    struct net_squares got = {.square = NULL};
    enum status st = message_squares_unpack(w->data, w->bytes, &got, w->why);
    if (st == ST_OK)
        assert_true(got.generation == 1 && got.ps0 == 7 && got.step == 4 && got.server == 2 &&
                    got.n == 2 && got.square[0] == 0.25 && got.square[1] == 3);
    free(got.square);
    return st;
}

static void pack_gate(struct wire *w)
{
    struct buf *b;
    assert_int_equal(buf_create(2 * sizeof(float), &b), ST_OK);
    memcpy(b->data, (float[]){0.5f, -3}, 2 * sizeof(float));
    struct net_gate_item item[] = {
        {.kind = GATE_ADD, .chunk = 3, .version = 20, .value = b},
        {.kind = GATE_OWN, .chunk = 4, .version = 21, .alone = 1},
        {.kind = GATE_BEGIN, .chunk = 5, .version = 7, .slots_since = 7, .value = b}};
    const struct net_gate gate = {.generation = 1, .ps0 = 7, .server = 2, .n = 3, .item = item};
    assert_int_equal(message_gate_pack(&gate, &w->data, &w->bytes), ST_OK);
    buf_unref(b);
}

static enum status unpack_gate(struct wire *w)
{
    struct net_gate got = {.n = 0};
    enum status st = message_gate_unpack(w->data, w->bytes, &got, w->why);
    if (st == ST_OK) {
        assert_true(got.generation == 1 && got.ps0 == 7 && got.server == 2 && got.n == 3);
        const float *value = got.item[0].value->data;
        assert_true(got.item[0].kind == GATE_ADD && got.item[0].chunk == 3 &&
                    got.item[0].version == 20 && value[0] == 0.5f && value[1] == -3);
        assert_true(got.item[1].kind == GATE_OWN && got.item[1].alone && !got.item[1].value);
        assert_true(got.item[2].slots_since == 7 && got.item[2].value->bytes == 2 * sizeof *value);
    }
    message_gate_free(&got);
    return st;
}

/* The receiver checks another server's message before it uses any value. */
static void invalid_gates_are_refused(void **state)
{
    struct buf *b;
    struct net_gate got;
    assert_int_equal(buf_create(8, &b), ST_OK);
    memset(b->data, 0, 8);
    const struct net_gate_item wrong[] = {
        {.kind = GATE_OWN, .value = b},                 /* must not have a value */
        {.kind = GATE_WHOLE},                           /* needs a value */
        {.kind = GATE_N_KINDS, .value = b},             /* no such kind */
        {.kind = GATE_OWN, .chunk = CHUNKS_MAX_CHUNKS}, /* no such chunk */
        {.kind = GATE_OWN, .version = -1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct wire w = {.why = ""};
        struct net_gate_item item[2] = {{.kind = GATE_WHOLE, .value = b}, wrong[i]};
        const struct net_gate gate = {.generation = 1, .n = 2, .item = item};
        assert_int_equal(message_gate_pack(&gate, &w.data, &w.bytes), ST_OK);
        assert_int_equal(message_gate_unpack(w.data, w.bytes, &got, w.why), ST_INVALID);
        assert_true(w.why[0]);
        free(w.data);
    }
    buf_unref(b);
}

static void other_protocol_versions_are_refused(void **state)
{
    static const struct {
        void (*pack)(struct wire *w);
        enum status (*unpack)(struct wire *w);
    } requests[] = {{pack_join, unpack_join},     {pack_control, unpack_control},
                    {pack_status, unpack_status}, {pack_command, unpack_command},
                    {pack_fetch, unpack_fetch},   {pack_squares, unpack_squares},
                    {pack_gate, unpack_gate}};
    static const int others[] = {1, MESSAGE_PROTOCOL + 1};
    char expect[128];
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct wire w = {.why = ""};
        requests[i].pack(&w);
        assert_int_equal(requests[i].unpack(&w), ST_OK);
        assert_int_equal(w.data[0], 0x08); /* field 1, a varint */
        assert_int_equal(w.data[1], MESSAGE_PROTOCOL);
        for (size_t k = 0; k < 2; k++) {
            w.data[1] = (uint8_t)others[k];
            assert_int_equal(requests[i].unpack(&w), ST_INVALID);
            snprintf(
                expect, sizeof expect,
                "the caller speaks protocol %d, this server protocol %d; run the same version of all programs",
                others[k], MESSAGE_PROTOCOL);
            assert_string_equal(w.why, expect);
        }
        wire_end(&w, ST_OK);
    }
}

/* The fuzzer's seeds contain the present protocol; otherwise they would all be refused. */
static void fuzzer_seeds_have_present_protocol(void **state)
{
    static const char *const names[] = {"join",    "join_any",      "request", "request_joining",
                                        "command", "request_stand", "status",  "fetch",
                                        "squares", "gate"};
    char path[512], head[2] = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, WEIR_SOURCE_DIR "/tests/corpus/control/%s", names[i]);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        assert_int_equal(fread(head, 1, 2, f), 2);
        fclose(f);
        assert_int_equal(head[0], 0x08);
        assert_int_equal(head[1], MESSAGE_PROTOCOL);
    }
}

int main(void)
{
    return RUN_GROUP(setup, teardown, other_protocol_versions_are_refused,
                     fuzzer_seeds_have_present_protocol, invalid_gates_are_refused);
}
