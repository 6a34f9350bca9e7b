/* tests/net_exchange_test.c - the exchange client against small servers in the same process: first
 * values, steps, broken streams, and servers that start late, refuse a member, or send invalid
 * data. */
#include "base/clock.h"
#include "base/log.h"
#include "net/exchange/averages.h"
#include "net/exchange/exchange.h"
#include "net/exchange/waits.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/net_tiny.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct rig {
    struct tiny_member m;
    struct tiny tiny[2];
    int n;
    char addr[2][32], *addrs[2];
    struct hosts hosts;
    struct segment *segment; /* segment with the gradient; NULL: none */
};

static void rig_open_with(struct rig *r, int n_servers, int shared, int event_fd)
{
    memset(r, 0, sizeof *r);
    tiny_member_init(&r->m);
    r->n = n_servers;
    for (int i = 0; i < n_servers; i++) {
        tiny_init(&r->tiny[i], r->m.chunks, i, n_servers);
        if (shared)
            tiny_share(&r->tiny[i]);
        tiny_start(&r->tiny[i]);
        snprintf(r->addr[i], sizeof r->addr[i], "127.0.0.1:%d", r->tiny[i].port);
        r->addrs[i] = r->addr[i];
    }
    r->hosts = (struct hosts){n_servers, r->addrs};
    struct net_exchange_config cfg = {.ps_hosts = &r->hosts,
                                      .join = {.incarnation = 99, .chunks = r->m.chunks},
                                      .params = r->m.params,
                                      .wait_line_ms = 200,
                                      .shared_memory = shared,
                                      .event_fd = event_fd};
    cfg.join.job = (struct net_job){.n_workers = 1, .train_steps = 10};
    optim_defaults(OPTIM_SGD, &cfg.join.job.optim);
    assert_int_equal(net_exchange_create(&cfg, &r->m.x), ST_OK);
}

static void rig_open(struct rig *r, int n_servers)
{
    rig_open_with(r, n_servers, 0, 0);
}

/* Opens a rig whose payloads pass by reference in both directions: the gradient lies in the segment
 * of the exchange. */
static void rig_open_shared(struct rig *r, int n_servers)
{
    rig_open_with(r, n_servers, 1, 0);
    r->segment = net_exchange_gradients(r->m.x, DTYPE_F32);
    assert_non_null(r->segment);
    float *gradient = segment_data(r->segment);
    assert_ptr_equal((uintptr_t)gradient % 64, 0);
    memcpy(gradient, r->m.gradient, MODEL_ELEMS * sizeof(float));
    free(r->m.gradient);
    r->m.gradient = gradient;
}

static void rig_close(struct rig *r)
{
    float *shared = r->segment ? r->m.gradient : NULL;
    net_exchange_destroy(r->m.x);
    if (shared) {
        shared[0] = 0; /* the caller still owns the segment */
        r->m.gradient = NULL;
    }
    segment_unref(r->segment);
    for (int i = 0; i < r->n; i++)
        tiny_free(&r->tiny[i]);
    tiny_member_free(&r->m);
}

/* The servers roll back while pushes are in flight or between steps, and in one case the second
 * server rolls back later than the first. The exchange stops, and restarts at the servers' step. */
static void rollback_restarts_exchange(void **state)
{
    for (int n = 1; n <= 2; n++) {
        struct rig r;
        struct net_start start;
        rig_open(&r, n);
        assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
        tiny_step_on(&r.m, 0, 6);
        for (int i = 0; i < n; i++)
            tiny_go_back(&r.tiny[i], 2);
        for (int i = 0; i < MODEL_CHUNKS;
             i++) { /* the first chunk is answered before the last is pushed */
            enum status st =
                net_exchange_push(r.m.x, i, 6, r.m.gradient + r.m.chunks->chunks[i].first, 1);
            assert_true(st == ST_OK || st == ST_REBASED);
        }
        assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 7), ST_REBASED);
        assert_int_equal(net_exchange_push(r.m.x, MODEL_CHUNKS - 1, 6, r.m.gradient, 1),
                         ST_REBASED);
        assert_int_equal(net_exchange_pull(r.m.x, MODEL_CHUNKS - 1, 6), ST_REBASED);
        tiny_assert_params(&r.m, 6); /* parameters do not change before the start */
        assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
        assert_int_equal(start.step, 2);
        tiny_assert_params(&r.m, 2);
        tiny_step_on(&r.m, 2, 4);
        tiny_go_back(&r.tiny[0], 1);
        tiny_push_all(&r.m, 4);
        assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 5), ST_REBASED);
        if (n > 1)
            tiny_go_back(&r.tiny[1], 1);
        assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
        assert_int_equal(start.step, 1);
        tiny_step_on(&r.m, 1, 10);
        struct net_exchange_stats stats;
        net_exchange_stats(r.m.x, &stats);
        assert_int_equal(stats.duplicate + stats.stale, 0);
        rig_close(&r);
    }
}

static void *go_back_late(void *arg)
{
    struct tiny *t = arg;
    int seen = tiny_get(t, &t->n_join);
    tiny_await(t, &t->n_join, seen + 3); /* the worker joined before the server had rolled back */
    tiny_go_back(t, 3);
    return NULL;
}

/* ps 1 enters the generation later than ps 0: the member waits for ps 1. */
static void late_rollback_of_one_server_is_awaited(void **state)
{
    struct rig r;
    pthread_t late;
    struct net_start start;
    rig_open(&r, 2);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 5);
    tiny_go_back(&r.tiny[0], 3);
    tiny_push_all(&r.m, 5);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 6), ST_REBASED);
    assert_int_equal(pthread_create(&late, NULL, go_back_late, &r.tiny[1]), 0);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    assert_int_equal(start.step, 3);
    tiny_step_on(&r.m, 3, 8);
    pthread_join(late, NULL);
    rig_close(&r);
}

static void steps_advance_all_chunks(void **state)
{
    for (int n = 1; n <= 2; n++) {
        struct rig r;
        struct net_start start = {.step = -5};
        rig_open(&r, n);
        assert_int_equal(net_exchange_push(r.m.x, 0, 0, r.m.gradient, 1), ST_BUSY);
        assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
        assert_int_equal(start.step, 0);
        for (int64_t s = 0; s < 10; s++) {
            tiny_push_all(&r.m, s);
            assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, s + 1), ST_OK);
            assert_int_equal(net_exchange_version(r.m.x, MODEL_CHUNKS - 1), s + 1);
            tiny_assert_params(&r.m, (float)(s + 1));
        }
        memset(r.m.params, 0, MODEL_ELEMS * sizeof(float));
        for (int i = 0; i < MODEL_CHUNKS; i++)
            assert_int_equal(net_exchange_pull(r.m.x, i, 10), ST_OK);
        assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 10), ST_OK);
        tiny_assert_params(&r.m, 10);
        assert_int_equal(net_exchange_push(r.m.x, MODEL_CHUNKS, 0, r.m.gradient, 1), ST_RANGE);
        assert_int_equal(net_exchange_wait(r.m.x, 1, MODEL_CHUNKS, 0), ST_RANGE);
        struct net_exchange_stats stats;
        net_exchange_stats(r.m.x, &stats);
        assert_int_equal(stats.applied, 10 * MODEL_CHUNKS);
        assert_int_equal(stats.duplicate + stats.stale + stats.reconnects, 0);
        assert_int_equal(stats.sent_bytes, 11 * MODEL_ELEMS * sizeof(float));
        assert_int_equal(stats.received_bytes, 12 * MODEL_ELEMS * sizeof(float));
        assert_int_equal(net_exchange_leave(r.m.x, 1, 5000), ST_OK);
        for (int i = 0; i < n; i++)
            assert_int_equal(tiny_get(&r.tiny[i], &r.tiny[i].n_leave), 1);
        rig_close(&r);
    }
}

/* The stream breaks while every answer is pending: all requests are sent again, and the server
 * counts each request once. */
static void broken_stream_resends_each_request_once(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 2);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    struct tiny *t = &r.tiny[1];
    tiny_set(t, &t->hold, 1);
    tiny_push_all(&r.m, 0);
    tiny_await(t, &t->n_push, MODEL_CHUNKS / 2);
    tiny_stop(t);
    t->hold = 0;
    tiny_start(t);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1), ST_OK);
    tiny_assert_params(&r.m, 1);
    assert_int_equal(tiny_get(t, &t->n_duplicate), MODEL_CHUNKS / 2);
    struct net_exchange_stats stats;
    net_exchange_stats(r.m.x, &stats);
    assert_int_equal(stats.applied, MODEL_CHUNKS / 2);
    assert_int_equal(stats.duplicate, MODEL_CHUNKS / 2);
    assert_int_equal(stats.reconnects, 1);
    tiny_push_all(&r.m, 1);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 2), ST_OK);
    tiny_assert_params(&r.m, 2);
    rig_close(&r);
}

/* A wait ends at its deadline. event_fd then signals when another wait may succeed. */
static void event_fd_signals_ready_waits(void **state)
{
    struct rig r;
    struct net_start start;
    uint64_t n;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    assert_true(fd > 0);
    rig_open_with(&r, 1, 0, fd);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    struct tiny *t = &r.tiny[0];
    tiny_set(t, &t->hold, 1);
    tiny_push_all(&r.m, 0);
    tiny_await(t, &t->n_push, MODEL_CHUNKS);
    (void)!read(fd, &n, sizeof n);
    int64_t soon = clock_deadline_ns(20);
    assert_int_equal(net_exchange_wait_until(r.m.x, 0, MODEL_CHUNKS, 1, 0), ST_DEADLINE);
    assert_int_equal(net_exchange_wait_until(r.m.x, 0, MODEL_CHUNKS, 1, soon), ST_DEADLINE);
    assert_true(clock_now_ns() >= soon);
    tiny_stop(t); /* the connection is lost, and requests are sent again */
    t->hold = 0;
    tiny_start(t);
    while (net_exchange_wait_until(r.m.x, 0, MODEL_CHUNKS, 1, 0) == ST_DEADLINE) {
        assert_int_equal(poll(&readable, 1, 20000), 1);
        assert_int_equal(read(fd, &n, sizeof n), sizeof n);
    }
    tiny_assert_params(&r.m, 1);
    net_exchange_cancel(r.m.x);
    assert_int_equal(poll(&readable, 1, 20000), 1);
    assert_int_equal(net_exchange_wait_until(r.m.x, 0, MODEL_CHUNKS, 2, 0), ST_CANCELLED);
    rig_close(&r);
    close(fd);
}

/* A wait for any chunk returns each chunk that is ready once, and waits for all other chunks. */
static void any_ready_chunk_ends_a_wait(void **state)
{
    struct rig r;
    struct net_start start;
    uint8_t skip[MODEL_CHUNKS] = {0};
    int chunk, seen = -1;
    rig_open(&r, 1);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_push_all(&r.m, 0);
    for (int k = 0; k < MODEL_CHUNKS; k++) {
        assert_int_equal(net_exchange_wait_any(r.m.x, skip, 1, &chunk), ST_OK);
        assert_in_range(chunk, 0, MODEL_CHUNKS - 1);
        assert_false(skip[chunk]);
        skip[chunk] = 1;
    }
    tiny_assert_params(&r.m, 1);
    for (chunk = 0; chunk < MODEL_CHUNKS; chunk += 2) { /* only these get version 2 */
        skip[chunk] = 0;
        const float *from = r.m.gradient + r.m.chunks->chunks[chunk].first;
        assert_int_equal(net_exchange_push(r.m.x, chunk, 1, from, 1), ST_OK);
    }
    skip[1] = 0;
    for (int k = 0; k < (MODEL_CHUNKS + 1) / 2; k++) {
        assert_int_equal(net_exchange_wait_any(r.m.x, skip, 2, &seen), ST_OK);
        assert_int_equal(seen % 2, 0);
        skip[seen] = 1;
    }
    net_exchange_cancel(r.m.x);
    assert_int_equal(net_exchange_wait_any(r.m.x, skip, 2, &seen), ST_CANCELLED);
    rig_close(&r);
}

/* A damaged payload is requested again and never reaches the parameters. */
static void damaged_payload_is_requested_again(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 1);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_set(&r.tiny[0], &r.tiny[0].bad_crc, 1);
    tiny_push_all(&r.m, 0);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1), ST_OK);
    tiny_assert_params(&r.m, 1);
    struct net_exchange_stats stats;
    net_exchange_stats(r.m.x, &stats);
    assert_int_equal(stats.reconnects, 1);
    assert_true(stats.duplicate > 0);
    rig_close(&r);
}

/* Averages do not change the parameters and their versions, also if the server has a newer version.
 * A damaged answer is requested again. */
static void averages_leave_params_and_versions(void **state)
{
    struct rig r;
    struct net_start start;
    float out[MODEL_ELEMS] = {0};
    rig_open(&r, 2);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 3);
    for (int i = 0; i < 2; i++) {
        pthread_mutex_lock(&r.tiny[i].lock);
        for (int c = i; c < MODEL_CHUNKS; c += 2)
            r.tiny[i].version[c] = 7;
        pthread_mutex_unlock(&r.tiny[i].lock);
    }
    for (int i = 0; i < MODEL_ELEMS; i++)
        r.m.params[i] = -1;
    tiny_set(&r.tiny[1], &r.tiny[1].bad_crc, 1);
    assert_int_equal(net_exchange_averages(r.m.x, out), ST_OK);
    for (int i = 0; i < MODEL_ELEMS; i++) {
        assert_true(out[i] == (float)i + 3);
        assert_true(r.m.params[i] == -1);
    }
    for (int c = 0; c < MODEL_CHUNKS; c++) {
        assert_int_equal(net_exchange_version(r.m.x, c), 3);
        assert_false(net_exchange_is_busy(r.m.x, c));
    }
    struct net_exchange_stats stats;
    net_exchange_stats(r.m.x, &stats);
    assert_int_equal(stats.reconnects, 1);
    for (int i = 0; i < 2; i++)
        tiny_go_back(&r.tiny[i], 2);
    assert_int_equal(net_exchange_averages(r.m.x, out), ST_REBASED);
    rig_close(&r);
}

static void fatal_answers_end_the_exchange(void **state)
{
    static const struct {
        enum piece_kind kind;
        enum status st;
    } cases[] = {{PIECE_REFUSED, ST_REFUSED},
                 {PIECE_WRONG_SHARD, ST_PROTOCOL},
                 {PIECE_PUSH, ST_PROTOCOL},
                 {PIECE_NONE, ST_PROTOCOL}}; /* NONE: a payload that is too short */
    for (int i = 0; i < 4; i++) {
        struct rig r;
        struct net_start start;
        rig_open(&r, 1);
        assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
        tiny_set(&r.tiny[0], &r.tiny[0].kind, (int)cases[i].kind);
        tiny_set(&r.tiny[0], &r.tiny[0].bad_length, cases[i].kind == PIECE_NONE);
        capture_begin();
        enum status pushed = net_exchange_push(r.m.x, 3, 0, r.m.gradient, 1);
        enum status st = net_exchange_wait(r.m.x, 3, 1, 1);
        capture_end();
        assert_int_equal(pushed, ST_OK);
        assert_int_equal(st, cases[i].st);
        assert_int_equal(capture_lines(), 1);
        assert_int_equal(net_exchange_push(r.m.x, 4, 0, r.m.gradient, 1), cases[i].st);
        rig_close(&r);
    }
}

static void refused_join_ends_start(void **state)
{
    struct rig r;
    struct net_start start = {.step = -5};
    rig_open(&r, 1);
    tiny_set(&r.tiny[0], &r.tiny[0].answer, JOIN_REFUSED);
    enum status st = CAPTURE(net_exchange_start(r.m.x, &start));
    assert_int_equal(st, ST_REFUSED);
    assert_int_equal(start.step, -5);
    assert_non_null(strstr(capture_text, "refused this worker: tiny says 2"));
    assert_int_equal(capture_lines(), 1);
    rig_close(&r);
}

/* The server is busy with another job at first. Later it stops, and is back. */
static void start_waits_for_busy_server(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 1);
    tiny_set(&r.tiny[0], &r.tiny[0].retries, 40);
    enum status st = CAPTURE(net_exchange_start(r.m.x, &start));
    assert_int_equal(st, ST_OK);
    assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].n_join), 41);
    assert_non_null(strstr(capture_text, "waiting for ps:0 (127.0.0.1:"));
    assert_non_null(strstr(capture_text, "tiny says 3"));
    tiny_stop(&r.tiny[0]);
    tiny_push_all(&r.m, 0);
    tiny_start(&r.tiny[0]);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1), ST_OK);
    tiny_assert_params(&r.m, 1);
    rig_close(&r);
}

/* Cancels the exchange when `count`, a counter of server 0, has reached n. */
struct cancel {
    struct rig *r;
    const int *count;
    int n;
};

static void *cancel_late(void *arg)
{
    struct cancel *c = arg;
    tiny_await(&c->r->tiny[0], c->count, c->n);
    net_exchange_cancel(c->r->m.x);
    return NULL;
}

static void cancel_ends_each_wait(void **state)
{
    struct rig r;
    struct net_start start;
    pthread_t thread;
    rig_open(&r, 2);
    tiny_stop(&r.tiny[1]); /* net_exchange_start() would wait for this server for ever */
    struct cancel joined = {&r, &r.tiny[0].n_join, 1};
    pthread_create(&thread, NULL, cancel_late, &joined);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_CANCELLED);
    pthread_join(thread, NULL);
    rig_close(&r);

    rig_open(&r, 1);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_set(&r.tiny[0], &r.tiny[0].hold, 1);
    tiny_push_all(&r.m, 0);
    struct cancel pushed = {&r, &r.tiny[0].n_push, MODEL_CHUNKS};
    pthread_create(&thread, NULL, cancel_late, &pushed);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1), ST_CANCELLED);
    pthread_join(thread, NULL);
    assert_int_equal(net_exchange_leave(r.m.x, 0, 5000), ST_OK);
    assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].n_leave), 1);
    rig_close(&r);
}

/* A server that restarted without its parameters cannot continue this job. */
static void lost_parameters_end_the_exchange(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 1);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_stop(&r.tiny[0]);
    for (int i = 0; i < MODEL_CHUNKS; i++)
        r.tiny[0].version[i] = -1;
    tiny_start(&r.tiny[0]);
    tiny_push_all(&r.m, 0);
    assert_int_equal(CAPTURE(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1)), ST_UNAVAILABLE);
    assert_non_null(strstr(capture_text, "has lost the parameters"));
    rig_close(&r);
}

static void step_all(struct rig *r, int64_t s)
{
    tiny_push_all(&r->m, s);
    assert_int_equal(net_exchange_wait(r->m.x, 0, MODEL_CHUNKS, s + 1), ST_OK);
    tiny_assert_params(&r->m, (float)(s + 1));
}

static uint64_t shared_bytes(struct rig *r)
{
    struct net_exchange_stats stats;
    net_exchange_stats(r->m.x, &stats);
    return stats.shared_bytes;
}

static void shared_payloads_pass_by_reference(void **state)
{
    for (int n = 1; n <= 2; n++) {
        struct rig r;
        struct net_start start;
        rig_open_shared(&r, n);
        assert_int_equal(CAPTURE(net_exchange_start(r.m.x, &start)), ST_OK);
        assert_int_equal(capture_lines(), n);
        assert_non_null(
            strstr(capture_text, ") is on this host: payloads are sent through shared memory"));
        for (int64_t s = 0; s < 10; s++)
            step_all(&r, s);
        /* All payloads are shared except the first values, which a member sends as copies. */
        assert_int_equal(shared_bytes(&r), 21 * MODEL_ELEMS * sizeof(float));
        rig_close(&r);
    }
}

/* Another process requests the member's place, and is refused. The member's segment stays
 * mapped. */
static void refused_join_keeps_shared_memory(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open_shared(&r, 1);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    float *params = malloc(MODEL_ELEMS * sizeof *params);
    struct net_exchange_config cfg = {.ps_hosts = &r.hosts,
                                      .join = {.incarnation = 100, .chunks = r.m.chunks},
                                      .params = params,
                                      .shared_memory = 1};
    struct net_exchange *intruder;
    cfg.join.job = (struct net_job){.n_workers = 1, .train_steps = 10};
    optim_defaults(OPTIM_SGD, &cfg.join.job.optim);
    tiny_set(&r.tiny[0], &r.tiny[0].answer, JOIN_REFUSED);
    assert_int_equal(net_exchange_create(&cfg, &intruder), ST_OK);
    assert_int_equal(CAPTURE(net_exchange_start(intruder, &start)), ST_REFUSED);
    net_exchange_destroy(intruder);
    tiny_set(&r.tiny[0], &r.tiny[0].answer, JOIN_WELCOME);
    step_all(&r, 0);
    struct net_exchange_stats stats;
    net_exchange_stats(r.m.x, &stats);
    assert_int_equal(stats.reconnects, 0);
    free(params);
    rig_close(&r);
}

/* Loses ps 0 while the member leaves and server 1 has not answered. */
static void lose_ps0_while_leaving(struct rig *r)
{
    struct net_start start;
    assert_int_equal(net_exchange_start(r->m.x, &start), ST_OK);
    tiny_set(&r->tiny[1], &r->tiny[1].hold, 1);
    assert_int_equal(net_exchange_leave_soon(r->m.x, 5000), ST_OK);
    tiny_push_all(&r->m, 0);
    tiny_await(&r->tiny[1], &r->tiny[1].n_push, MODEL_CHUNKS / 2);
    tiny_stop(&r->tiny[0]);
}

/* The member does not wait for server 1, which may still read the gradient that the member now
 * overwrites. The server reads the gradient of the push. */
static void leaving_member_keeps_pushed_gradients(void **state)
{
    struct rig r;
    struct net_start start;
    struct segment_name name;
    struct segment *server;
    char why[SEGMENT_WHY_BYTES];
    rig_open_shared(&r, 2);
    segment_name_of(r.segment, &name);
    assert_int_equal(segment_open(&name, &server, why), ST_OK);
    const float *pushed = segment_at(server, 0, MODEL_ELEMS * sizeof *pushed);
    lose_ps0_while_leaving(&r);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1), ST_REBASED);
    for (int i = 0; i < MODEL_ELEMS; i++) {
        assert_float_equal(r.m.gradient[i], 1, 0);
        r.m.gradient[i] = 2;
        assert_float_equal(pushed[i], 1, 0);
    }
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_CANCELLED);
    segment_unref(server);
    rig_close(&r);
}

/* Gradients outside the segment go by TCP, while versions still pass by reference. */
static void foreign_gradients_go_by_tcp(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open_with(&r, 1, 1, 0);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    step_all(&r, 0);
    assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].n_shared), 0);
    assert_int_equal(shared_bytes(&r), 2 * MODEL_ELEMS * sizeof(float));
    rig_close(&r);
}

/* A server restarts without shared memory, and receives the pending pushes again by TCP. After a
 * restart with shared memory it receives them by reference. */
static void restart_without_shared_memory_uses_tcp(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open_shared(&r, 1);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    step_all(&r, 0);
    struct segment *segment = r.tiny[0].segment;
    for (int64_t s = 1; s < 5; s++) {
        int before = tiny_get(&r.tiny[0], &r.tiny[0].n_push);
        tiny_set(&r.tiny[0], &r.tiny[0].hold, 1);
        tiny_push_all(&r.m, s);
        tiny_await(&r.tiny[0], &r.tiny[0].n_push, before + MODEL_CHUNKS);
        tiny_stop(&r.tiny[0]);
        r.tiny[0].hold = 0;
        r.tiny[0].segment = s % 2 ? NULL : segment;
        before = r.tiny[0].n_shared;
        tiny_start(&r.tiny[0]);
        assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, s + 1), ST_OK);
        tiny_assert_params(&r.m, (float)(s + 1));
        assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].n_shared) - before,
                         s % 2 ? 0 : MODEL_CHUNKS);
    }
    assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].n_duplicate), 4 * MODEL_CHUNKS);
    tiny_stop(&r.tiny[0]);
    r.tiny[0].segment = segment;
    rig_close(&r);
}

/* A server reuses a buffer while the client reads it: the client requests the chunk again. */
static void reused_buffer_is_requested_again(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open_shared(&r, 1);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_set(&r.tiny[0], &r.tiny[0].bad_stamp, 3);
    step_all(&r, 0);
    struct net_exchange_stats stats;
    net_exchange_stats(r.m.x, &stats);
    assert_in_range(stats.reconnects, 1, 3);
    rig_close(&r);
}

static void bad_shared_place_is_refused(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open_shared(&r, 1);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_set(&r.tiny[0], &r.tiny[0].bad_place, 1);
    capture_begin();
    tiny_push_all(&r.m, 0);
    enum status st = net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1);
    capture_end();
    assert_int_equal(st, ST_PROTOCOL);
    assert_non_null(strstr(capture_text, "that are outside its segment"));
    rig_close(&r);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_INFO);
    return RUN_TESTS(averages_leave_params_and_versions, rollback_restarts_exchange,
                     late_rollback_of_one_server_is_awaited, steps_advance_all_chunks,
                     broken_stream_resends_each_request_once, event_fd_signals_ready_waits,
                     any_ready_chunk_ends_a_wait, damaged_payload_is_requested_again,
                     fatal_answers_end_the_exchange, refused_join_ends_start,
                     start_waits_for_busy_server, cancel_ends_each_wait,
                     lost_parameters_end_the_exchange, refused_join_keeps_shared_memory,
                     leaving_member_keeps_pushed_gradients, shared_payloads_pass_by_reference,
                     foreign_gradients_go_by_tcp, restart_without_shared_memory_uses_tcp,
                     reused_buffer_is_requested_again, bad_shared_place_is_refused);
}
