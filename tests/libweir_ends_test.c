/* tests/libweir_ends_test.c - tests the ways in which a member of libweir ends, and their log: it
 * is refused, is cancelled, leaves, or sends its leave message. Small servers run in the same
 * process. */
#include "libweir/weir_impl.h"
#include "tests/capture.h"
#include "tests/libweir_rig.h"

static void test_refused(void **state)
{
    struct librig r;
    struct weir_step s;
    librig_open(&r, NULL);
    tiny_set(&r.tiny, &r.tiny.answer, JOIN_REFUSED);
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_REFUSED, "refused this worker: tiny says");
    assert_error(r.w, weir_next(r.w, 0, &s), WEIR_E_REFUSED, "tiny says");
    assert_int_equal(librig_next_event(&r).code, WEIR_E_REFUSED);
    librig_close(&r);
    librig_open(&r, NULL);
    struct tiny *t = &r.tiny;
    librig_step(&r, 0);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    tiny_set(t, &t->kind, PIECE_REFUSED);
    librig_step(&r, 1);
    assert_error(r.w, weir_wait(r.w, 0, -1), WEIR_E_REFUSED, "tiny does not like it");
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_REFUSED, "tiny does not like it");
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_E_REFUSED);
    assert_int_equal(weir_leave_failed(r.w, "it was refused"), WEIR_OK);
    assert_int_equal(tiny_get(t, &t->n_leave), 1);
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_REFUSED, "tiny does not like it");
    librig_close(&r);
}

static void *cancel_main(void *arg)
{
    struct librig *r = arg;
    tiny_await(&r->tiny, &r->tiny.n_join, 1);
    weir_cancel(r->w);
    return NULL;
}

/* A cancel ends a member that joins, one that waits for values, and one that is idle. */
static void test_cancel(void **state)
{
    for (int step = 0; step < 3; step++) {
        struct librig r;
        struct weir_step s;
        pthread_t thread;
        librig_open(&r, NULL);
        if (step == 0)
            tiny_set(&r.tiny, &r.tiny.answer, JOIN_RETRY);
        if (step == 1) {
            librig_step(&r, 0);
            assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
            tiny_set(&r.tiny, &r.tiny.hold, 1);
            librig_step(&r, 1);
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
        librig_close(&r);
    }
    struct librig r; /* the handle is closed while the member joins */
    struct weir_step s;
    librig_open(&r, NULL);
    tiny_set(&r.tiny, &r.tiny.answer, JOIN_RETRY);
    assert_int_equal(weir_next(r.w, 0, &s), WEIR_AGAIN);
    librig_close(&r);
}

/* A member requests to leave, and has no place in the next generation. Another member leaves
 * because of an error, and its handle accepts no more steps. */
static void test_leaving(void **state)
{
    struct librig r;
    struct weir_step s;
    librig_open(&r, NULL);
    struct tiny *t = &r.tiny;
    librig_step(&r, 0);
    assert_int_equal(weir_leave_soon(r.w, -1), WEIR_OK);
    assert_int_equal(tiny_get(t, &t->n_soon), 1);
    librig_step(&r, 1);
    pthread_mutex_lock(&t->lock);
    t->generation++;
    t->answer = JOIN_REFUSED;
    pthread_mutex_unlock(&t->lock);
    int code = weir_next(r.w, -1, &s);
    for (int step = 2; code == WEIR_OK; code = weir_next(r.w, -1, &s), step++)
        assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    assert_true(code == WEIR_LEFT || code == WEIR_E_REFUSED);
    librig_close(&r);
    librig_open(&r, NULL);
    librig_step(&r, 0);
    assert_int_equal(weir_leave_failed(r.w, "the data are gone"), WEIR_OK);
    assert_int_equal(tiny_get(t, &t->n_leave), 1);
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_CANCELLED, "the data are gone");
    assert_error(r.w, weir_leave_failed(r.w, "again"), WEIR_E_INVALID, "left already");
    librig_close(&r);
}

/* A program leaves while it waits for the servers: before it is a member, and between two
 * generations. is_over is set as if the job was over when it was looked up, but a server has
 * appeared since. */
static void test_leaving_starts(void **state)
{
    struct librig r;
    struct weir_step s;
    struct tiny *t = &r.tiny;
    librig_open(&r, NULL);
    r.w->is_over = 1;
    tiny_set(t, &t->answer, JOIN_RETRY);
    assert_int_equal(weir_next(r.w, 0, &s), WEIR_AGAIN);
    assert_int_equal(weir_leave_soon(r.w, -1), WEIR_OK);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_LEFT);
    assert_error(r.w, weir_leave_soon(r.w, -1), WEIR_E_INVALID, "nothing to leave");
    librig_close(&r);
    for (int fails = 0; fails < 2; fails++) {
        librig_open(&r, NULL);
        r.w->is_over = 1;
        librig_step(&r, 0);
        assert_int_equal(r.w->is_over, 0);
        assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
        tiny_set(t, &t->answer, JOIN_RETRY);
        tiny_go_back(t, 1);
        librig_step(&r, 1);
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
        librig_close(&r);
    }
}

static void count_line(void *ctx, int level, const char *text)
{
    *(int *)ctx += level >= WEIR_LOG_INFO;
}

/* Two handles are independent. They print nothing; the function of weir_log() receives their log
 * lines. */
static void test_log_and_two(void **state)
{
    struct librig a, b;
    int n = 0;
    capture_begin();
    librig_open(&a, NULL);
    librig_open(&b, NULL);
    librig_step(&a, 0);
    librig_step(&b, 0);
    capture_end();
    assert_string_equal(capture_text, "");
    weir_log(count_line, &n);
    assert_int_equal(weir_set(a.w, "seed", "0"), WEIR_E_INVALID);
    assert_string_equal(weir_error(b.w), "");
    librig_step(&a, 1);
    tiny_stop(&a.tiny);
    tiny_start(&a.tiny);
    librig_step(&a, 2);
    librig_step(&b, 1);
    librig_close(&a);
    librig_close(&b);
    weir_log(NULL, NULL);
    assert_true(n > 0);
}

/* weir_goodbye() ends a member. The server receives a leave message only at the end of the job. The
 * values stay readable. */
static void leave_message_reaches_server(void **state)
{
    assert_int_equal(weir_goodbye(NULL), WEIR_OK);
    for (int n_steps = 10; n_steps >= 0; n_steps -= 5) {
        struct librig r;
        struct weir_step s;
        librig_open(&r, NULL);
        for (int i = 0; i < n_steps; i++)
            librig_step(&r, i);
        int done = n_steps == 10;
        if (done)
            assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
        else if (n_steps > 0)
            assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
        const float *values = n_steps ? weir_values(r.w, 0) : NULL;
        assert_int_equal(weir_goodbye(r.w), WEIR_OK);
        assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_leave), done);
        tiny_stop(&r.tiny); /* the servers receive no more requests */
        assert_int_equal(weir_goodbye(r.w), WEIR_OK);
        if (n_steps) {
            librig_assert_values(&r, (float)n_steps);
            assert_ptr_equal(weir_values(r.w, 0), values);
            weir_gradient(r.w, 0)[MODEL_ELEMS - 1] = 1;
        }
        weir_cancel(r.w);
        assert_error(r.w, weir_leave_failed(r.w, "late"), WEIR_E_INVALID, "left already");
        if (done) {
            assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
            assert_error(r.w, weir_push(r.w, 0, r.m.gradient, 3), WEIR_E_INVALID, "no step");
            assert_error(r.w, weir_leave_soon(r.w, 0), WEIR_E_INVALID, "nothing to leave");
        } else {
            assert_int_equal(weir_leave_soon(r.w, 0), WEIR_E_CANCELLED);
            assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_E_CANCELLED);
            assert_int_equal(weir_wait(r.w, 0, -1), WEIR_E_CANCELLED);
            assert_int_equal(weir_pull(r.w, 0), WEIR_E_CANCELLED);
            assert_int_equal(weir_next(r.w, -1, &s), WEIR_E_CANCELLED);
        }
        assert_in_range(weir_sample(r.w, 10, 3), 0, 9);
        librig_close(&r);
    }
}

/* State of call_all(), which is called for a log line: it may only call functions that read the
 * state. */
struct caller {
    struct weir *w;
    int n, n_refused;
    const char *said;
};

static void call_all(void *ctx, int level, const char *text)
{
    struct caller *c = ctx;
    struct weir *other = NULL;
    struct weir_step s;
    struct weir_event e;
    const int64_t dim = 1;
    c->n++;
    const int codes[] = {weir_open(&other),
                         weir_set(c->w, "seed", "1"),
                         weir_param(c->w, "late", WEIR_FLOAT32, 1, &dim, NULL),
                         weir_param_average(c->w, 0, 0.5),
                         weir_next(c->w, -1, &s),
                         weir_next_early(c->w, -1, &s),
                         weir_push(c->w, 0, NULL, 0),
                         weir_push_values(c->w, 0, NULL, 0),
                         weir_pull(c->w, 0),
                         weir_wait(c->w, 0, -1),
                         weir_leave_soon(c->w, -1),
                         weir_leave_failed(c->w, "a line"),
                         weir_fd(c->w),
                         weir_next_event(c->w, &e),
                         weir_goodbye(c->w)};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        c->n_refused += codes[i] == WEIR_E_INVALID;
    c->n_refused += weir_values(c->w, 0) == NULL;
    c->n_refused += weir_gradient(c->w, 0) == NULL;
    c->n_refused += weir_sample(c->w, 10, 0) == -1;
    c->n_refused += other == NULL;
    weir_cancel(c->w);
    weir_close(c->w);
    c->said = strdup(weir_error(c->w));
    weir_log(NULL, NULL);
}

static void test_log_calls(void **state)
{
    struct librig r;
    struct caller c = {0};
    librig_open(&r, NULL);
    librig_step(&r, 0);
    c.w = r.w;
    weir_log(call_all, &c);
    assert_int_equal(weir_sample(r.w, -1, 0), -1); /* this error is logged */
    assert_int_equal(c.n, 1);
    assert_int_equal(c.n_refused, 19);
    assert_non_null(
        strstr(c.said, "a function that was passed to weir_log must not call this function"));
    free((void *)c.said);
    assert_int_equal(weir_sample(r.w, -1, 0), -1);
    assert_int_equal(c.n, 1);
    librig_step(&r, 1); /* the calls had no effect */
    librig_close(&r);
}

int main(void)
{
    return RUN_TESTS(test_refused, test_cancel, test_leaving, test_leaving_starts,
                     leave_message_reaches_server, test_log_and_two, test_log_calls);
}
