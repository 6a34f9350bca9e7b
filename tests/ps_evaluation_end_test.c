/* tests/ps_evaluation_end_test.c - evaluations of the validation data at the end of a job
 * (ps/coordinator/evaluation.c). The job ends early if no evaluation is better for a long time, and
 * otherwise with its last step. */
#include "tests/evaluation_rig.h"
#include <stdlib.h>

/* The job ends at the evaluated step, at which training waits: no worker continues before all
 * servers have stopped. */
static void early_stopping_ends_the_job_at_the_evaluated_step(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_at(&r, 5, 0.5);
    eval_at(&r, 10, 0.5);
    assert_int_equal(r.n_plans, 1);
    r.version = 15;
    r.stop_hangs = 1;
    const struct net_evaluation v = eval_whole(&r, 0.75);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    eval_server_calls(&r);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_WAIT);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    assert_int_equal(r.n_plans, 1);
    r.stop_hangs = 0;
    for (int i = 0; i < 2; i++)
        r.worker[i].asked = 1;
    eval_server_calls(&r);
    eval_report_workers(&r);
    eval_server_calls(&r);
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.train_steps, 15);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO); /* the generation has ended */
    eval_at(&r, 15, 0.75);                             /* step 15 is now the last step */
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    eval_expect_best(&r, 5);
    free(r.c);
}

/* A checkpoint by steps is being written when the job ends early at the same step. This checkpoint
 * does not record the end, but the last checkpoint, which follows, does. */
static void checkpoint_before_an_early_end_is_followed_by_the_last_one(void **state)
{
    struct rig r;
    eval_open_start(&r, (struct coordinator_start){.has_folder = 1, .save_steps = EVERY}, 1, 0);
    eval_at(&r, 5, 0.5);
    for (int at = 6; at <= 10; at++) {
        r.version = at;
        eval_server_calls(&r);
    }
    eval_at(&r, 10, 0.75);
    for (int at = 11; at <= 15; at++) {
        r.version = at;
        r.file_hangs = at == 15;
        eval_server_calls(&r);
    }
    assert_int_equal(coordinator_view_order_step(r.c), 15);
    assert_int_equal(r.phase, PART_WRITING);
    eval_server_calls(&r);
    const struct net_evaluation v = eval_whole(&r, 0.75);
    uint64_t before = r.generation;
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    for (int i = 0; i < 4; i++) {
        r.worker[i % 2].asked = 1;
        eval_server_calls(&r);
        eval_report_workers(&r);
    }
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.train_steps, 15);
    r.file_hangs = 0;
    eval_server_calls(&r);
    assert_int_equal(r.manifest.step, 15);
    assert_true(r.manifest.generation == before);
    for (int i = 0; i < 10; i++) {
        r.now += 500 * MS;
        eval_server_calls(&r);
        eval_report_workers(&r);
    }
    assert_int_equal(r.manifest.step, 15);
    assert_true(r.manifest.generation == r.generation && r.generation > before);
    assert_int_equal(coordinator_view_last_step(r.c), 15);
    free(r.c);
}

/* The evaluation of the last step does not log an early end. */
static void evaluation_of_the_last_step_ends_nothing_early(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_at(&r, 90, 0.5);
    eval_at(&r, STEPS, 0.75);
    assert_int_equal(r.n_plans, 1);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 0);
    free(r.c);
}

/* The second worker dies before it has reported its part of the last evaluation. In the next
 * generation ps 0 also has the first worker's evaluation from the generation before. */
static void worker_killed_at_the_end_does_not_block_the_evaluation(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_at(&r, 5, 0.5);
    eval_train_to_the_end(&r);
    int n_manifests = r.n_manifests;
    uint64_t before = r.generation;
    struct net_evaluation v = eval_whole(&r, 0.25), part = v;
    part.n_parts = 2;
    part.n = SAMPLES / 2;
    assert_int_equal(eval_ask(&r, &part), EVALUATION_NEW);
    assert_int_equal(eval_ask(&r, &part), EVALUATION_WAIT);
    eval_lose_worker(&r);
    assert_int_equal(eval_ask(&r, &part), EVALUATION_GO);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_WAIT);
    r.stop_hangs = 0;
    for (int i = 0; eval_ask(&r, &v) != EVALUATION_GO; i++) {
        eval_server_calls(&r);
        eval_report_workers(&r);
        assert_true(i < 50);
    }
    assert_int_equal(r.n_plans, 2);
    eval_server_calls(&r);
    eval_expect_best(&r, STEPS);
    assert_true(r.recorded.step == STEPS && r.recorded.generation == before);
    assert_int_equal(r.n_manifests, n_manifests); /* the last step's checkpoint exists */
    free(r.c);
}

/* A change that never ends does not make workers wait for ever. */
static void hanging_change_at_the_end_releases_workers(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_train_to_the_end(&r);
    eval_lose_worker(&r);
    const struct net_evaluation v = eval_whole(&r, 0.25);
    for (int i = 0; i < 25; i++) {
        r.now += 1000 * MS;
        eval_server_calls(&r);
        assert_int_equal(eval_ask(&r, &v), EVALUATION_WAIT);
    }
    for (int i = 0; i < 10; i++) {
        r.now += 1000 * MS;
        eval_server_calls(&r);
    }
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    free(r.c);
}

/* After its restart ps 0 makes the checkpoint of the best evaluation again, in its new
 * generation. */
static void restarted_ps0_saves_the_last_best_again(void **state)
{
    struct rig r;
    eval_open_with(&r, 1, 1, NULL, STEPS);
    struct net_evaluation v = eval_whole(&r, 0.25);
    v.generation -= 7;
    for (int i = 0; eval_ask(&r, &v) != EVALUATION_GO; i++) {
        eval_server_calls(&r);
        eval_report_workers(&r);
        assert_true(i < 50);
    }
    eval_server_calls(&r);
    eval_server_calls(&r);
    eval_expect_best(&r, STEPS);
    assert_true(r.recorded.generation == r.generation);
    v.step--; /* ps 0 has a later evaluation already */
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    free(r.c);
    eval_open_ps0(&r, (struct coordinator_start){.has_folder = 1, .has_all_steps = 1}, STEPS);
    v.step = STEPS;
    assert_int_equal(eval_ask(&r, &v), EVALUATION_WAIT); /* until the first plan */
    v.step--;
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    free(r.c);
}

/* The reply to its last evaluation is the last reply that a worker receives. So this reply waits
 * until the best evaluation is recorded, or its checkpoint has failed. */
static void last_evaluation_waits_for_the_best(void **state)
{
    static const enum status sts[] = {ST_OK, ST_IO};
    struct net_evaluation_reply reply;
    for (int i = 0; i < 2; i++) {
        struct rig r;
        eval_open(&r);
        eval_at(&r, 5, 0.5);
        eval_train_to_the_end(&r);
        r.best_hangs = 1;
        const struct net_evaluation v = eval_whole(&r, 0.25);
        assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
        assert_int_equal(evaluation_verdict(r.c, &v, &reply), EVALUATION_WAIT);
        assert_int_equal(reply.best.step, 5);
        eval_step(&r, (struct coordinator_event){
                          .kind = COORDINATOR_DISK, .op = r.best_op, .st = sts[i]});
        assert_int_equal(evaluation_verdict(r.c, &v, &reply), EVALUATION_GO);
        assert_int_equal(reply.best.step, i == 0 ? STEPS : 5);
        free(r.c);
    }
}

/* The last step is saved and released to the workers. If the disk then hangs in the write of
 * `best`, ps 0 is still certain that it owns the job. */
static void hanging_disk_after_the_end_does_not_fence_ps0(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_at(&r, 5, 0.5);
    eval_train_to_the_end(&r);
    r.best_hangs = 1;
    const struct net_evaluation v = eval_whole(&r, 0.25);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_true(r.best_op != 0);
    for (int i = 0; i < 400; i++) {
        r.now += 1000 * MS;
        eval_server_calls(&r);
    }
    assert_int_equal(r.n_fenced, 0);
    free(r.c);
}

/* The last evaluation is the best one. ps 0 ends only when this is recorded, or when the disk
 * hangs. */
static void end_waits_for_the_record_of_the_best(void **state)
{
    for (int hangs = 0; hangs < 2; hangs++) {
        struct rig r;
        (void)state;
        eval_open(&r);
        eval_at(&r, 5, 0.5);
        r.best_hangs = 1;
        eval_train_to_the_end(&r);
        const struct net_evaluation v = eval_whole(&r, 0.25);
        assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
        assert_true(r.best_op != 0);
        for (int i = 0; i < 2; i++)
            r.worker[i].done = 1;
        eval_report_workers(&r);
        eval_step(&r, (struct coordinator_event){.kind = COORDINATOR_COMMAND,
                                                 .command = {.what = COORDINATOR_FINISH}});
        for (int i = 0; i < 100; i++) {
            r.now += 100 * MS;
            eval_server_calls(&r);
        }
        assert_int_equal(r.n_finished, 0);
        if (!hangs)
            eval_step(&r, (struct coordinator_event){.kind = COORDINATOR_DISK, .op = r.best_op});
        for (int i = 0; hangs && i < 300; i++) {
            r.now += 100 * MS;
            eval_server_calls(&r);
        }
        assert_int_equal(r.n_finished, 1);
        eval_expect_best(&r, hangs ? 5 : STEPS);
        free(r.c);
    }
}

int main(void)
{
    return RUN_TESTS(early_stopping_ends_the_job_at_the_evaluated_step,
                     checkpoint_before_an_early_end_is_followed_by_the_last_one,
                     evaluation_of_the_last_step_ends_nothing_early,
                     worker_killed_at_the_end_does_not_block_the_evaluation,
                     hanging_change_at_the_end_releases_workers,
                     restarted_ps0_saves_the_last_best_again, last_evaluation_waits_for_the_best,
                     hanging_disk_after_the_end_does_not_fence_ps0,
                     end_waits_for_the_record_of_the_best);
}
