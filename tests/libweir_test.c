/* tests/libweir_test.c - libweir by its public header: what it says to calls that are wrong, a
 * member alone, and one of small servers in the same process, whose job is held, goes back, refuses
 * and ends. */
#include "libweir/weir.h"
#include "tests/capture.h"
#include "tests/libweir_open.h"
#include "tests/net_tiny.h"
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void test_settings(void **state)
{
    static const struct {
        const char *name, *value, *word;
    } wrong[] = {
        {"rate", "1", "no setting 'rate'"},
        {"learning_rate", "fast", "'fast' is not a number"},
        {"learning_rate", "nan", "not a number"},
        {"learning_rate", "-2", "below -1"},
        {"train_steps", "0", "below 1"},
        {"train_steps", "1.5", "not a whole number"},
        {"train_steps", "99999999999999999999", "64 bits"},
        {"task_index", "-1", "below 0"},
        {"optimizer", "best", "none of sgd|momentum"},
        {"join", "maybe", "neither true nor false"},
        {"batch_size", "", "not a whole number"},
        {"data_checksum", "4294967296", "above"},
        {NULL, "1", "a name and a value"},
        {"seed", NULL, "a name and a value"},
    };
    struct weir *w;
    assert_int_equal(weir_open(&w), WEIR_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_error(w, weir_set(w, wrong[i].name, wrong[i].value), WEIR_E_INVALID, wrong[i].word);
    for (int i = 0; i < 2; i++) /* again: the last counts */
        assert_int_equal(weir_set(w, "ps_hosts", i ? "b:2" : "a:1"), WEIR_OK);
    weir_close(w);
    weir_close(NULL);
    assert_string_equal(weir_code_text(WEIR_OK), "ok");
    assert_string_not_equal(weir_code_text(WEIR_E_IO), weir_code_text(-100));
    for (int code = WEIR_E_INTERNAL; code <= WEIR_REBASED; code++)
        assert_string_not_equal(weir_code_text(code), weir_code_text(99));
}

/* A job that cannot be: said by weir_next, and the handle is over. */
static void test_impossible_jobs(void **state)
{
    static const struct {
        const char *settings[6][2];
        int code;
        const char *word;
    } jobs[] = {
        {{{"ps_hosts", "localhost:1"}}, WEIR_E_INVALID, "set n_workers"},
        {{{"ps_hosts", "localhost:1"}, {"n_workers", "2"}}, WEIR_E_INVALID, "task_index"},
        {{{"ps_hosts", "localhost:1"}, {"n_workers", "2"}, {"task_index", "2"}},
         WEIR_E_INVALID,
         "of the 2 workers"},
        {{{"ps_hosts", "localhost:1"}, {"n_workers", "3"}, {"worker_hosts", "a:1,b:1"}},
         WEIR_E_INVALID,
         "worker_hosts"},
        {{{"ps_hosts", "localhost"}}, WEIR_E_INVALID, "no port"},
        {{{"join", "true"}}, WEIR_E_INVALID, "ps_hosts"},
        {{{"wire_dtype", "fp8"}}, WEIR_E_INVALID, "wire_dtype"},
        {{{"lr_boundaries", "5,4"}, {"lr_schedule", "step"}}, WEIR_E_INVALID, "lr_boundaries"},
        {{{"staleness", "3"}}, WEIR_E_INVALID, "staleness"},
        {{{"sync_mode", "ssp"}}, WEIR_E_INVALID, "staleness"},
        {{{"clip_norm", "1"}}, WEIR_E_UNSUPPORTED, "clip_norm"},
        {{{"clip_norm", "1"}, {"clip_value", "1"}}, WEIR_E_INVALID, "clip_value"},
        {{{"own_local_steps", "true"}}, WEIR_E_INVALID, "local_steps"},
        {{{"ps_hosts", "localhost:1"},
          {"n_workers", "1"},
          {"local_steps", "4"},
          {"outer_optimizer", "sgd"},
          {"sync_mode", "async"}},
         WEIR_E_UNSUPPORTED,
         "without backup workers"},
        {{{"ps_hosts", "localhost:1"},
          {"n_workers", "1"},
          {"local_steps", "4"},
          {"optimizer", "adam"},
          {"sync_mode", "async"}},
         WEIR_E_UNSUPPORTED,
         "without backup workers"},
        {{{"chunk_bytes", "17"}}, WEIR_E_INVALID, "chunk"},
        {{{"replicas_to_aggregate", "2"}}, WEIR_E_INVALID, "aggregate"},
        {{{"batch_size", "1048576"}, {"local_steps", "65536"}}, WEIR_E_INVALID, "batch_size"},
        {{{"ps_hosts", "localhost:1"}, {"n_workers", "1"}, {"tls_cert", "/nowhere"}},
         WEIR_E_INVALID,
         "tls"},
        {{{"ps_hosts", "localhost:1"}, {"n_workers", "1"}, {"token_file", "/nowhere"}},
         WEIR_E_INVALID,
         "token_file"},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct weir *w = open_with(jobs[i].settings);
        struct weir_step s;
        int64_t dim = 4;
        assert_int_equal(weir_param(w, "a", WEIR_FLOAT32, 1, &dim, NULL), 0);
        assert_error(w, weir_next(w, -1, &s), jobs[i].code, jobs[i].word);
        assert_error(w, weir_next(w, -1, &s), jobs[i].code, jobs[i].word);
        assert_int_equal(weir_push(w, 0, NULL, 0), jobs[i].code);
        assert_int_equal(weir_leave_soon(w, 0), jobs[i].code);
        weir_close(w);
    }
}

static void test_params(void **state)
{
    const float one[1] = {1};
    const int64_t good[2] = {2, 3}, empty[2] = {2, 0}, huge[2] = {1 << 30, 1 << 30};
    struct weir_step s;
    struct weir *w;
    assert_int_equal(weir_open(&w), WEIR_OK);
    assert_error(w, weir_next(w, 0, &s), WEIR_E_INVALID, "no parameters");
    assert_error(w, weir_param(w, NULL, 0, 2, good, NULL), WEIR_E_INVALID, "no name");
    assert_error(w, weir_param(w, "a", 7, 2, good, NULL), WEIR_E_UNSUPPORTED, "dtype 7");
    assert_error(w, weir_param(w, "a", 0, -1, good, NULL), WEIR_E_INVALID, "dimensions");
    assert_error(w, weir_param(w, "a", 0, 7, good, NULL), WEIR_E_INVALID, "0 to 6");
    assert_error(w, weir_param(w, "a", 0, 2, NULL, NULL), WEIR_E_INVALID, "dimensions");
    assert_error(w, weir_param(w, "a", 0, 2, empty, NULL), WEIR_E_INVALID, "below 1");
    assert_error(w, weir_param(w, "a", 0, 2, huge, NULL), WEIR_E_INVALID, "too many");
    assert_int_equal(weir_param(w, "scalar", 0, 0, NULL, one), 0);
    assert_int_equal(weir_param(w, "a", 0, 2, good, NULL), 1);
    assert_error(w, weir_param_average(w, 2, 0.5), WEIR_E_INVALID, "no parameter 2");
    assert_error(w, weir_param_average(w, 0, 1.5), WEIR_E_INVALID, "keep");
    assert_error(w, weir_param_average(w, 0, NAN), WEIR_E_INVALID, "keep");
    assert_null(weir_values(w, 0));
    assert_null(weir_gradient(w, -1));
    assert_error(w, weir_push(w, 0, one, 1), WEIR_E_INVALID, "there is no step");
    assert_error(w, weir_wait(w, 0, 0), WEIR_E_INVALID, "there is no step");
    assert_error(w, weir_pull(w, 0), WEIR_E_INVALID, "there is no step");
    assert_error(w, weir_leave_soon(w, 0), WEIR_E_INVALID, "nothing to leave");
    assert_error(w, weir_leave_failed(w, "so"), WEIR_E_INVALID, "joined no servers");
    assert_error(w, weir_leave_failed(w, ""), WEIR_E_INVALID, "a line");
    assert_error(w, weir_next(w, -1, NULL), WEIR_E_INVALID, "no room");
    assert_error(w, weir_next_event(w, NULL), WEIR_E_INVALID, "no room");
    assert_int_equal(weir_sample(w, 0, 0), -1);
    assert_int_equal(weir_sample(w, 10, -1), -1);
    assert_int_equal(weir_param(w, "a", 0, 2, good, NULL), 2); /* the table of chunks sees it */
    assert_error(w, weir_next(w, -1, &s), WEIR_E_INVALID, "'a'");
    assert_error(w, weir_param(w, "b", 0, 2, good, NULL), WEIR_E_INVALID, "before the first");
    assert_error(w, weir_set(w, "seed", "1"), WEIR_E_INVALID, "before the first");
    assert_error(w, weir_fd(w), WEIR_E_INVALID, "before the first");
    weir_close(w);
}

/* By sgd: two small parameters in one chunk, a large one in several, an average, a frozen one. */
static void test_alone(void **state)
{
    enum { LARGE = 3000, STEPS = 3 };
    static const char *const settings[][2] = {{"optimizer", "sgd"},    {"learning_rate", "0.5"},
                                              {"train_steps", "3"},    {"batch_size", "4"},
                                              {"chunk_bytes", "4096"}, {NULL, NULL}};
    static float large[LARGE];
    const int64_t two = 2, n = LARGE;
    const float first[2] = {1, 2}, g[2] = {1, -1}, mean[2] = {8, 8};
    struct weir *w = open_with(settings);
    struct weir_step s;
    assert_int_equal(weir_param(w, "a", 0, 1, &two, first), 0);
    assert_int_equal(weir_param(w, "b", 0, 1, &two, first), 1);
    assert_int_equal(weir_param(w, "large", 0, 1, &n, NULL), 2);
    assert_int_equal(weir_param(w, "mean", 0, 1, &two, NULL), 3);
    assert_int_equal(weir_param(w, "frozen", 0, 1, &two, first), 4);
    assert_int_equal(weir_param_average(w, 3, 0.5), WEIR_OK);
    assert_int_equal(weir_param_average(w, 4, 1), WEIR_OK);
    for (int i = 0; i < LARGE; i++)
        large[i] = (float)i;
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
        assert_int_equal(s.step, step);
        assert_int_equal(s.train_steps, STEPS);
        assert_int_equal(s.position, 4 * step);
        assert_int_equal(s.n_samples, 4);
        assert_int_equal(s.stride, 1);
        assert_int_equal(s.n_members, 1);
        assert_int_equal(s.began, step == 0);
        assert_int_equal(weir_push(w, 0, g, 4), WEIR_OK);
        assert_error(w, weir_push(w, 0, g, 4), WEIR_E_INVALID, "pushed twice");
        assert_error(w, weir_wait(w, 0, -1), WEIR_E_INVALID, "together with 'b'");
        assert_error(w, weir_next(w, -1, &s), WEIR_E_INVALID, "'b' was not pushed at step");
        assert_error(w, weir_push(w, 1, NULL, 4), WEIR_E_INVALID, "nothing is pushed");
        assert_error(w, weir_push(w, 1, g, -1), WEIR_E_INVALID, "samples");
        assert_error(w, weir_push(w, 1, g, NAN), WEIR_E_INVALID, "samples");
        assert_error(w, weir_push(w, 9, g, 1), WEIR_E_INVALID, "no parameter 9");
        assert_error(w, weir_push_values(w, 1, g, 4), WEIR_E_INVALID, "own_local_steps");
        memcpy(weir_gradient(w, 1), g, sizeof g);
        assert_int_equal(weir_push(w, 1, weir_gradient(w, 1), 4), WEIR_OK);
        assert_int_equal(weir_push(w, 2, large, 4), WEIR_OK);
        assert_int_equal(weir_push(w, 3, mean, 4), WEIR_OK);
        assert_int_equal(weir_push(w, 4, NULL, 0), WEIR_OK);
        assert_int_equal(weir_wait(w, 2, -1), WEIR_OK);
    }
    assert_int_equal(weir_next(w, -1, &s), WEIR_DONE);
    assert_int_equal(weir_next(w, 0, &s), WEIR_DONE);
    assert_error(w, weir_push(w, 0, g, 4), WEIR_E_INVALID, "no step");
    for (int p = 0; p < 2; p++) {
        assert_true(weir_values(w, p)[0] == 1 - 0.5f * STEPS);
        assert_true(weir_values(w, p)[1] == 2 + 0.5f * STEPS);
    }
    for (int i = 0; i < LARGE; i++)
        assert_true(weir_values(w, 2)[i] == -0.5f * STEPS * (float)i);
    assert_true(weir_values(w, 3)[1] == 7); /* 0, 4, 6, 7 */
    assert_memory_equal(weir_values(w, 4), first, sizeof first);
    weir_close(w);
}

/* A handle whose one server is in this process; the model is tiny's. */
struct rig {
    struct tiny_member m;
    struct tiny tiny;
    struct weir *w;
    int fd;
};

static void rig_open(struct rig *r, const char *const (*more)[2])
{
    static const char *const settings[][2] = {{"n_workers", "1"},   {"chunk_bytes", "4096"},
                                              {"optimizer", "sgd"}, {"train_steps", "10"},
                                              {"batch_size", "3"},  {NULL, NULL}};
    const int64_t n = MODEL_ELEMS;
    char addr[32];
    tiny_member_init(&r->m);
    tiny_init(&r->tiny, r->m.chunks, 0, 1);
    tiny_start(&r->tiny);
    snprintf(addr, sizeof addr, "127.0.0.1:%d", r->tiny.port);
    r->w = open_with(settings);
    assert_int_equal(weir_set(r->w, "ps_hosts", addr), WEIR_OK);
    for (; more && (*more)[0]; more++)
        assert_int_equal(weir_set(r->w, (*more)[0], (*more)[1]), WEIR_OK);
    assert_int_equal(
        weir_param(r->w, r->m.chunks->params[0].name, WEIR_FLOAT32, 1, &n, r->m.params), 0);
    r->fd = weir_fd(r->w);
    assert_true(r->fd > 2);
    assert_int_equal(weir_fd(r->w), r->fd);
}

static void rig_close(struct rig *r)
{
    weir_close(r->w);
    tiny_free(&r->tiny);
    tiny_member_free(&r->m);
}

static void rig_step(struct rig *r, int64_t step)
{
    struct weir_step s;
    assert_int_equal(weir_next(r->w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, step);
    assert_int_equal(weir_push(r->w, 0, r->m.gradient, 3), WEIR_OK);
}

static void rig_assert_values(struct rig *r, float added)
{
    const float *v = weir_values(r->w, 0);
    for (int i = 0; i < MODEL_ELEMS; i++)
        assert_true(v[i] == (float)i + added);
}

/* The next event is polled for. */
static struct weir_event next_event(struct rig *r)
{
    struct pollfd readable = {.fd = r->fd, .events = POLLIN};
    struct weir_event e;
    while (weir_next_event(r->w, &e) == WEIR_AGAIN)
        assert_int_equal(poll(&readable, 1, 20000), 1);
    return e;
}

/* Steps, each polled for, to the job's end; the server is told goodbye. */
static void test_job(void **state)
{
    struct rig r;
    struct weir_step s;
    rig_open(&r, NULL);
    for (int i = 0; i < 10; i++) {
        rig_step(&r, i);
        struct weir_event e = next_event(&r);
        if (i == 0) {
            assert_int_equal(e.kind, WEIR_EVENT_BEGAN);
            e = next_event(&r);
        }
        assert_int_equal(e.kind, WEIR_EVENT_READY);
        assert_int_equal(e.param, 0);
        assert_int_equal(e.step, i + 1);
        assert_int_equal(weir_next_event(r.w, &e), WEIR_AGAIN);
        assert_int_equal(weir_wait(r.w, 0, 0), WEIR_OK);
        rig_assert_values(&r, (float)(i + 1));
    }
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
    assert_int_equal(next_event(&r).kind, WEIR_EVENT_STOPPED);
    rig_assert_values(&r, 10);
    weir_close(r.w);
    r.w = NULL;
    assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_leave), 1);
    assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_duplicate), 0);
    rig_close(&r);
}

/* What is not there yet is not waited for longer than asked. */
static void test_timeouts(void **state)
{
    struct rig r;
    struct weir_step s;
    rig_open(&r, NULL);
    struct tiny *t = &r.tiny;
    tiny_set(t, &t->answer, JOIN_RETRY);
    assert_int_equal(weir_next(r.w, 0, &s), WEIR_AGAIN);
    assert_int_equal(weir_next(r.w, 10, &s), WEIR_AGAIN);
    assert_null(weir_gradient(r.w, 7));
    tiny_set(t, &t->answer, JOIN_INIT);
    rig_step(&r, 0);
    assert_int_equal(weir_wait(r.w, 0, 20000), WEIR_OK);
    tiny_set(t, &t->hold, 1);
    rig_step(&r, 1);
    assert_int_equal(weir_wait(r.w, 0, 0), WEIR_AGAIN);
    assert_int_equal(weir_next(r.w, 5, &s), WEIR_AGAIN);
    assert_int_equal(weir_next_early(r.w, 5, &s), WEIR_AGAIN);
    assert_int_equal(weir_pull(r.w, 0), WEIR_OK); /* under way already */
    tiny_stop(t);
    t->hold = 0;
    tiny_start(t);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, 2);
    tiny_set(t, &t->hold, 1);
    assert_int_equal(weir_pull(r.w, 0), WEIR_OK);
    assert_error(r.w, weir_push(r.w, 0, r.m.gradient, 3), WEIR_E_INVALID, "wait for it first");
    tiny_stop(t);
    t->hold = 0;
    tiny_start(t);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    rig_assert_values(&r, 2);
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_OK);
    rig_assert_values(&r, 3);
    rig_close(&r);
}

/* The servers go back: the next step is an earlier one, with its values; what is pushed in one that
 * counts no more does no harm. */
static void test_goes_back(void **state)
{
    struct rig r;
    struct weir_step s;
    struct weir_event e;
    rig_open(&r, NULL);
    for (int i = 0; i < 6; i++)
        rig_step(&r, i);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_OK);
    assert_int_equal(s.began, 0);
    struct tiny *t = &r.tiny;
    tiny_go_back(t, 3);
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_REBASED);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, 3);
    assert_int_equal(s.began, 1);
    assert_int_equal(s.generation, 2);
    rig_assert_values(&r, 3);
    int n_rebased = 0;
    for (; (e = next_event(&r)).kind != WEIR_EVENT_BEGAN; n_rebased++) {
        assert_int_equal(e.kind, WEIR_EVENT_REBASED);
        assert_int_equal(e.generation, 1);
    }
    assert_int_equal(n_rebased, 1);
    assert_int_equal(e.generation, 2);
    assert_int_equal(e.step, 3);
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    for (int i = 4; i < 10; i++)
        rig_step(&r, i);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
    rig_assert_values(&r, 10);
    rig_close(&r);
}

/* One that began early hears of it where it waits for the values. */
static void test_early(void **state)
{
    struct rig r;
    struct weir_step s;
    rig_open(&r, NULL);
    assert_int_equal(weir_next_early(r.w, -1, &s), WEIR_OK);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    struct tiny *t = &r.tiny;
    tiny_await(t, &t->n_push, MODEL_CHUNKS);
    pthread_mutex_lock(&t->lock);
    t->end = 2;
    pthread_mutex_unlock(&t->lock);
    assert_int_equal(weir_next_early(r.w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, 1);
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    tiny_await(t, &t->n_push, 2 * MODEL_CHUNKS);
    const struct net_place place = {
        .member = 0, .rank = 0, .n_members = 1, .first_step = 2, .position = 50, .train_steps = 3};
    char addr[32], *addrs[1] = {addr};
    snprintf(addr, sizeof addr, "127.0.0.1:%d", t->port);
    const struct hosts hosts = {1, addrs};
    tiny_go_on(t, 2, 0, &hosts, &place);
    assert_int_equal(weir_next_early(r.w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, 2);
    assert_int_equal(s.position, 50);
    assert_int_equal(s.train_steps, 3);
    assert_int_equal(s.generation, 2);
    assert_int_equal(weir_push(r.w, 0, NULL, 0), WEIR_OK);
    assert_int_equal(weir_next_early(r.w, -1, &s), WEIR_DONE);
    rig_close(&r);
}

static void test_refused(void **state)
{
    struct rig r;
    struct weir_step s;
    rig_open(&r, NULL);
    tiny_set(&r.tiny, &r.tiny.answer, JOIN_REFUSED);
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_REFUSED, "refused this worker: tiny says");
    assert_error(r.w, weir_next(r.w, 0, &s), WEIR_E_REFUSED, "tiny says");
    assert_int_equal(next_event(&r).code, WEIR_E_REFUSED);
    rig_close(&r);
    rig_open(&r, NULL);
    struct tiny *t = &r.tiny;
    rig_step(&r, 0);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    tiny_set(t, &t->kind, PIECE_REFUSED);
    rig_step(&r, 1);
    assert_error(r.w, weir_wait(r.w, 0, -1), WEIR_E_REFUSED, "tiny does not like it");
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_REFUSED, "tiny does not like it");
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_E_REFUSED);
    assert_int_equal(weir_leave_failed(r.w, "it was refused"), WEIR_OK);
    assert_int_equal(tiny_get(t, &t->n_leave), 1);
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_REFUSED, "tiny does not like it");
    rig_close(&r);
}

static void *cancel_main(void *arg)
{
    struct rig *r = arg;
    tiny_await(&r->tiny, &r->tiny.n_join, 1);
    weir_cancel(r->w);
    return NULL;
}

/* While it is joining, while it waits for values, and while it does nothing. */
static void test_cancel(void **state)
{
    for (int step = 0; step < 3; step++) {
        struct rig r;
        struct weir_step s;
        pthread_t thread;
        rig_open(&r, NULL);
        if (step == 0)
            tiny_set(&r.tiny, &r.tiny.answer, JOIN_RETRY);
        if (step == 1) {
            rig_step(&r, 0);
            assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
            tiny_set(&r.tiny, &r.tiny.hold, 1);
            rig_step(&r, 1);
        }
        if (step == 2)
            weir_cancel(r.w);
        assert_int_equal(pthread_create(&thread, NULL, cancel_main, &r), 0);
        if (step == 2)
            weir_next(r.w, 0, &s);
        assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_CANCELLED, "cancelled");
        tiny_set(&r.tiny, &r.tiny.n_join, 1);
        pthread_cond_broadcast(&r.tiny.changed);
        pthread_join(thread, NULL);
        rig_close(&r);
    }
    struct rig r; /* closed while it begins */
    struct weir_step s;
    rig_open(&r, NULL);
    tiny_set(&r.tiny, &r.tiny.answer, JOIN_RETRY);
    assert_int_equal(weir_next(r.w, 0, &s), WEIR_AGAIN);
    rig_close(&r);
}

/* Each chunk goes at its own pace: to the job's number of versions, and no further. */
static void test_own_pace(void **state)
{
    static const char *const settings[][2] = {{"sync_mode", "async"}, {NULL, NULL}};
    struct rig r;
    struct weir_step s;
    rig_open(&r, settings);
    for (int i = 0; i < 10; i++)
        rig_step(&r, i);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
    assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_push), 10 * MODEL_CHUNKS);
    rig_assert_values(&r, 10);
    rig_close(&r);
}

/* A round of its own steps contributes what these changed; what it has changed is its own copy. */
static void test_own_local_steps(void **state)
{
    static const char *const settings[][2] = {
        {"own_local_steps", "true"}, {"local_steps", "5"}, {NULL, NULL}};
    struct rig r;
    struct weir_step s;
    rig_open(&r, settings);
    float *own = malloc(MODEL_ELEMS * sizeof *own);
    for (int round = 0; round < 2; round++) { /* 10 steps are 2 rounds */
        assert_int_equal(weir_next(r.w, -1, &s), WEIR_OK);
        assert_int_equal(s.step, round);
        assert_int_equal(s.train_steps, 2);
        assert_int_equal(s.n_samples, 15);
        assert_int_equal(s.position, 15 * round);
        for (int i = 0; i < MODEL_ELEMS; i++)
            own[i] = weir_values(r.w, 0)[i] - (float)(i % 7);
        assert_error(r.w, weir_push(r.w, 0, own, 15), WEIR_E_INVALID, "weir_push_values is for");
        assert_int_equal(weir_push_values(r.w, 0, own, 15), WEIR_OK);
        assert_error(r.w, weir_push_values(r.w, 0, r.m.gradient, 15), WEIR_E_INVALID, "twice");
        for (int i = 0; i < MODEL_ELEMS; i++)
            assert_true(weir_gradient(r.w, 0)[i] == (float)(i % 7));
    }
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
    rig_assert_values(&r, 2);
    free(own);
    rig_close(&r);
}

static void *events_main(void *arg)
{
    struct rig *r = arg;
    struct weir_event e;
    int *n = calloc(8, sizeof *n);
    do {
        e = next_event(r);
        n[e.kind]++;
    } while (e.kind != WEIR_EVENT_STOPPED);
    return n;
}

/* Who polls hears of a generation's end, and of an error, before any call waits for them. */
static void test_events_of_ends(void **state)
{
    struct rig r;
    struct weir_event e;
    struct tiny *t = &r.tiny;
    rig_open(&r, NULL);
    rig_step(&r, 0);
    assert_int_equal(next_event(&r).kind, WEIR_EVENT_BEGAN);
    assert_int_equal(next_event(&r).kind, WEIR_EVENT_READY);
    tiny_go_back(t, 1);
    rig_step(&r, 1);
    e = next_event(&r);
    assert_int_equal(e.kind, WEIR_EVENT_REBASED);
    assert_int_equal(e.generation, 1);
    assert_int_equal(weir_next_event(r.w, &e), WEIR_AGAIN);
    tiny_set(t, &t->kind, PIECE_REFUSED);
    rig_step(&r, 1);
    e = next_event(&r);
    assert_int_equal(e.kind, WEIR_EVENT_BEGAN);
    assert_int_equal(e.generation, 2);
    e = next_event(&r);
    assert_int_equal(e.kind, WEIR_EVENT_STOPPED);
    assert_int_equal(e.code, WEIR_E_REFUSED);
    assert_error(r.w, weir_wait(r.w, 0, -1), WEIR_E_REFUSED, "tiny does not like it");
    rig_close(&r);
}

/* A thread takes all events while another trains, through two generations. */
static void test_events_beside(void **state)
{
    struct rig r;
    struct weir_step s;
    pthread_t thread;
    int *n;
    rig_open(&r, NULL);
    assert_int_equal(pthread_create(&thread, NULL, events_main, &r), 0);
    for (int i = 0; i < 6; i++)
        rig_step(&r, i);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    tiny_go_back(&r.tiny, 3);
    while (weir_next_early(r.w, -1, &s) == WEIR_OK) {
        int code = weir_wait(r.w, 0, -1);
        assert_true(code == WEIR_OK || code == WEIR_REBASED);
        assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    }
    pthread_join(thread, (void **)&n);
    assert_in_range(n[WEIR_EVENT_BEGAN], 1, 2); /* told as one, where it was late */
    assert_int_equal(n[WEIR_EVENT_REBASED], 1);
    assert_true(n[WEIR_EVENT_READY] > 0);
    free(n);
    rig_assert_values(&r, 10);
    rig_close(&r);
}

/* It asks to leave; the next generation has no place for it. And one that ends for good. */
static void test_leaving(void **state)
{
    struct rig r;
    struct weir_step s;
    rig_open(&r, NULL);
    struct tiny *t = &r.tiny;
    rig_step(&r, 0);
    assert_int_equal(weir_leave_soon(r.w, -1), WEIR_OK);
    assert_int_equal(tiny_get(t, &t->n_soon), 1);
    rig_step(&r, 1);
    pthread_mutex_lock(&t->lock);
    t->generation++;
    t->answer = JOIN_REFUSED;
    pthread_mutex_unlock(&t->lock);
    int code = weir_next(r.w, -1, &s);
    for (int step = 2; code == WEIR_OK; code = weir_next(r.w, -1, &s), step++)
        assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    assert_true(code == WEIR_LEFT || code == WEIR_E_REFUSED);
    rig_close(&r);
    rig_open(&r, NULL);
    rig_step(&r, 0);
    assert_int_equal(weir_leave_failed(r.w, "the data are gone"), WEIR_OK);
    assert_int_equal(tiny_get(t, &t->n_leave), 1);
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_CANCELLED, "the data are gone");
    assert_error(r.w, weir_leave_failed(r.w, "again"), WEIR_E_INVALID, "left already");
    rig_close(&r);
}

/* While the servers have it wait: before it is a member, and between two generations. */
static void test_leaving_starts(void **state)
{
    struct rig r;
    struct weir_step s;
    struct tiny *t = &r.tiny;
    rig_open(&r, NULL);
    tiny_set(t, &t->answer, JOIN_RETRY);
    assert_int_equal(weir_next(r.w, 0, &s), WEIR_AGAIN);
    assert_int_equal(weir_leave_soon(r.w, -1), WEIR_OK);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_LEFT);
    assert_error(r.w, weir_leave_soon(r.w, -1), WEIR_E_INVALID, "nothing to leave");
    rig_close(&r);
    for (int fails = 0; fails < 2; fails++) {
        rig_open(&r, NULL);
        rig_step(&r, 0);
        assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
        tiny_set(t, &t->answer, JOIN_RETRY);
        tiny_go_back(t, 1);
        rig_step(&r, 1);
        assert_int_equal(weir_wait(r.w, 0, -1), WEIR_REBASED);
        assert_int_equal(weir_next(r.w, 0, &s), WEIR_AGAIN);
        if (fails) {
            assert_int_equal(weir_leave_failed(r.w, "no data"), WEIR_OK);
            assert_int_equal(tiny_get(t, &t->n_leave), 1);
            assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_CANCELLED, "no data");
        } else {
            assert_int_equal(weir_leave_soon(r.w, -1), WEIR_OK);
            assert_int_equal(tiny_get(t, &t->n_soon), 1);
            assert_int_equal(weir_next(r.w, -1, &s), WEIR_LEFT);
        }
        rig_close(&r);
    }
}

enum { SMALL = 64, SMALL_STEPS = 20 };

struct pusher {
    struct weir *w;
    int first;
    float gradient[2];
};

/* Every other parameter. */
static void *push_main(void *arg)
{
    struct pusher *p = arg;
    for (int i = p->first; i < SMALL; i += 2) {
        assert_int_equal(weir_wait(p->w, i, -1), WEIR_OK);
        assert_int_equal(weir_push(p->w, i, p->gradient, 1), WEIR_OK);
    }
    return NULL;
}

/* Threads that push what shares chunks, and one that takes events. */
static void test_threads(void **state)
{
    static const char *const settings[][2] = {{"optimizer", "sgd"},
                                              {"learning_rate", "1"},
                                              {"train_steps", "20"},
                                              {"sync_mode", "async"},
                                              {NULL, NULL}};
    const int64_t two = 2;
    struct weir_step s;
    struct weir *w = open_with(settings);
    for (int i = 0; i < SMALL; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        assert_int_equal(weir_param(w, name, WEIR_FLOAT32, 1, &two, NULL), i);
    }
    assert_true(weir_fd(w) > 0);
    while (weir_next_early(w, -1, &s) == WEIR_OK) {
        struct pusher p[2] = {{w, 0, {1, 2}}, {w, 1, {1, 2}}};
        pthread_t thread[2];
        struct weir_event e;
        for (int k = 0; k < 2; k++)
            assert_int_equal(pthread_create(&thread[k], NULL, push_main, &p[k]), 0);
        for (int k = 0; k < 5; k++)
            weir_next_event(w, &e);
        for (int k = 0; k < 2; k++)
            pthread_join(thread[k], NULL);
    }
    for (int i = 0; i < SMALL; i++)
        assert_true(weir_values(w, i)[1] == -2 * SMALL_STEPS);
    weir_close(w);
}

static void count_line(void *ctx, int level, const char *text)
{
    (void)text;
    *(int *)ctx += level >= WEIR_LOG_INFO;
}

/* Nothing is printed, and lines go where they are wanted; two handles do not know each other. */
static void test_log_and_two(void **state)
{
    struct rig a, b;
    int n = 0;
    capture_begin();
    rig_open(&a, NULL);
    rig_open(&b, NULL);
    rig_step(&a, 0);
    rig_step(&b, 0);
    capture_end();
    assert_string_equal(capture_text, "");
    weir_log(count_line, &n);
    assert_int_equal(weir_set(a.w, "seed", "0"), WEIR_E_INVALID);
    assert_string_equal(weir_error(b.w), "");
    rig_step(&a, 1);
    tiny_stop(&a.tiny);
    tiny_start(&a.tiny);
    rig_step(&a, 2);
    rig_step(&b, 1);
    rig_close(&a);
    rig_close(&b);
    weir_log(NULL, NULL);
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_impossible_jobs),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_job),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_goes_back),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_own_pace),
        cmocka_unit_test(test_own_local_steps),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_leaving_starts),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_log_and_two),
        cmocka_unit_test(test_events_of_ends),
        cmocka_unit_test(test_events_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
