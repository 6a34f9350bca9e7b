/* tests/libweir_alone_test.c - libweir without servers: steps to the job's end, by one thread and
 * by several, a refused push, a cancel, and the order of samples. */
#include "libweir/weir_impl.h"
#include "tests/capture.h"
#include "tests/libweir_open.h"
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

/* Trains by sgd two small parameters in one chunk, a large parameter in several chunks, an average,
 * and a frozen parameter. */
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
        assert_int_equal(s.n_regions, 0);
        assert_int_equal(s.n_members, 1);
        assert_int_equal(s.began, step == 0);
        assert_on_pages(w, 2, 4);
        assert_int_equal(weir_push(w, 0, g, 4), WEIR_OK);
        assert_error(w, weir_push(w, 0, g, 4), WEIR_E_INVALID, "pushed twice");
        assert_error(w, weir_wait(w, 0, -1), WEIR_E_INVALID, "together with 'b'");
        assert_error(w, weir_next(w, -1, &s), WEIR_E_INVALID, "'b' was not pushed at step");
        assert_error(w, weir_push(w, 3, NULL, 4), WEIR_E_INVALID, "'mean' is a statistic");
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
    assert_true(weir_values(w, 3)[1] == 7); /* 0, then 4, 6, 7 after the steps */
    assert_memory_equal(weir_values(w, 4), first, sizeof first);
    weir_close(w);
}

/* A job's length that the program does not set is logged, and the batch if the program reads the
 * samples of its positions. */
static void test_defaults_are_logged(void **state)
{
    static const char *const none[][2] = {{NULL, NULL}};
    static const char *const both[][2] = {
        {"train_steps", "200"}, {"batch_size", "32"}, {NULL, NULL}};
    for (int set = 0; set < 2; set++) {
        const int64_t two = 2;
        struct weir_step s;
        struct weir *w = open_with(set ? both : none);
        assert_int_equal(weir_param(w, "a", 0, 1, &two, NULL), 0);
        capture_begin();
        assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
        capture_end();
        assert_int_equal(s.train_steps, 200);
        assert_int_equal(s.n_samples, 32);
        assert_string_equal(capture_text,
                            set ? "" : "weir: train_steps is not set: the job has 200 steps\n");
        for (int call = 0; call < 2; call++) {
            capture_begin();
            assert_true(weir_sample(w, 100, s.position) >= 0);
            capture_end();
            assert_string_equal(
                capture_text,
                set || call
                    ? ""
                    : "weir: batch_size is not set: a step has 32 samples of each member\n");
        }
        weir_close(w);
    }
}

enum { N_LACKING = 3, LACKING_ELEMS = 3000 };

/* Trains by adam until the job's end. Parameters 1 and 2 have no gradient in steps 1, 4 and 5 if
 * `lacks` is set; their j-th gradient depends on j alone. Copies the last values. */
static void train_lacking(bool lacks, float last[N_LACKING][LACKING_ELEMS])
{
    static float gradient[LACKING_ELEMS];
    const char *const settings[][2] = {{"optimizer", "adam"},
                                       {"weight_decay", "0.1"},
                                       {"train_steps", lacks ? "7" : "4"},
                                       {"chunk_bytes", "4096"},
                                       {NULL, NULL}};
    const int64_t n[N_LACKING] = {2, 3, LACKING_ELEMS};
    struct weir *w = open_with(settings);
    struct weir_step s;
    for (int p = 0; p < N_LACKING; p++)
        assert_int_equal(weir_param(w, (char[2]){(char)('a' + p)}, 0, 1, &n[p], NULL), p);
    int j = 0;
    while (weir_next(w, -1, &s) == WEIR_OK) {
        bool has_all = !lacks || (s.step != 1 && s.step != 4 && s.step != 5);
        for (int i = 0; i < LACKING_ELEMS; i++)
            gradient[i] = sinf((float)(i + 1) * (float)(j + 1));
        j += has_all;
        assert_int_equal(weir_push(w, 0, gradient, 4), WEIR_OK);
        for (int p = 1; p < N_LACKING; p++)
            assert_int_equal(weir_push(w, p, has_all ? gradient : NULL, 4), WEIR_OK);
    }
    for (int p = 0; p < N_LACKING; p++)
        memcpy(last[p], weir_values(w, p), (size_t)n[p] * sizeof(float));
    weir_close(w);
}

/* A parameter that lacks its gradient in some steps has the bits of a job without these steps. */
static void step_without_gradient_leaves_no_trace(void **state)
{
    static float with[N_LACKING][LACKING_ELEMS], without[N_LACKING][LACKING_ELEMS];
    train_lacking(true, with);
    train_lacking(false, without);
    assert_memory_equal(with[1], without[1], sizeof with[1]);
    assert_memory_equal(with[2], without[2], sizeof with[2]);
    assert_true(with[0][0] != without[0][0]);
}

enum { SMALL = 64, SMALL_STEPS = 20 };

struct pusher {
    struct weir *w;
    int first;
    float gradient[2];
};

/* Pushes every second parameter, from `first` on. */
static void *push_main(void *arg)
{
    struct pusher *p = arg;
    for (int i = p->first; i < SMALL; i += 2) {
        assert_int_equal(weir_wait(p->w, i, -1), WEIR_OK);
        assert_int_equal(weir_push(p->w, i, p->gradient, 1), WEIR_OK);
    }
    return NULL;
}

/* Two threads push parameters of the same chunks while the main thread reads events. */
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

static void test_shared_samples_differ(void **state)
{
    static const char *const settings[][2] = {{"optimizer", "sgd"}, {NULL, NULL}};
    const int64_t two = 2;
    const float g[2] = {1, -1};
    struct weir *w = open_with(settings);
    struct weir_step s;
    assert_int_equal(weir_param(w, "a", 0, 1, &two, NULL), 0);
    assert_int_equal(weir_param(w, "b", 0, 1, &two, NULL), 1);
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    assert_int_equal(weir_push(w, 0, g, 4), WEIR_OK);
    assert_error(w, weir_push(w, 1, g, 3), WEIR_E_INVALID, "the numbers must be equal");
    assert_int_equal(weir_push(w, 1, g, 4), WEIR_OK); /* the refused push has changed nothing */
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    weir_cancel(w);
    assert_error(w, weir_push(w, 0, g, 4), WEIR_E_CANCELLED, "cancelled");
    assert_error(w, weir_next(w, -1, &s), WEIR_E_CANCELLED, "cancelled");
    weir_close(w);
}

static void test_samples(void **state)
{
    enum { ITEMS = 50 };
    static const char *const settings[][2] = {{"seed", "5"}, {NULL, NULL}};
    struct weir *w = open_with(settings);
    int seen[ITEMS] = {0};
    for (int i = 0; i < 2 * ITEMS; i++) {
        int64_t item = weir_sample(w, ITEMS, i);
        assert_in_range(item, 0, ITEMS - 1);
        assert_int_equal(seen[item]++, i / ITEMS);
    }
    assert_error(w, (int)weir_sample(w, (int64_t)1 << 40, 0), -1, "cannot be ordered");
    assert_int_equal(weir_set(w, "join", "true"), WEIR_OK);
    assert_error(w, (int)weir_sample(w, ITEMS, 0), -1, "the running job, which");
    weir_close(w);
}

/* The step in which the member stops the job is the last one. */
static void stop_ends_job_at_its_step(void **state)
{
    static const char *const settings[][2] = {{"train_steps", "9"}, {NULL, NULL}};
    const int64_t one = 1;
    const float g = 1;
    struct weir *w = open_with(settings);
    struct weir_step s;
    assert_int_equal(weir_param(w, "a", 0, 1, &one, NULL), 0);
    assert_error(w, weir_stop_job(w, 0), WEIR_E_INVALID, "there is no job to stop");
    for (int step = 0; step < 2; step++) {
        assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
        assert_int_equal(weir_push(w, 0, &g, 1), WEIR_OK);
    }
    assert_int_equal(weir_stop_job(w, 0), WEIR_OK);
    assert_int_equal(weir_next(w, -1, &s), WEIR_DONE);
    assert_int_equal(weir_stop_job(w, 0), WEIR_OK);
    weir_close(w);
}

/* A push that does not return until the main thread has called weir_next and weir_next_early. */
static struct {
    const struct updates_ops *real;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    bool is_inside, may_return;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static enum status push_held(void *ctx, int chunk, int64_t step, const float *data, float weight,
                             const uint8_t *lacking)
{
    pthread_mutex_lock(&held.lock);
    held.is_inside = true;
    pthread_cond_broadcast(&held.changed);
    while (!held.may_return)
        pthread_cond_wait(&held.changed, &held.lock);
    pthread_mutex_unlock(&held.lock);
    return held.real->push_lacking(ctx, chunk, step, data, weight, lacking);
}

static void *push_last_main(void *w)
{
    const float gradient[1] = {1};
    assert_int_equal(weir_push(w, 0, gradient, 1), WEIR_OK);
    return NULL;
}

static void next_step_is_refused_until_pushes_have_returned(void **state)
{
    static const char *const settings[][2] = {{"train_steps", "2"}, {NULL, NULL}};
    const int64_t one = 1;
    struct weir *w = open_with(settings);
    struct weir_step s;
    pthread_t thread;
    assert_int_equal(weir_param(w, "a", 0, 1, &one, NULL), 0);
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    struct updates_ops ops = *w->updates.ops;
    held.real = w->updates.ops;
    ops.push_lacking = push_held;
    w->updates.ops = &ops;
    assert_int_equal(pthread_create(&thread, NULL, push_last_main, w), 0);
    pthread_mutex_lock(&held.lock);
    while (!held.is_inside)
        pthread_cond_wait(&held.changed, &held.lock);
    pthread_mutex_unlock(&held.lock);
    assert_error(w, weir_next_early(w, -1, &s), WEIR_E_INVALID,
                 "a push of step 0 has not returned");
    assert_error(w, weir_next(w, -1, &s), WEIR_E_INVALID, "a push of step 0 has not returned");
    pthread_mutex_lock(&held.lock);
    held.may_return = true;
    pthread_cond_broadcast(&held.changed);
    pthread_mutex_unlock(&held.lock);
    pthread_join(thread, NULL);
    w->updates.ops = held.real;
    assert_int_equal(weir_next_early(w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, 1);
    weir_close(w);
}

int main(void)
{
    return RUN_TESTS(test_alone, test_defaults_are_logged, test_threads, test_shared_samples_differ,
                     test_samples, stop_ends_job_at_its_step, step_without_gradient_leaves_no_trace,
                     next_step_is_refused_until_pushes_have_returned);
}
