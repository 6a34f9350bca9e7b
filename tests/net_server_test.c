/* tests/net_server_test.c - the server and unusual peers or settings: a port in use, invalid
 * addresses, health checks, unknown methods, invalid frames, and bytes that are not HTTP/2. */
#include "base/log.h"
#include "net/wire/message.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/net_raw.h"
#include "tests/net_tiny.h"
#include <arpa/inet.h>
#include <math.h>
#include <sys/socket.h>

struct fixture {
    struct chunks *chunks;
    struct tiny tiny;
};

static int set_up(void **state)
{
    static struct fixture f;
    const struct net_param param = {.name = "w", .shape = {1, {4096}}};
    assert_int_equal(chunks_create(&param, 1, CHUNKS_MIN_BYTES, &f.chunks), ST_OK);
    tiny_init(&f.tiny, f.chunks, 0, 1);
    tiny_start(&f.tiny);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tiny_free(&f->tiny);
    chunks_destroy(f->chunks);
    return 0;
}

static enum status try_listen(const char *addr)
{
    struct net_server *s = NULL;
    struct net_server_config cfg = {.addr = addr};
    enum status st = CAPTURE(net_server_create(&cfg, &s));
    if (st == ST_OK)
        net_server_destroy(s);
    else if (capture_lines() != 1)
        fail_msg("%s, status %s, log '%s'", addr, status_name(st), capture_text);
    return st;
}

static void invalid_addresses_are_refused(void **state)
{
    struct fixture *f = *state;
    char addr[64];
    snprintf(addr, sizeof addr, "127.0.0.1:%d", f->tiny.port);
    assert_int_equal(try_listen(addr), ST_BUSY);
    assert_non_null(strstr(capture_text, "address in use"));
    assert_non_null(strstr(capture_text, addr));
    assert_int_equal(try_listen("203.0.113.77:2222"), ST_INVALID);
    assert_non_null(strstr(capture_text, "one of this host's own"));
    assert_int_equal(try_listen("no.such.host.invalid:2222"), ST_INVALID);
    assert_int_equal(try_listen("127.0.0.1"), ST_INVALID);
    assert_int_equal(try_listen("127.0.0.1:0"), ST_OK);
    /* The server listens on one loopback address, and not on another. */
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->tiny.port)};
    inet_pton(AF_INET, "127.0.0.2", &sa.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), -1);
    close(fd);
}

static void health_checks_are_answered(void **state)
{
    struct fixture *f = *state;
    static struct raw r;
    int port = f->tiny.port;
    const char *check = "/grpc.health.v1.Health/Check";
    assert_int_equal(raw_unary(&r, port, check, "", 0), GRPC_STATUS_OK);
    assert_int_equal(r.n_reply, 2);
    assert_memory_equal(r.reply, "\x08\x01", 2);
    assert_int_equal(raw_unary(&r, port, check, "\x0a\x0cweir.v1.Weir", 14), GRPC_STATUS_OK);
    assert_memory_equal(r.reply, "\x08\x01", 2);
    assert_int_equal(raw_unary(&r, port, check, "\x0a\x02no", 4), GRPC_STATUS_NOT_FOUND);
    raw_open(&r, port, "/grpc.health.v1.Health/Watch");
    raw_send(&r, "\x0a\x02no", 4);
    raw_half_close(&r);
    assert_true(raw_recv(&r));
    assert_memory_equal(r.reply, "\x08\x03", 2); /* SERVICE_UNKNOWN */
    grpc_call_cancel(r.call, NULL);
    assert_int_equal(raw_close(&r), GRPC_STATUS_CANCELLED);
}

static void invalid_requests_are_refused(void **state)
{
    struct fixture *f = *state;
    static struct raw r;
    int port = f->tiny.port;
    static const uint8_t bad[] = {0x22, 0x7f, 1, 2, 3};
    assert_int_equal(raw_unary(&r, port, "/weir.v1.Weir/Nothing", "", 0),
                     GRPC_STATUS_UNIMPLEMENTED);
    assert_int_equal(raw_unary(&r, port, "/weir.v1.Weir/Join", bad, sizeof bad),
                     GRPC_STATUS_INVALID_ARGUMENT);
    assert_int_equal(raw_unary(&r, port, "/weir.v1.Weir/Leave", bad, sizeof bad),
                     GRPC_STATUS_INVALID_ARGUMENT);
    const uint8_t other[] = {0x08, MESSAGE_PROTOCOL + 1};
    assert_int_equal(raw_unary(&r, port, "/weir.v1.Weir/Join", other, sizeof other),
                     GRPC_STATUS_OK);
    struct net_join_reply reply;
    char why[MESSAGE_WHY_BYTES];
    assert_int_equal(message_reply_unpack(r.reply, r.n_reply, &reply, why), ST_OK);
    assert_int_equal(reply.answer, JOIN_REFUSED);
    snprintf(why, sizeof why, "protocol %d", MESSAGE_PROTOCOL + 1);
    assert_non_null(strstr(reply.why, why));
    assert_int_equal(tiny_get(&f->tiny, &f->tiny.n_join), 0);
    assert_int_equal(raw_unary(&r, port, "/weir.v1.Weir/Leave", "\x08\x01", 2), GRPC_STATUS_OK);
    assert_int_equal(tiny_get(&f->tiny, &f->tiny.n_leave), 1);
}

/* However often the server refuses a peer, it logs only a few lines. */
static void refusals_write_few_lines(void **state)
{
    struct fixture *f = *state;
    static struct raw r;
    static const uint8_t bad[] = {0x22, 0x7f, 1, 2, 3};
    int leave = 0, frame = 0;
    for (int i = 0; i < 5 * LOG_LIMIT_BURST; i++) {
        grpc_status_code code =
            CAPTURE(raw_unary(&r, f->tiny.port, "/weir.v1.Weir/Leave", bad, sizeof bad));
        assert_int_equal(code, GRPC_STATUS_INVALID_ARGUMENT);
        leave += capture_lines();
        raw_open(&r, f->tiny.port, "/weir.v1.Weir/Exchange");
        capture_begin();
        raw_send(&r, bad, sizeof bad);
        while (raw_recv(&r))
            ;
        code = raw_close(&r);
        capture_end();
        assert_int_equal(code, GRPC_STATUS_INVALID_ARGUMENT);
        frame += capture_lines();
    }
    assert_in_range(leave, 1, LOG_LIMIT_BURST + 1); /* one further line is possible after 10 s */
    assert_in_range(frame, 1, LOG_LIMIT_BURST + 1);
}

/* Sends JoinRequests that differ in one value from a valid one. */
static void joins_out_of_bounds_are_refused(void **state)
{
    struct fixture *f = *state;
    struct net_join good = {.member = 1, .incarnation = 5, .chunks = f->chunks};
    good.job = (struct net_job){.n_workers = 2, .train_steps = 10, .seed = 3};
    good.job.sync_mode = JOB_SSP;
    good.job.staleness = 4;
    good.job.delay_compensation = 0.25f;
    good.job.push_dtype = DTYPE_BF16;
    good.job.version_dtype = DTYPE_F16;
    good.job.validation_split = 0.1;
    optim_defaults(OPTIM_ADAM, &good.job.optim);
    for (int i = 0; i <= 10; i++) {
        struct net_join join = good, got;
        struct chunks *chunks = NULL;
        uint8_t *data;
        size_t n;
        char why[MESSAGE_WHY_BYTES] = "";
        if (i == 1)
            join.member = JOB_MAX_WORKERS;
        if (i == 2)
            join.incarnation = 0;
        if (i == 3)
            join.job.n_workers = JOB_MAX_WORKERS + 1;
        if (i == 4)
            join.job.optim.learning_rate = -1;
        if (i == 5)
            join.job.train_steps = -1;
        if (i == 6)
            join.job.aggregate = 3;
        if (i == 7)
            join.job.validation_split = 1;
        if (i == 8)
            join.job.validation_split = (double)NAN;
        join.job.label_smoothing = i == 9 ? 1 : i == 10 ? NAN : 0.25f;
        assert_int_equal(message_join_pack(&join, &data, &n), ST_OK);
        enum status st = CAPTURE(message_join_unpack(data, n, &got, &chunks, why));
        free(data);
        assert_int_equal(st, i == 0 ? ST_OK : ST_INVALID);
        assert_int_equal(why[0] != 0, i != 0);
        if (i > 0)
            continue;
        assert_int_equal(got.member, 1);
        assert_int_equal(got.job.optim.kind, OPTIM_ADAM);
        assert_true(got.job.optim.beta2 == good.job.optim.beta2);
        assert_int_equal(got.job.seed, 3);
        assert_int_equal(got.job.sync_mode, JOB_SSP);
        assert_int_equal(got.job.staleness, 4);
        assert_true(got.job.delay_compensation == 0.25f);
        assert_true(got.job.validation_split == 0.1);
        assert_true(got.job.label_smoothing == 0.25f);
        assert_int_equal(got.job.aggregate, 2); /* 0 on the wire means all (two) workers */
        assert_int_equal(got.job.push_dtype, DTYPE_BF16);
        assert_int_equal(got.job.version_dtype, DTYPE_F16);
        assert_int_equal(chunks_compare(f->chunks, got.chunks, why, sizeof why), ST_OK);
        chunks_destroy(chunks);
        message_join_free(&got);
    }
}

/* A JoinReply has an invalid list of servers. The reader frees only memory that it has
 * allocated. */
static void replies_out_of_bounds_are_refused(void **state)
{
    static const uint8_t no_address[] = {0x6a, 1, 0x1a}; /* server_address: one odd byte */
    struct net_join_reply reply;
    char why[MESSAGE_WHY_BYTES] = "";
    memset(&reply, 0x5a, sizeof reply);
    assert_int_equal(message_reply_unpack(no_address, sizeof no_address, &reply, why), ST_INVALID);
    assert_non_null(strstr(why, "list of servers"));
    assert_int_equal(reply.n_chunks, 0x5a5a5a5a);
}

/* A message whose few bytes would decode to far more memory is refused. */
static void joins_that_need_much_memory_are_refused(void **state)
{
    size_t n_params = 2000000, at = 0;
    uint8_t *data = malloc(2 * n_params + 16);
    struct net_join join;
    struct chunks *chunks = NULL;
    char why[MESSAGE_WHY_BYTES];
    data[at++] = 0x22; /* job */
    uint64_t n = 2 * n_params;
    for (; n >= 0x80; n >>= 7)
        data[at++] = (uint8_t)(n | 0x80);
    data[at++] = (uint8_t)n;
    for (size_t i = 0; i < n_params; i++) {
        data[at++] = 0x3a; /* an empty parameter */
        data[at++] = 0;
    }
    assert_int_equal(message_join_unpack(data, at, &join, &chunks, why), ST_PROTOCOL);
    free(data);
}

static size_t one_pull(uint8_t *out, uint32_t chunk)
{
    struct net_frame_head head = {1, 0, 99};
    struct net_piece piece = {.kind = PIECE_PULL, .chunk = chunk};
    size_t n = frame_encode_head(&head, out);
    return n + frame_encode_piece_head(&piece, 0, out + n);
}

static enum status last_piece(void *ctx, const struct net_frame_head *head,
                              const struct net_piece *piece)
{
    *(struct net_piece *)ctx = *piece;
    return ST_OK;
}

static void assert_refused(struct raw *r, const char *reason)
{
    struct net_span span = {r->reply, r->n_reply};
    struct net_frame_head head;
    struct net_piece piece;
    char why[128];
    assert_true(raw_recv(r));
    span.n = r->n_reply;
    assert_int_equal(frame_decode(&span, 1, &head, last_piece, &piece, why, sizeof why), ST_OK);
    assert_int_equal(piece.kind, PIECE_REFUSED);
    if (!strstr(piece.why, reason))
        fail_msg("reason '%s', not '%s'", piece.why, reason);
    assert_false(raw_recv(r));
    assert_int_equal(raw_close(r), GRPC_STATUS_INVALID_ARGUMENT);
}

/* The server ends a stream with invalid data. A stream that was open before stays open. */
static void invalid_frames_end_only_their_stream(void **state)
{
    struct fixture *f = *state;
    static struct raw good, bad;
    uint8_t frame[128];
    const char *method = "/weir.v1.Weir/Exchange";
    tiny_fill(&f->tiny);
    raw_open(&good, f->tiny.port, method);
    assert_true(raw_send(&good, frame, one_pull(frame, 0)));
    assert_true(raw_recv(&good));

    raw_open(&bad, f->tiny.port, method);
    capture_begin();
    raw_send(&bad, "\x22\x7f\x01", 3);
    assert_refused(&bad, "only 1 bytes are left");
    capture_end();
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "from ipv4:127.0.0.1:"));

    raw_open(&bad, f->tiny.port, method);
    raw_send(&bad, frame, one_pull(frame, 1000));
    assert_refused(&bad, "no such chunk");

    uint8_t *large = calloc(1, FRAME_MAX_BYTES + 1);
    raw_open(&bad, f->tiny.port, method);
    raw_send(&bad, large, FRAME_MAX_BYTES + 1);
    assert_false(raw_recv(&bad));
    assert_int_equal(raw_close(&bad), GRPC_STATUS_RESOURCE_EXHAUSTED);
    free(large);

    assert_true(raw_send(&good, frame, one_pull(frame, 0)));
    assert_true(raw_recv(&good));
    raw_half_close(&good);
    assert_false(raw_recv(&good));
    assert_int_equal(raw_close(&good), GRPC_STATUS_OK);
    tiny_await(&f->tiny, &f->tiny.n_closed, 4);
}

/* A client that has half-closed its stream still receives the answers to its requests. */
static void half_closed_stream_gets_its_answers(void **state)
{
    struct fixture *f = *state;
    static struct raw r;
    uint8_t frame[128 * 20];
    size_t n = 0;
    tiny_fill(&f->tiny);
    raw_open(&r, f->tiny.port, "/weir.v1.Weir/Exchange");
    for (int i = 0; i < 10; i++)
        n += one_pull(frame + n, 0);
    assert_true(raw_send(&r, frame, n));
    raw_half_close(&r);
    size_t bytes = 0;
    while (raw_recv(&r))
        bytes += r.n_reply;
    assert_in_range(bytes, 10 * 4096, 10 * (4096 + 200));
    assert_int_equal(raw_close(&r), GRPC_STATUS_OK);
}

static void random_bytes_do_not_stop_server(void **state)
{
    struct fixture *f = *state;
    static struct raw r;
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->tiny.port)};
    inet_pton(AF_INET, "127.0.0.1", &sa.sin_addr);
    uint8_t noise[5000];
    for (unsigned i = 0; i < 20; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (uint8_t)((k * 2654435761u + i * 40503u) >> 13);
        if (i % 2) /* behind HTTP/2's preface */
            memcpy(noise, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
        (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL);
        close(fd);
    }
    assert_int_equal(raw_unary(&r, f->tiny.port, "/grpc.health.v1.Health/Check", "", 0),
                     GRPC_STATUS_OK);
}

/* When the server stops, it ends open streams and watches without the help of their clients. */
static void stop_ends_streams_and_watches(void **state)
{
    struct fixture *f = *state;
    static struct raw stream, watch;
    uint8_t frame[128];
    tiny_set(&f->tiny, &f->tiny.hold, 1);
    raw_open(&stream, f->tiny.port, "/weir.v1.Weir/Exchange");
    raw_send(&stream, frame, one_pull(frame, 1));
    tiny_await(&f->tiny, &f->tiny.n_piece, 1);
    raw_open(&watch, f->tiny.port, "/grpc.health.v1.Health/Watch");
    raw_send(&watch, "", 0);
    raw_half_close(&watch);
    assert_true(raw_recv(&watch));
    net_server_stop(f->tiny.server, 10000);
    assert_int_equal(tiny_get(&f->tiny, &f->tiny.n_closed), 1);
    assert_false(raw_recv(&stream));
    assert_int_equal(raw_close(&stream), GRPC_STATUS_UNAVAILABLE);
    assert_false(raw_recv(&watch));
    assert_int_not_equal(raw_close(&watch), GRPC_STATUS_OK);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_INFO);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(invalid_addresses_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(health_checks_are_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(invalid_requests_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(joins_out_of_bounds_are_refused, set_up, tear_down),
        cmocka_unit_test(replies_out_of_bounds_are_refused),
        cmocka_unit_test_setup_teardown(joins_that_need_much_memory_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(invalid_frames_end_only_their_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(half_closed_stream_gets_its_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(random_bytes_do_not_stop_server, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stop_ends_streams_and_watches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refusals_write_few_lines, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
