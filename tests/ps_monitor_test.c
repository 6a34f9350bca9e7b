/* tests/ps_monitor_test.c - a server's pages about a job, made from given pulses and a given
 * status, without a service. */
#include "base/clock.h"
#include "net/wire/table_status.h"
#include "net/wire/tables.h"
#include "ps/monitor/monitor_impl.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct monitor_worker workers[JOB_MAX_WORKERS];
static const int64_t second = 1000000000;

/* Returns nonzero for workers 0 and 1. */
static int takes_part(void *ctx, int worker)
{
    return worker < 2;
}

/* Begins as ps_monitor_create does, for a job that trains; the status is not copied again. */
static void begin(struct ps_monitor *m)
{
    memset(m, 0, sizeof *m);
    memset(workers, 0, sizeof workers);
    m->workers = workers;
    m->saved_step = -1;
    m->saved_unix_s = m->began_unix_s = (double)NAN;
    m->cfg.takes_part = takes_part;
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

static int has_text(struct ps_monitor *m, int (*page)(void *ctx, FILE *f), const char *what)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_int_equal(page(m, f), 200);
    assert_int_equal(fclose(f), 0);
    int has = strstr(text, what) != NULL;
    free(text);
    return has;
}

/* A server without chunks makes no steps, and is ready. */
static void server_without_chunks_is_ready(void **state)
{
    static struct ps_monitor m;
    char why[MONITOR_WHY_BYTES];
    begin(&m);
    pulse(&m, 1, 5, 0, clock_now_ns() - 300 * second);
    struct monitor_pulse p = {.at_ns = clock_now_ns(), .generation = 2, .step = -1, .no_chunks = 1};
    monitor_pulse(&m, &p);
    m.status.step = -1;
    assert_int_equal(monitor_is_ready(&m, why), 1);
    assert_false(has_text(&m, monitor_metrics, "\nweir_ps_step"));
    assert_false(has_text(&m, monitor_metrics, "\nweir_ps_samples_total"));
    assert_false(has_text(&m, monitor_metrics, "\nweir_ps_last_step_timestamp"));
    assert_true(has_text(&m, monitor_metrics, "\nweir_ps_ready 1\n"));
    assert_true(has_text(&m, monitor_json, "\"step\":null,\"step_age_s\":null"));
}

/* A job that has stalled is not ready, even after a few steps, or after a generation without
 * steps. */
static void stalled_job_is_not_ready(void **state)
{
    static struct ps_monitor m;
    char why[MONITOR_WHY_BYTES];
    int64_t at = clock_now_ns() - 300 * second;
    begin(&m);
    pulse(&m, 1, 0, 0, at);
    pulse(&m, 1, 4, 0, at + 4 * second);
    m.status.steps_per_s = 4.0 / 300; /* speed until now */
    assert_int_equal(monitor_is_ready(&m, why), 0);
    pulse(&m, 2, 4, 4, clock_now_ns());
    assert_int_equal(monitor_is_ready(&m, why), 0);
    assert_non_null(strstr(why, "step 4 has not been completed for "));
    pulse(&m, 2, 5, 4, clock_now_ns());
    assert_int_equal(monitor_is_ready(&m, why), 1);
    /* A single slow step is no stall. */
    begin(&m);
    pulse(&m, 1, 0, 0, at);
    pulse(&m, 1, 4, 0, at + 160 * second);
    assert_int_equal(monitor_is_ready(&m, why), 1);
}

/* The job continues without the lost worker, and its list of members no longer contains the worker.
 * The pages report the worker as lost until it returns. */
static void lost_worker_stays_on_the_pages(void **state)
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
    assert_true(has_text(&m, monitor_metrics, gone));
    m.status.n_members = 2;
    assert_false(has_text(&m, monitor_metrics, gone));
    members[1].state = MEMBER_LEAVING;
    monitor_see_workers(&m);
    m.status.n_members = 1;
    assert_false(has_text(&m, monitor_metrics, gone));
    m.status.n_members = 2;
    members[1].state = MEMBER_TRAINING;
    monitor_see_workers(&m);
    ps_monitor_removed(&m, 1);
    monitor_see_workers(&m);
    m.status.n_members = 1;
    monitor_see_workers(&m);
    assert_false(has_text(&m, monitor_metrics, gone));
}

/* The pages have this server's part of each table. */
static void tables_are_on_the_pages(void **state)
{
    static struct ps_monitor m;
    struct net_status_table t[] = {{.n_buckets = 2,
                                    .rows = 30,
                                    .pending = 4,
                                    .bytes = 5000,
                                    .removed = 6,
                                    .keys = 80,
                                    .hottest = 1,
                                    .hottest_keys = 60}};
    struct net_table tables[] = {{.name = "ads"}};
    struct chunks chunks = {.n_tables = 1, .tables = tables};
    begin(&m);
    assert_false(has_text(&m, monitor_metrics, "weir_ps_table"));
    assert_true(has_text(&m, monitor_json, "\"tables\":[]"));
    m.status.chunks = &chunks;
    m.status.tables = t;
    m.status.n_tables = 1;
    assert_true(has_text(&m, monitor_metrics, "\nweir_ps_table_rows{table=\"ads\"} 30\n"));
    assert_true(has_text(&m, monitor_metrics, "\nweir_ps_table_pending_keys{table=\"ads\"} 4\n"));
    assert_true(has_text(&m, monitor_metrics, "\nweir_ps_table_bytes{table=\"ads\"} 5000\n"));
    assert_true(has_text(&m, monitor_metrics, "\nweir_ps_table_removed_total{table=\"ads\"} 6\n"));
    assert_true(has_text(&m, monitor_metrics, "\nweir_ps_table_keys_total{table=\"ads\"} 80\n"));
    assert_true(has_text(&m, monitor_metrics, "\nweir_ps_table_imbalance{table=\"ads\"} 1.5\n"));
    assert_true(has_text(&m, monitor_json,
                         "\"tables\":[{\"name\":\"ads\",\"buckets\":2,\"rows\":30,\"pending\":4,"
                         "\"bytes\":5000,\"removed\":6,\"keys\":80,\"hottest_bucket\":1,"
                         "\"imbalance\":1.5}]"));
}

static void folder_may_have_any_name(void **state)
{
    static struct ps_monitor m;
    begin(&m);
    m.cfg.folder = "/";
    strcpy(m.status.checkpoints.folder, "/a\xff/b");
    assert_true(has_text(&m, monitor_json, "\"folder\":\"/a?/b\""));
}

static struct net_report report_of(int worker, int64_t ms, int64_t n, double sum)
{
    return (struct net_report){.member = worker,
                               .life = 7,
                               .step = 40,
                               .steps = ms,
                               .images = 10 * ms,
                               .ms = ms,
                               .n_losses = n,
                               .loss_sum = sum};
}

static void infinite_losses_are_reported(void **state)
{
    static struct ps_monitor m;
    struct net_status_member member = {.member = 1, .state = MEMBER_TRAINING};
    begin(&m);
    m.status.members = &member;
    m.status.n_members = 1;
    pulse(&m, 1, 40, 0, clock_now_ns());
    struct net_report r = report_of(1, 1000, 4, 6);
    ps_monitor_reported(&m, &r);
    pulse(&m, 1, 41, 0, clock_now_ns());
    assert_true(has_text(&m, monitor_json, "\"loss\":1.5,\"loss_not_finite_since\":null"));
    r = report_of(1, 2000, 0, 0);
    r.nonfinite_since = 38;
    ps_monitor_reported(&m, &r);
    assert_true(has_text(&m, monitor_json, "\"loss\":1.5,\"loss_not_finite_since\":38,\"best"));
    assert_true(has_text(&m, monitor_json, "\"loss\":1.5,\"loss_not_finite_since\":38,\"memory"));
    r = report_of(1, 3000, 1, 2);
    ps_monitor_reported(&m, &r);
    assert_true(has_text(&m, monitor_json, "\"loss_not_finite_since\":null,\"best"));
}

/* The job's loss is finite while the loss of one worker is. If no worker has a finite loss, the
 * later of their steps is reported. */
static void job_has_a_loss_while_one_worker_has(void **state)
{
    static struct ps_monitor m;
    struct net_status_member members[2] = {{.member = 0, .state = MEMBER_TRAINING},
                                           {.member = 1, .state = MEMBER_TRAINING}};
    begin(&m);
    m.status.members = members;
    m.status.n_members = 2;
    pulse(&m, 1, 40, 0, clock_now_ns());
    struct net_report r = report_of(1, 1000, 0, 0);
    r.nonfinite_since = 38;
    ps_monitor_reported(&m, &r);
    r = report_of(0, 1000, 4, 6);
    ps_monitor_reported(&m, &r);
    pulse(&m, 1, 41, 0, clock_now_ns());
    assert_true(has_text(&m, monitor_json, "\"loss\":1.5,\"loss_not_finite_since\":null,\"best"));
    assert_true(has_text(&m, monitor_json, "\"loss_not_finite_since\":38,\"memory"));
    r = report_of(0, 2000, 0, 0);
    r.nonfinite_since = 40;
    ps_monitor_reported(&m, &r);
    assert_true(has_text(&m, monitor_json, "\"loss\":1.5,\"loss_not_finite_since\":40,\"best"));
}

/* A report names a worker that the job does not have: it changes no figure. */
static void reports_of_strangers_are_ignored(void **state)
{
    static struct ps_monitor m;
    begin(&m);
    struct net_report r = report_of(5, 1000, 4, 6);
    r.nonfinite_since = 3;
    assert_true(ps_monitor_reported(&m, &r) >= 1000);
    assert_int_equal(m.n_losses, 0);
    assert_int_equal(m.n_workers, 0);
    assert_true(m.refused_ns > 0);
    assert_int_equal(monitor_reports_nonfinite_since(&m), 0);
    m.refused_ns = 0;
    r = report_of(1, 1000, 4, 6);
    ps_monitor_reported(&m, &r);
    assert_int_equal(m.n_losses, 4);
    assert_int_equal(m.refused_ns, 0);
}

/* Cases: no checkpoint was ever made; a checkpoint of an earlier process; a new checkpoint. */
static void unsaved_steps_are_counted(void **state)
{
    static struct ps_monitor m;
    begin(&m);
    strcpy(m.status.checkpoints.folder, "/a");
    assert_false(has_text(&m, monitor_metrics, "\nweir_ps_checkpoint_unsaved_since"));
    pulse(&m, 1, 30, 20, clock_now_ns());
    assert_false(isnan(m.began_unix_s));
    m.began_unix_s = 1e9;
    assert_true(has_text(&m, monitor_metrics,
                         "\nweir_ps_checkpoint_unsaved_since_timestamp_seconds 1000000000\n"));
    assert_true(has_text(&m, monitor_metrics, "\nweir_ps_checkpoint_unsaved_steps 30\n"));
    m.status.checkpoints.last = 20;
    m.saved_unix_s = 1e8;
    assert_true(monitor_unsaved_unix_s(&m) == 1e9);
    assert_int_equal(monitor_unsaved_steps(&m), 10);
    m.saved_unix_s = 2e9;
    assert_true(monitor_unsaved_unix_s(&m) == 2e9);
    m.status.checkpoints.folder[0] = '\0';
    assert_false(has_text(&m, monitor_metrics, "\nweir_ps_checkpoint_unsaved"));
}

int main(void)
{
    return RUN_TESTS(server_without_chunks_is_ready, stalled_job_is_not_ready,
                     folder_may_have_any_name, tables_are_on_the_pages,
                     lost_worker_stays_on_the_pages, infinite_losses_are_reported,
                     job_has_a_loss_while_one_worker_has, reports_of_strangers_are_ignored,
                     unsaved_steps_are_counted);
}
