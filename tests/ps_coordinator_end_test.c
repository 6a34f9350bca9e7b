/* tests/ps_coordinator_end_test.c - ps 0's coordinator (ps/coordinator/coordinator.h): a job ends
 * before its last step, or only ps 0 ends; and log lines that the coordinator repeats. */
#include "ps/coordinator/coordinator_state.h"
#include "ps/coordinator/coordinator_times.h"
#include "tests/coordinator_rig.h"
#include <stdlib.h>
#include <string.h>

static void trains(struct rig *r)
{
    r->version++;
    rig_let_pass(r, 1000);
}

/* Lets worker i leave for good, with an error. */
static void fail_worker(struct rig *r, int i)
{
    r->worker[i].leaving = r->worker[i].failed = 1;
    r->worker[i].missing_ms = 0;
}

/* Starts a new process of worker i. */
static void restart_worker(struct rig *r, int i)
{
    r->worker[i] = (struct coordinator_worker_event){
        .member = i, .incarnation = 77 + (uint64_t)i, .missing_ms = 0, .joined = 1, .asked = 1};
}

static void two_servers(struct rig *r)
{
    rig_open(r, 0);
    rig_let_pass(r, 1000);
    rig_server_joins(r);
}

/* All servers receive the failure. ps 0 ends when they have acknowledged it. */
static void failure_of_all_workers_ends_all_servers(void **state)
{
    struct rig r;
    two_servers(&r);
    int n_plans = r.n_plans;
    fail_worker(&r, 0);
    fail_worker(&r, 1);
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_failed, 1);
    assert_int_equal(r.lines[LINE_JOB_FAILED], 1);
    assert_int_equal(r.n_plans, n_plans);
    assert_false(r.server[1].failed); /* main has not received the failure yet */
    rig_command(&r, COORDINATOR_FINISH);
    assert_int_equal(r.n_finished, 0);
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_finished, 1);
    assert_true(r.server[1].failed);
    assert_int_equal(r.n_failed, 1);
    assert_int_equal(r.lines[WAIT_WORKERS], 0);
    assert_int_equal(r.lines[LINE_CHECKPOINT_NO_LAST], 0);
    assert_false(coordinator_view_lacks_last(r.c));
    free(r.c);
}

/* A server that does not call gets a limited time to receive the failure. */
static void failed_job_waits_briefly_for_a_silent_server(void **state)
{
    struct rig r;
    two_servers(&r);
    fail_worker(&r, 0);
    fail_worker(&r, 1);
    rig_let_pass(&r, 1000);
    r.n_servers = 1;
    rig_command(&r, COORDINATOR_FINISH);
    rig_let_pass(&r, 10000);
    assert_int_equal(r.n_finished, 0);
    rig_let_pass(&r, 10000);
    assert_int_equal(r.n_finished, 1);
    free(r.c);
}

/* A failed job makes no checkpoint, and keeps an earlier one. */
static void failed_job_makes_no_checkpoint(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    rig_let_pass(&r, 1000);
    rig_ask(&r);
    rig_let_pass(&r, 2000);
    assert_int_equal(r.n_manifests, 1);
    trains(&r);
    fail_worker(&r, 0);
    fail_worker(&r, 1);
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_failed, 1);
    rig_finish(&r, 1000);
    assert_int_equal(r.n_manifests, 1);
    free(r.c);
}

/* One worker fails, and the other one continues. When the other worker fails, too, the job has
 * failed. */
static void job_fails_when_its_last_worker_fails(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_let_pass(&r, 1000);
    fail_worker(&r, 1);
    rig_changes(&r, 3 * LOOK_EVERY_MS);
    rig_let_pass(&r, MOST_MS);
    assert_int_equal(r.n_failed, 0);
    fail_worker(&r, 0);
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_failed, 1);
    assert_int_equal(r.n_plans, 2);
    free(r.c);
}

/* A lost worker may return and continue the job, unless other workers have made a step since. */
static void lost_worker_may_continue_a_failed_job(void **state)
{
    for (int has_moved = 0; has_moved < 2; has_moved++) {
        struct rig r;
        rig_open(&r, 0);
        rig_let_pass(&r, 1000);
        for (int i = 0; i < 15; i++) /* worker 1 has sent its first message by then */
            rig_look(&r);
        r.worker[1].spoke = 1;
        r.worker[1].missing_ms = 0;
        rig_changes(&r, 11000);
        if (has_moved)
            trains(&r);
        fail_worker(&r, 0);
        rig_let_pass(&r, MOST_MS);
        assert_int_equal(r.n_failed, has_moved);
        assert_int_equal(r.lines[WAIT_WORKERS] > 0, !has_moved);
        if (!has_moved) {
            r.worker[1] = (struct coordinator_worker_event){
                .member = 1, .incarnation = 88, .missing_ms = -1, .waits = 1};
            rig_changes(&r, 3 * LOOK_EVERY_MS);
        }
        free(r.c);
    }
}

/* A lost worker's error arrives late, and still counts. */
static void late_error_of_a_lost_worker_counts(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_let_pass(&r, 1000);
    r.worker[1].missing_ms = 0;
    rig_changes(&r, 11000);
    fail_worker(&r, 1);
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_failed, 0);
    fail_worker(&r, 0);
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_failed, 1);
    free(r.c);
}

/* ps 0 does not wait for a server that has left the job. */
static void failed_job_does_not_wait_for_a_left_server(void **state)
{
    struct rig r;
    two_servers(&r);
    rig_step(&r,
             (struct coordinator_event){.kind = COORDINATOR_COMMAND,
                                        .command = {.what = COORDINATOR_DRAIN_SERVER, .index = 1}});
    rig_changes(&r, 1000);
    rig_let_pass(&r, 1000);
    r.n_servers = 1;
    for (uint64_t call = 1; call <= r.call; call++) /* its process, and so its calls, have ended */
        rig_step(&r, (struct coordinator_event){.kind = COORDINATOR_CLOSED, .call = call});
    rig_let_pass(&r, 1000);
    fail_worker(&r, 0);
    fail_worker(&r, 1);
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_failed, 1);
    rig_finish(&r, 1000);
    free(r.c);
}

/* Before there are first values the step is -1, and the text does not contain it. */
static void wait_before_the_first_step_names_no_step(void **state)
{
    struct rig r;
    char text[256];
    struct coordinator_line line = {WAIT_WORKERS, -1, -1, {-1, 0, 1}};
    rig_open(&r, 0);
    coordinator_line_text(r.c, &line, NULL, text, sizeof text);
    assert_string_equal(text, "training waits before its first step: 0 workers are present, "
                              "--min_workers=1; start more, or end the job with weirctl stop");
    line.arg[0] = 0;
    coordinator_line_text(r.c, &line, NULL, text, sizeof text);
    assert_non_null(strstr(text, "training waits at step 0: 0 workers are present"));
    free(r.c);
}

static enum coordinator_server_kind kind_of(const struct rig *r, int server)
{
    struct coordinator_server_view v;
    coordinator_view_server(r->c, server, &v);
    return v.kind;
}

/* The disk fails during training, and again when ps 0 ends. Only the first line reports that
 * training continues. */
static void checkpoint_given_up_at_the_end_does_not_announce_training(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    r.manifest_st = ST_IO;
    rig_ask(&r);
    rig_let_pass(&r, 1000);
    assert_string_equal(r.given_up, "checkpoint at step 3 given up: its manifest could not be "
                                    "written; training continues");
    rig_step(&r, (struct coordinator_event){.kind = COORDINATOR_COMMAND,
                                            .command = {.what = COORDINATOR_FINISH}});
    rig_let_pass(&r, MOST_MS);
    assert_string_equal(r.given_up,
                        "checkpoint at step 3 given up: its manifest could not be written");
    free(r.c);
}

static void restarted_server_has_written_no_part(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    rig_let_pass(&r, 1000);
    rig_server_joins(&r);
    r.server[1].hangs = 1;
    rig_ask(&r);
    rig_let_pass(&r, 1000);
    r.server[1] = (struct rig_server){.restarts = 1};
    rig_let_pass(&r, 10000); /* ps 0 waits for calls of the earlier process */
    assert_string_equal(r.given_up,
                        "checkpoint at step 3 given up: ps:1 ended before it wrote its part");
    free(r.c);
}

/* A server may be silent for long while training makes steps. If training waits for the server, it
 * is reported as missing before a line is due. */
static void silent_server_is_missing_when_training_waits_for_it(void **state)
{
    struct rig r;
    struct coordinator_line wait;
    two_servers(&r);
    rig_let_pass(&r, 1000);
    rig_let_pass(&r, 10000); /* training waits, and both servers call */
    assert_int_equal(kind_of(&r, 1), SERVER_PRESENT);
    r.n_servers = 1;
    for (int i = 0; i < 8; i++)
        trains(&r);
    assert_int_equal(kind_of(&r, 1), SERVER_PRESENT);
    r.n_servers = 2;
    trains(&r);
    r.n_servers = 1;
    rig_let_pass(&r, OVERDUE_MS + 1000);
    assert_false(coordinator_view_waits_for(r.c, &wait));
    assert_int_equal(kind_of(&r, 1), SERVER_SILENT);
    rig_let_pass(&r, FRESH_MS - OVERDUE_MS);
    assert_true(coordinator_view_waits_for(r.c, &wait));
    assert_int_equal(wait.id, WAIT_SILENT);
    r.n_servers = 2;
    rig_let_pass(&r, 1000);
    assert_int_equal(kind_of(&r, 1), SERVER_PRESENT);
    free(r.c);
}

/* A worker that leaves or is away has not failed, and neither has a worker that failed and was
 * restarted in time. */
static void job_with_other_workers_does_not_fail(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_let_pass(&r, 1000);
    fail_worker(&r, 0);
    r.worker[1].leaving = 1;
    r.worker[1].missing_ms = 0;
    rig_let_pass(&r, MOST_MS);
    assert_int_equal(r.n_failed, 0);
    assert_true(r.lines[WAIT_WORKERS] > 0);
    free(r.c);
    rig_open(&r, 0);
    rig_let_pass(&r, 1000);
    fail_worker(&r, 0);
    fail_worker(&r, 1);
    rig_report_workers(&r);
    restart_worker(&r, 0);
    rig_changes(&r, 3 * LOOK_EVERY_MS);
    assert_int_equal(r.n_failed, 0);
    free(r.c);
}

static void stop_job(struct rig *r)
{
    char why[CONTROL_TEXT_BYTES];
    assert_int_equal(coordinator_command_text(r->c, COORDINATOR_STOP_JOB, 0, why, sizeof why), 1);
    rig_command(r, COORDINATOR_STOP_JOB);
}

/* The job ends at its present step, whose checkpoint is the last one. */
static void stopped_job_ends_at_its_present_step(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    for (int i = 0; i < 5; i++)
        trains(&r);
    int n_plans = r.n_plans;
    stop_job(&r);
    rig_changes(&r, 1000);
    assert_int_equal(r.n_plans, n_plans + 1);
    assert_int_equal(r.train_steps, r.version);
    rig_let_pass(&r, 3000);
    assert_int_equal(coordinator_view_last_step(r.c), r.version);
    assert_int_equal(r.lines[LINE_JOB_STOPPED], 1);
    assert_int_equal(r.n_plans, n_plans + 1);
    stop_job(&r); /* a repeated request changes nothing */
    rig_let_pass(&r, 3000);
    assert_int_equal(r.n_plans, n_plans + 1);
    assert_int_equal(r.n_done, 0); /* the job ends when its workers have left */
    for (int i = 0; i < 2; i++)
        r.worker[i].done = 1;
    rig_let_pass(&r, 1000);
    assert_int_equal(r.lines[WAIT_WORKERS], 0);
    free(r.c);
}

/* No worker is left to end the job, so the servers end it after a last checkpoint. */
static void stopped_job_without_workers_ends(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    rig_let_pass(&r, 1000);
    rig_server_joins(&r);
    trains(&r);
    for (int i = 0; i < 2; i++) {
        r.worker[i].leaving = 1;
        r.worker[i].missing_ms = 0;
    }
    rig_let_pass(&r, MOST_MS);
    assert_int_equal(r.n_done, 0);
    stop_job(&r);
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_done, 1);
    assert_int_equal(r.lines[LINE_JOB_STOPPED], 1);
    assert_false(r.server[1].ended); /* not before the last checkpoint */
    rig_finish(&r, 3000);
    assert_int_equal(coordinator_view_last_step(r.c), r.version);
    assert_true(r.server[1].ended);
    assert_false(coordinator_view_lacks_last(r.c));
    free(r.c);
}

/* Replaces worker i by a worker that has never joined. */
static void make_absent(struct rig *r, int i)
{
    r->worker[i] = (struct coordinator_worker_event){.member = i, .missing_ms = 0};
}

/* Only one worker has joined. It makes one step, with or without first values. ps 0 does not wait
 * for the other worker, although a job that is not stopped waits for an absent worker without a
 * limit. */
static void stopped_job_does_not_wait_for_an_absent_worker(void **state)
{
    for (int i = 0; i < 2; i++)
        for (int version = -1; version <= 0; version++) {
            struct rig r;
            rig_open(&r, 1);
            r.version = version;
            make_absent(&r, i);
            rig_let_pass(&r, MOST_MS);
            assert_int_equal(r.n_plans, 1);
            stop_job(&r);
            rig_changes(&r, 1000);
            assert_int_equal(r.train_steps, 1);
            assert_int_equal(r.lines[LINE_JOB_STOPPED], 1);
            assert_int_equal(r.lines[LINE_WORKER_LATE], 0);
            r.version = 1;
            r.worker[1 - i].done = 1;
            rig_let_pass(&r, 3000);
            assert_int_equal(r.n_plans, 2);
            assert_int_equal(coordinator_view_last_step(r.c), 1);
            rig_finish(&r, 1000);
            free(r.c);
        }
}

/* A worker dies after the request to stop, so fewer than --min_workers are left. This holds up
 * training, but not the job's end. */
static void stopped_job_ends_below_min_workers(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.c->min_workers = 2;
    r.version = 0;
    rig_let_pass(&r, 1000);
    stop_job(&r);
    rig_changes(&r, 1000);
    r.worker[1].missing_ms = 0;
    rig_changes(&r, MOST_MS);
    assert_int_equal(r.train_steps, 1);
    free(r.c);
}

/* No worker can join before ps 0 is in a generation. So a generation begins with fewer workers than
 * --min_workers, and training waits in it. */
static void generation_below_min_workers_stops(void **state)
{
    struct rig r;
    rig_start(&r, 1, 0);
    r.c->min_workers = 2;
    r.server[0].damaged = term_of(1, 1);
    r.found = 40;
    rig_report_server(&r, 0);
    rig_step(&r, (struct coordinator_event){.kind = COORDINATOR_JOB,
                                            .job = {.train_steps = STEPS,
                                                    .step = 60,
                                                    .from_checkpoint = 1,
                                                    .lockstep = 1,
                                                    .n_members = 1}});
    r.worker[0] = (struct coordinator_worker_event){
        .member = 0, .incarnation = 11, .missing_ms = -1, .joined = 1};
    r.worker[1] = (struct coordinator_worker_event){.member = -1};
    rig_let_pass(&r, MOST_MS);
    assert_int_equal(r.n_plans, 2);
    assert_true(r.lines[WAIT_WORKERS] > 0);
    assert_false(coordinator_view_is_settled(r.c));
    r.worker[1] = (struct coordinator_worker_event){
        .member = 1, .incarnation = 12, .missing_ms = 0, .waits = 1};
    rig_changes(&r, 1000);
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_plans, 3);
    free(r.c);
}

/* The servers end at once, without a checkpoint if there is nothing to save. */
static void stopped_job_that_no_worker_joined_ends(void **state)
{
    for (int version = -1; version <= 0; version++) {
        struct rig r;
        rig_open(&r, 1);
        r.version = version;
        make_absent(&r, 0);
        make_absent(&r, 1);
        rig_let_pass(&r, 1000);
        stop_job(&r);
        rig_let_pass(&r, 1000);
        assert_int_equal(r.n_done, 1);
        rig_finish(&r, 3000);
        assert_false(coordinator_view_lacks_last(r.c));
        free(r.c);
    }
}

/* The job's checkpoint is damaged, and ps 0 finds no other. ps 0 sees the job's workers only in a
 * generation, and does not wait for them. */
static void stopped_job_that_cannot_begin_ends(void **state)
{
    struct rig r;
    rig_start(&r, 1, 0);
    r.c->min_workers = 1;
    r.server[0].damaged = term_of(1, 1);
    r.find_st = ST_IO;
    rig_report_server(&r, 0);
    rig_step(&r, (struct coordinator_event){.kind = COORDINATOR_JOB,
                                            .job = {.train_steps = STEPS,
                                                    .step = 60,
                                                    .from_checkpoint = 1,
                                                    .lockstep = 1,
                                                    .n_members = 2}});
    r.generation = 0; /* neither ps 0 nor its workers are in a generation of this ps 0 */
    rig_let_pass(&r, MOST_MS);
    assert_true(r.passed_over == term_of(1, 1));
    assert_int_equal(r.n_plans, 1);
    assert_int_equal(r.n_done, 0);
    stop_job(&r);
    rig_let_pass(&r, 3000);
    assert_int_equal(r.n_done, 1);
    rig_finish(&r, MOST_MS);
    assert_int_equal(r.n_done, 1);
    free(r.c);
}

/* Servers without a job have nothing to save. */
static void servers_without_a_job_stop_at_once(void **state)
{
    struct rig r;
    rig_start(&r, 0, 0);
    stop_job(&r);
    assert_int_equal(r.n_done, 1);
    rig_command(&r, COORDINATOR_FINISH);
    assert_int_equal(r.n_finished, 1);
    free(r.c);
}

/* The servers stay with --serve, and the answer to the command reports this. The next job is not
 * stopped. */
static void serving_servers_wait_for_the_next_job(void **state)
{
    char why[CONTROL_TEXT_BYTES];
    struct rig r;
    rig_start(&r, 0, 0);
    r.c->serves = 1;
    assert_int_equal(coordinator_command_text(r.c, COORDINATOR_STOP_JOB, 0, why, sizeof why), 0);
    assert_non_null(strstr(why, "there is no job to stop"));
    free(r.c);
    rig_open(&r, 0);
    r.c->serves = 1;
    trains(&r);
    stop_job(&r);
    coordinator_command_text(r.c, COORDINATOR_STOP_JOB, 0, why, sizeof why);
    assert_non_null(strstr(why, "its servers, which run with --serve, wait for the next job"));
    rig_changes(&r, 1000);
    for (int i = 0; i < 2; i++)
        r.worker[i].done = 1;
    rig_let_pass(&r, 1000);
    assert_int_equal(coordinator_command_text(r.c, COORDINATOR_STOP_JOB, 0, why, sizeof why), 0);
    r.c->job_done = 1; /* ps 0 has ended the job: its last worker has left */
    rig_step(&r, (struct coordinator_event){
                     .kind = COORDINATOR_JOB,
                     .job = {.train_steps = STEPS, .lockstep = 1, .n_members = 2}});
    assert_int_equal(r.train_steps, 0); /* unchanged since the job began */
    assert_false(r.c->job_done || r.c->stop_asked);
    free(r.c);
}

/* The line names the server that prevents the last checkpoint. */
static void missing_last_checkpoint_names_the_server(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    rig_let_pass(&r, 1000);
    rig_server_joins(&r);
    r.server[1].runs = 1;
    rig_finish(&r, MOST_MS);
    assert_int_equal(r.lines[LINE_CHECKPOINT_NO_LAST], 1);
    assert_true(coordinator_view_lacks_last(r.c));
    assert_non_null(
        strstr(r.no_last, "ps:1 (h:2) did not stop at the same step as the other servers"));
    assert_null(strstr(r.no_last, "ps:0"));
    free(r.c);
}

/* The checkpoint already has all steps when training stops for a change. So no checkpoint is
 * missing at the end. */
static void saved_job_lacks_no_checkpoint(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    rig_let_pass(&r, 1000);
    rig_server_joins(&r);
    r.version = STEPS;
    rig_let_pass(&r, 2000);
    assert_int_equal(r.n_manifests, 1);
    r.server[1].runs = 1;
    r.worker[1].missing_ms = 0;
    rig_let_pass(&r, 3 * (int64_t)TIMEOUT_MS);
    rig_step(&r, (struct coordinator_event){.kind = COORDINATOR_COMMAND,
                                            .command = {.what = COORDINATOR_FINISH}});
    rig_let_pass(&r, MOST_MS);
    assert_int_equal(r.n_finished, 1);
    assert_int_equal(r.lines[LINE_CHECKPOINT_NO_LAST], 0);
    assert_false(coordinator_view_lacks_last(r.c));
    free(r.c);
}

/* The plan is retried every second, and its failure is logged once. */
static void failed_plan_is_retried_and_logged_once(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_let_pass(&r, 1000);
    r.no_memory = 30;
    fail_worker(&r, 1);
    rig_changes(&r, MOST_MS);
    assert_int_equal(r.no_memory, 0);
    assert_int_equal(r.lines[WAIT_FIND_FAILED], 1);
    r.no_memory = 30; /* the next change fails in the same way */
    r.n_servers++;
    rig_changes(&r, MOST_MS);
    assert_int_equal(r.lines[WAIT_FIND_FAILED], 2);
    free(r.c);
}

int main(void)
{
    return RUN_TESTS(
        failure_of_all_workers_ends_all_servers, failed_job_waits_briefly_for_a_silent_server,
        failed_job_makes_no_checkpoint, job_fails_when_its_last_worker_fails,
        lost_worker_may_continue_a_failed_job, late_error_of_a_lost_worker_counts,
        failed_job_does_not_wait_for_a_left_server, wait_before_the_first_step_names_no_step,
        checkpoint_given_up_at_the_end_does_not_announce_training,
        restarted_server_has_written_no_part, silent_server_is_missing_when_training_waits_for_it,
        job_with_other_workers_does_not_fail, stopped_job_ends_at_its_present_step,
        stopped_job_without_workers_ends, stopped_job_does_not_wait_for_an_absent_worker,
        stopped_job_ends_below_min_workers, stopped_job_that_no_worker_joined_ends,
        stopped_job_that_cannot_begin_ends, generation_below_min_workers_stops,
        servers_without_a_job_stop_at_once, serving_servers_wait_for_the_next_job,
        missing_last_checkpoint_names_the_server, saved_job_lacks_no_checkpoint,
        failed_plan_is_retried_and_logged_once);
}
