/* tests/libweir_changes_test.c - the changes of own local steps, which are computed in the array of
 * the values, beside pulls. The program replaces weir_changes_make (--wrap), so that a pull begins
 * while a push computes a change. */
#include "libweir/changes.h"
#include "tests/libweir_rig.h"
#include <pthread.h>
#include <time.h>

/* A thread that pulls; it is started when a change is made. */
static struct {
    bool armed;
    pthread_t thread;
    int code;
} puller;

static void *pull(void *arg)
{
    puller.code = weir_pull(arg, 0);
    return NULL;
}

void __real_weir_changes_make(struct weir *w, int param, int64_t first, int64_t n,
                              const float *values);
void __wrap_weir_changes_make(struct weir *w, int param, int64_t first, int64_t n,
                              const float *values);

void __wrap_weir_changes_make(struct weir *w, int param, int64_t first, int64_t n,
                              const float *values)
{
    const struct timespec while_it_could_pull = {0, 200000000};
    if (puller.armed) {
        puller.armed = false;
        pthread_create(&puller.thread, NULL, pull, w);
        nanosleep(&while_it_could_pull, NULL);
    }
    __real_weir_changes_make(w, param, first, n, values);
}

/* Begins the first step, and sets `made` to values whose change is -1 in each element. */
static void begin(struct librig *r, float *made, const char *dtypes)
{
    const char *const settings[][2] = {{"own_local_steps", "1"},   {"local_steps", "2"},
                                       {"outer_optimizer", "sgd"}, {"outer_learning_rate", "1"},
                                       {"wire_dtype", dtypes},     {NULL, NULL}};
    struct weir_step s;
    librig_open(r, settings);
    assert_int_equal(weir_next(r->w, -1, &s), WEIR_OK);
    librig_assert_values(r, 0);
    for (int i = 0; i < MODEL_ELEMS; i++)
        made[i] = (float)i + 1;
}

/* Checks that the servers received the change, and that the answer replaced it. */
static void check_sent(struct librig *r)
{
    assert_int_equal(weir_wait(r->w, 0, -1), WEIR_OK);
    librig_assert_values(r, 1);
    pthread_mutex_lock(&r->tiny.lock);
    for (int i = 0; i < MODEL_CHUNKS; i++)
        assert_true(r->tiny.pushed[i] == -1);
    pthread_mutex_unlock(&r->tiny.lock);
    librig_close(r);
}

/* Restarts the server, to which the member repeats its requests. */
static void answer_again(struct librig *r)
{
    tiny_stop(&r->tiny);
    r->tiny.hold = 0;
    tiny_start(&r->tiny);
}

static void check_pull(const char *dtypes)
{
    static float made[MODEL_ELEMS];
    struct librig r;
    begin(&r, made, dtypes);
    tiny_set(&r.tiny, &r.tiny.hold, 1); /* a pull would stay in flight */
    puller.armed = true;
    int code = weir_push_values(r.w, 0, made, 3);
    pthread_join(puller.thread, NULL);
    if (code != WEIR_OK)
        fail_msg("%s", weir_error(r.w));
    assert_int_equal(puller.code, WEIR_OK);
    answer_again(&r);
    check_sent(&r);
}

/* The answer to a pull is missing. The refused push leaves the values as they are, and may be
 * tried again. */
static void check_refused(const char *dtypes)
{
    static float made[MODEL_ELEMS];
    struct librig r;
    begin(&r, made, dtypes);
    tiny_set(&r.tiny, &r.tiny.hold, 1);
    assert_int_equal(weir_pull(r.w, 0), WEIR_OK);
    assert_error(r.w, weir_push_values(r.w, 0, made, 3), WEIR_E_INVALID, "still in flight");
    librig_assert_values(&r, 0);
    answer_again(&r);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    librig_assert_values(&r, 0);
    assert_int_equal(weir_push_values(r.w, 0, made, 3), WEIR_OK);
    check_sent(&r);
}

static void pull_during_a_push_waits(void **state)
{
    check_pull("fp32");
    check_pull("bf16,fp32");
}

static void refused_push_is_tried_again(void **state)
{
    check_refused("fp32");
    check_refused("bf16,fp32");
}

int main(void)
{
    return RUN_TESTS(pull_during_a_push_waits, refused_push_is_tried_again);
}
