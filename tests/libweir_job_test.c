/* tests/libweir_job_test.c - tests a member that joins, through libweir, small servers in the same
 * process: a job with delayed answers, a job that rolls back, and a job whose members have their
 * own pace. */
#include "tests/libweir_rig.h"
#include <stdio.h>
#include <stdlib.h>

/* Runs all steps of a job and polls for each; at the end the server receives the leave message. */
static void test_job(void **state)
{
    struct librig r;
    struct weir_step s;
    librig_open(&r, NULL);
    for (int i = 0; i < 10; i++) {
        librig_step(&r, i);
        struct weir_event e = librig_next_event(&r);
        if (i == 0) {
            assert_int_equal(e.kind, WEIR_EVENT_BEGAN);
            e = librig_next_event(&r);
        }
        assert_int_equal(e.kind, WEIR_EVENT_READY);
        assert_int_equal(e.param, 0);
        assert_int_equal(e.step, i + 1);
        assert_int_equal(weir_next_event(r.w, &e), WEIR_AGAIN);
        assert_int_equal(weir_wait(r.w, 0, 0), WEIR_OK);
        librig_assert_values(&r, (float)(i + 1));
    }
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
    assert_int_equal(librig_next_event(&r).kind, WEIR_EVENT_STOPPED);
    librig_assert_values(&r, 10);
    weir_close(r.w);
    r.w = NULL;
    assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_leave), 1);
    assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_duplicate), 0);
    librig_close(&r);
}

/* A call waits no longer than its timeout. */
static void test_timeouts(void **state)
{
    struct librig r;
    struct weir_step s;
    librig_open(&r, NULL);
    struct tiny *t = &r.tiny;
    tiny_set(t, &t->answer, JOIN_RETRY);
    assert_int_equal(weir_next(r.w, 0, &s), WEIR_AGAIN);
    assert_int_equal(weir_next(r.w, 10, &s), WEIR_AGAIN);
    assert_null(weir_gradient(r.w, 7));
    tiny_set(t, &t->answer, JOIN_INIT);
    librig_step(&r, 0);
    assert_int_equal(weir_wait(r.w, 0, 20000), WEIR_OK);
    tiny_set(t, &t->hold, 1);
    librig_step(&r, 1);
    assert_int_equal(weir_wait(r.w, 0, 0), WEIR_AGAIN);
    assert_int_equal(weir_next(r.w, 5, &s), WEIR_AGAIN);
    assert_int_equal(weir_next_early(r.w, 5, &s), WEIR_AGAIN);
    assert_int_equal(weir_pull(r.w, 0), WEIR_OK); /* already in progress */
    tiny_stop(t);
    t->hold = 0;
    tiny_start(t);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, 2);
    tiny_set(t, &t->hold, 1);
    assert_int_equal(weir_pull(r.w, 0), WEIR_OK);
    assert_error(r.w, weir_push(r.w, 0, r.m.gradient, 3), WEIR_E_INVALID,
                 "wait for this parameter first");
    tiny_stop(t);
    t->hold = 0;
    tiny_start(t);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    librig_assert_values(&r, 2);
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_OK);
    librig_assert_values(&r, 3);
    librig_close(&r);
}

/* The servers roll back: the next step is an earlier one, with the values of that step. A push for
 * a step that was rolled back has no effect. */
static void test_goes_back(void **state)
{
    struct librig r;
    struct weir_step s;
    struct weir_event e;
    librig_open(&r, NULL);
    for (int i = 0; i < 6; i++)
        librig_step(&r, i);
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
    librig_assert_values(&r, 3);
    int n_rebased = 0;
    for (; (e = librig_next_event(&r)).kind != WEIR_EVENT_BEGAN; n_rebased++) {
        assert_int_equal(e.kind, WEIR_EVENT_REBASED);
        assert_int_equal(e.generation, 1);
    }
    assert_int_equal(n_rebased, 1);
    assert_int_equal(e.generation, 2);
    assert_int_equal(e.step, 3);
    assert_int_equal(weir_push(r.w, 0, r.m.gradient, 3), WEIR_OK);
    for (int i = 4; i < 10; i++)
        librig_step(&r, i);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
    librig_assert_values(&r, 10);
    librig_close(&r);
}

/* A member that begins each step early continues at the place that the next generation assigns to
 * it. */
static void test_early(void **state)
{
    struct librig r;
    struct weir_step s;
    librig_open(&r, NULL);
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
    librig_close(&r);
}

/* Each chunk has its own pace: up to the job's number of versions, and no further. */
static void test_own_pace(void **state)
{
    static const char *const settings[][2] = {{"sync_mode", "async"}, {NULL, NULL}};
    struct librig r;
    struct weir_step s;
    librig_open(&r, settings);
    for (int i = 0; i < 10; i++)
        librig_step(&r, i);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
    assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_push), 10 * MODEL_CHUNKS);
    librig_assert_values(&r, 10);
    librig_close(&r);
}

static const char *const own_steps[][2] = {
    {"own_local_steps", "true"}, {"local_steps", "5"}, {NULL, NULL}};

/* Begins a round, and pushes the values of own steps, by which value i changes by -(i % 7). Then
 * clears the program's memory, which the library has borrowed for the call only. */
static void own_round(struct librig *r, int round)
{
    struct weir_step s;
    float *own = malloc(MODEL_ELEMS * sizeof *own);
    assert_int_equal(weir_next(r->w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, round);
    assert_int_equal(s.train_steps, 2); /* 10 steps are 2 rounds */
    assert_int_equal(s.n_samples, 15);
    assert_int_equal(s.position, 15 * round);
    for (int i = 0; i < MODEL_ELEMS; i++)
        own[i] = weir_values(r->w, 0)[i] - (float)(i % 7);
    assert_error(r->w, weir_push(r->w, 0, own, 15), WEIR_E_INVALID, "weir_push_values is for");
    assert_int_equal(weir_push_values(r->w, 0, own, 15), WEIR_OK);
    assert_error(r->w, weir_push_values(r->w, 0, r->m.gradient, 15), WEIR_E_INVALID, "twice");
    memset(own, 0x7f, MODEL_ELEMS * sizeof *own);
    free(own);
}

static void assert_changes(struct librig *r)
{
    pthread_mutex_lock(&r->tiny.lock);
    for (int i = 0; i < MODEL_CHUNKS; i++)
        assert_true(r->tiny.pushed[i] == (float)(r->m.chunks->chunks[i].first % 7));
    pthread_mutex_unlock(&r->tiny.lock);
}

/* A round of local steps contributes their changes; the member changes its own copy. */
static void test_own_local_steps(void **state)
{
    struct librig r;
    struct weir_step s;
    librig_open(&r, own_steps);
    own_round(&r, 0);
    own_round(&r, 1);
    assert_int_equal(weir_next(r.w, -1, &s), WEIR_DONE);
    assert_changes(&r);
    assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_shared), 0);
    librig_assert_values(&r, 2);
    librig_close(&r);
}

/* Checks that a change is sent again, with the same values, if the server is lost before it has
 * counted the change, or if an answer is damaged after it has replaced values. */
static void repeat_changes(struct librig *r)
{
    struct weir_step s;
    struct tiny *t = &r->tiny;
    own_round(r, 0);
    assert_int_equal(weir_wait(r->w, 0, -1), WEIR_OK);
    tiny_set(t, &t->lose, 1);
    own_round(r, 1);
    assert_int_equal(weir_wait(r->w, 0, 0), WEIR_AGAIN);
    tiny_await(t, &t->n_push, 2 * MODEL_CHUNKS);
    assert_null(weir_values(r->w, 0)); /* their array holds the change */
    tiny_stop(t);
    t->lose = 0;
    memset(t->pushed, 0, sizeof t->pushed);
    t->bad_crc = t->segment ? 0 : 3;
    t->bad_stamp = t->segment ? 3 : 0;
    tiny_start(t);
    assert_int_equal(weir_next(r->w, -1, &s), WEIR_DONE);
    assert_int_equal(tiny_get(t, &t->bad_crc) + tiny_get(t, &t->bad_stamp), 0);
    assert_in_range(tiny_get(t, &t->n_duplicate), 3, 1000);
    assert_changes(r);
    librig_assert_values(r, 2);
}

static void test_changes_are_repeated(void **state)
{
    struct librig r;
    librig_open(&r, own_steps);
    repeat_changes(&r);
    librig_close(&r);
}

static void test_shared_changes_are_repeated(void **state)
{
    struct librig r;
    librig_open(&r, own_steps);
    tiny_stop(&r.tiny); /* a server reads the segment without a lock */
    tiny_share(&r.tiny);
    tiny_start(&r.tiny);
    repeat_changes(&r);
    assert_in_range(tiny_get(&r.tiny, &r.tiny.n_shared), 3 * MODEL_CHUNKS, 1000);
    librig_close(&r);
}

int main(void)
{
    return RUN_TESTS(test_job, test_timeouts, test_goes_back, test_early, test_own_pace,
                     test_own_local_steps, test_changes_are_repeated,
                     test_shared_changes_are_repeated);
}
