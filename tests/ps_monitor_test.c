/* tests/ps_monitor_test.c - what a server's pages say of a job, from pulses and a status that are
 * given: nothing is asked of a service. */
#include "base/clock.h"
#include "ps/monitor/monitor_impl.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

static struct monitor_worker workers[JOB_MAX_WORKERS];
static const int64_t second = 1000000000;

/* As ps_monitor_create has it, of a job that trains; the status is not asked for anew. */
static void begin(struct ps_monitor *m)
{
    memset(m, 0, sizeof *m);
    memset(workers, 0, sizeof workers);
    m->workers = workers;
    m->saved_step = -1;
    m->saved_unix_s = (double)NAN;
    m->window[0].step = -1;
    m->status.state = STATE_TRAINING;
    m->status.generation = 1;
    m->status.best.step = -1;
    m->status.checkpoints.last = -1;
    m->status.job.train_steps = 1000;
    m->status_ns = clock_now_ns() + 3600 * second;
    pthread_mutex_init(&m->lock, NULL);
}

static void pulse(struct ps_monitor *m, uint64_t generation, int64_t step, int64_t began,
                  int64_t at_ns)
{
    struct monitor_pulse p = {
        .at_ns = at_ns, .generation = generation, .step = step, .began = began};
    monitor_pulse(m, &p);
    m->status.step = step;
}

static int is_said(struct ps_monitor *m, int (*page)(void *ctx, FILE *f), const char *what)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_int_equal(page(m, f), 200);
    assert_int_equal(fclose(f), 0);
    int said = strstr(text, what) != NULL;
    free(text);
    return said;
}

/* It makes no steps, and does its part: nothing. */
static void without_chunks_there_is_no_step(void **state)
{
    static struct ps_monitor m;
    char why[MONITOR_WHY_BYTES];
    begin(&m);
    pulse(&m, 1, 5, 0, clock_now_ns() - 300 * second);
    struct monitor_pulse p = {.at_ns = clock_now_ns(), .generation = 2, .step = -1, .no_chunks = 1};
    monitor_pulse(&m, &p);
    m.status.step = -1;
    assert_int_equal(monitor_is_ready(&m, why), 1);
    assert_false(is_said(&m, monitor_metrics, "\nweir_ps_step"));
    assert_false(is_said(&m, monitor_metrics, "\nweir_ps_samples_total"));
    assert_false(is_said(&m, monitor_metrics, "\nweir_ps_last_step_timestamp"));
    assert_true(is_said(&m, monitor_metrics, "\nweir_ps_ready 1\n"));
    assert_true(is_said(&m, monitor_json, "\"step\":null,\"step_age_s\":null"));
}

/* Also after a few steps, and of a generation after which another one made none. */
static void who_stands_is_not_ready(void **state)
{
    static struct ps_monitor m;
    char why[MONITOR_WHY_BYTES];
    int64_t at = clock_now_ns() - 300 * second;
    begin(&m);
    pulse(&m, 1, 0, 0, at);
    pulse(&m, 1, 4, 0, at + 4 * second);
    m.status.steps_per_s = 4.0 / 300; /* up to now */
    assert_int_equal(monitor_is_ready(&m, why), 0);
    pulse(&m, 2, 4, 4, clock_now_ns());
    assert_int_equal(monitor_is_ready(&m, why), 0);
    assert_non_null(strstr(why, "step 4 has not moved for "));
    pulse(&m, 2, 5, 4, clock_now_ns());
    assert_int_equal(monitor_is_ready(&m, why), 1);
    /* a slow step is none that stands */
    begin(&m);
    pulse(&m, 1, 0, 0, at);
    pulse(&m, 1, 4, 0, at + 160 * second);
    assert_int_equal(monitor_is_ready(&m, why), 1);
}

/* The job goes on without it, and its own list forgets it: who watches is told until it is back. */
static void a_lost_worker_is_told_of(void **state)
{
    static struct ps_monitor m;
    struct net_status_member members[] = {{.member = 0, .rank = 0, .state = MEMBER_TRAINING},
                                          {.member = 1, .rank = 1, .state = MEMBER_TRAINING}};
    const char *gone = "\nweir_ps_worker_present{worker=\"1\"} 0\n";
    begin(&m);
    m.status.members = members;
    m.status.n_members = 2;
    monitor_see_workers(&m);
    m.status.n_members = 1;
    monitor_see_workers(&m);
    assert_true(is_said(&m, monitor_metrics, gone));
    m.status.n_members = 2;
    assert_false(is_said(&m, monitor_metrics, gone));
    members[1].state = MEMBER_LEAVING;
    monitor_see_workers(&m);
    m.status.n_members = 1;
    assert_false(is_said(&m, monitor_metrics, gone));
    m.status.n_members = 2;
    members[1].state = MEMBER_TRAINING;
    monitor_see_workers(&m);
    ps_monitor_removed(&m, 1);
    monitor_see_workers(&m);
    m.status.n_members = 1;
    monitor_see_workers(&m);
    assert_false(is_said(&m, monitor_metrics, gone));
}

static void a_folder_may_have_any_name(void **state)
{
    static struct ps_monitor m;
    begin(&m);
    m.cfg.folder = "/";
    strcpy(m.status.checkpoints.folder, "/a\xff/b");
    assert_true(is_said(&m, monitor_json, "\"folder\":\"/a?/b\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_chunks_there_is_no_step),
        cmocka_unit_test(who_stands_is_not_ready),
        cmocka_unit_test(a_folder_may_have_any_name),
        cmocka_unit_test(a_lost_worker_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
