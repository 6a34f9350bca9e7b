/* tests/base_lane_test.c - jobs of a lane run one after the other, off the caller's thread; a job
 * that hangs delays neither the caller nor lane_destroy(), and modifies nothing afterwards. */
#include "base/clock.h"
#include "base/lane.h"
#include "tests/check.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

enum { LONG_MS = 60000 };

struct test_job {
    struct lane_job job; /* the first field */
    sem_t *may_go;       /* the work waits for it; NULL: it does not wait */
    sem_t *has_begun;
    sem_t *has_ended;
    pthread_t *thread; /* thread that ran the work */
    bool *is_left;
};

static void work(struct lane_job *job)
{
    struct test_job *j = (struct test_job *)job;
    *j->thread = pthread_self();
    sem_post(j->has_begun);
    if (j->may_go)
        sem_wait(j->may_go);
}

static void end(struct lane_job *job, bool is_left)
{
    struct test_job *j = (struct test_job *)job;
    sem_t *has_ended = j->has_ended;
    *j->is_left = is_left;
    free(j);
    sem_post(has_ended);
}

struct rig {
    struct lane *lane;
    sem_t may_go, has_begun, has_ended;
    pthread_t thread;
    bool is_left;
};

static void rig_start(struct rig *r)
{
    *r = (struct rig){.is_left = false};
    sem_init(&r->may_go, 0, 0);
    sem_init(&r->has_begun, 0, 0);
    sem_init(&r->has_ended, 0, 0);
    assert_int_equal(lane_create("works for a test", &r->lane), ST_OK);
}

/* Posts a job; `hangs`: its work waits for may_go. A job that the lane refuses is freed. */
static enum status post(struct rig *r, bool hangs)
{
    struct test_job *j = malloc(sizeof *j);
    assert_non_null(j);
    *j = (struct test_job){{work, end},   hangs ? &r->may_go : NULL,
                           &r->has_begun, &r->has_ended,
                           &r->thread,    &r->is_left};
    enum status st = lane_post(r->lane, &j->job);
    if (st != ST_OK)
        free(j);
    return st;
}

static void lane_runs_jobs_in_its_own_thread(void **state)
{
    struct rig r;
    rig_start(&r);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(post(&r, false), ST_OK);
        sem_wait(&r.has_ended);
        assert_false(pthread_equal(r.thread, pthread_self()));
        assert_false(r.is_left);
    }
    assert_true(lane_destroy(r.lane, clock_deadline_ns(LONG_MS)));
    assert_true(lane_destroy(NULL, 0));
}

static void lane_refuses_a_second_job_that_would_wait(void **state)
{
    struct rig r;
    rig_start(&r);
    assert_int_equal(post(&r, true), ST_OK);
    sem_wait(&r.has_begun);
    assert_int_equal(post(&r, false), ST_OK); /* the lane queues it */
    assert_int_equal(post(&r, false), ST_BUSY);
    sem_post(&r.may_go);
    sem_wait(&r.has_ended);
    sem_wait(&r.has_ended);
    assert_true(lane_destroy(r.lane, clock_deadline_ns(LONG_MS)));
}

static void lane_leaves_work_behind_that_hangs(void **state)
{
    struct rig r;
    rig_start(&r);
    assert_int_equal(post(&r, true), ST_OK);
    sem_wait(&r.has_begun);
    assert_false(lane_destroy(r.lane, clock_now_ns()));
    sem_post(&r.may_go);
    sem_wait(&r.has_ended);
    assert_true(r.is_left);
}

static void lane_ends_a_waiting_job_that_it_does_not_run(void **state)
{
    struct rig r;
    rig_start(&r);
    assert_int_equal(post(&r, true), ST_OK);
    sem_wait(&r.has_begun);
    assert_int_equal(post(&r, false), ST_OK);
    assert_false(lane_destroy(r.lane, clock_now_ns()));
    sem_wait(&r.has_ended); /* the end of the waiting job */
    assert_true(r.is_left);
    sem_post(&r.may_go);
    sem_wait(&r.has_ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lane_runs_jobs_in_its_own_thread),
        cmocka_unit_test(lane_refuses_a_second_job_that_would_wait),
        cmocka_unit_test(lane_leaves_work_behind_that_hangs),
        cmocka_unit_test(lane_ends_a_waiting_job_that_it_does_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
