/* tests/ps_evaluation_test.c - evaluations of the validation data at ps 0's coordinator
 * (ps/coordinator/evaluation.c): which evaluations are compared, and the checkpoint of the best
 * one. */
#include "tests/evaluation_rig.h"
#include <math.h>
#include <stdlib.h>

/* Training waits at the step only until the servers hold its chunks. The evaluation is the best one
 * when its checkpoint is on the disk and recorded. */
static void best_evaluation_gets_a_checkpoint(void **state)
{
    struct net_evaluation_reply reply;
    struct rig r;
    eval_open(&r);
    r.version = 5;
    r.file_hangs = 1;
    const struct net_evaluation v = eval_whole(&r, 0.5);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_WAIT);
    eval_server_calls(&r);
    assert_int_equal(evaluation_verdict(r.c, &v, &reply), EVALUATION_GO);
    assert_int_equal(reply.best.step, -1);
    eval_expect_best(&r, -1);
    r.version = 7;
    r.file_hangs = 0;
    eval_server_calls(&r);
    eval_server_calls(&r);
    eval_expect_best(&r, 5);
    assert_int_equal(r.n_manifests, 1);
    assert_true(r.recorded.known && r.recorded.step == 5 && r.recorded.loss == 0.5);
    assert_true(r.recorded.accuracy == 0.5 && r.recorded.generation == r.generation);
    assert_int_equal(r.lines[LINE_BEST], 1);
    eval_at(&r, 10, 0.75);
    assert_int_equal(r.n_manifests, 1);
    eval_expect_best(&r, 5);
    eval_at(&r, 15, 0.25);
    assert_int_equal(r.n_manifests, 2);
    eval_expect_best(&r, 15);
    free(r.c);
}

/* When training stops for a change, the order for the checkpoint is cancelled: no worker waits for
 * a checkpoint that cannot be made, however long the change lasts. The next generation evaluates
 * the step again. */
static void stop_cancels_the_checkpoint_of_the_best(void **state)
{
    struct rig r;
    eval_open(&r);
    r.version = 5;
    r.stop_hangs = 1;
    struct net_evaluation v = eval_whole(&r, 0.5);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_WAIT);
    r.worker[1].leaving = 1;
    r.worker[1].missing_ms = 0;
    eval_report_workers(&r);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    for (int i = 0; i < 50; i++) {
        r.now += 1000 * MS;
        eval_server_calls(&r);
    }
    assert_int_equal(r.lines[LINE_BEST_LOST], 0);
    r.stop_hangs = 0;
    eval_server_calls(&r);
    eval_report_workers(&r);
    eval_server_calls(&r);
    assert_int_equal(r.n_plans, 2);
    eval_expect_best(&r, -1);
    eval_at(&r, 5, 0.5);
    eval_expect_best(&r, 5);
    free(r.c);
}

/* An evaluation whose checkpoint could not be written is not the best. The next evaluation is
 * compared with the previous best. */
static void failed_checkpoint_leaves_the_previous_best(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_at(&r, 5, 0.5);
    r.manifest_st = ST_IO;
    eval_at(&r, 10, 0.25);
    eval_expect_best(&r, 5);
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    r.manifest_st = ST_OK;
    r.best_st = ST_IO;
    r.now += 2000 * MS; /* until ps 0 tries a checkpoint again */
    eval_at(&r, 15, 0.25);
    eval_expect_best(&r, 5);
    assert_int_equal(r.lines[LINE_BEST_LOST], 2);
    r.best_st = ST_OK;
    eval_at(&r, 20, 0.375);
    eval_expect_best(&r, 20);
    free(r.c);
}

/* A server without checkpoints reports this at once. Training does not wait, and ps 0 does not
 * repeat the order. */
static void server_without_checkpoints_does_not_block_training(void **state)
{
    struct rig r;
    eval_open(&r);
    r.file_fails = 1;
    for (int k = 1; k <= 3; k++) {
        r.version = 5 * k;
        const struct net_evaluation v = eval_whole(&r, 1.0 / k);
        int64_t begin = r.now;
        while (eval_ask(&r, &v) != EVALUATION_GO) {
            r.now += 50 * MS;
            eval_server_calls(&r);
            eval_report_workers(&r);
            assert_true(r.now - begin < 2000 * MS);
        }
        assert_int_equal(r.lines[LINE_BEST_LOST], k);
        assert_int_equal(r.lines[LINE_CHECKPOINT_FAILED], k);
    }
    r.file_fails = 0;
    r.now += 1000 * MS;
    eval_at(&r, 20, 0.125);
    eval_expect_best(&r, 20);
    free(r.c);
}

/* A busy disk prevents the checkpoint of the best evaluation. The next checkpoint by steps is not
 * delayed, since training had already reached the step of the first one. */
static void busy_server_does_not_delay_the_next_checkpoint(void **state)
{
    struct rig r;
    eval_open_start(&r, (struct coordinator_start){.has_folder = 1, .save_steps = EVERY}, 1, 0);
    r.version = 3;
    r.disk_busy = 1;
    const struct net_evaluation v = eval_whole(&r, 0.5);
    for (int i = 0; eval_ask(&r, &v) != EVALUATION_GO; i++) {
        r.now += 500 * MS;
        eval_server_calls(&r);
        assert_true(i < 100);
    }
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    r.disk_busy = 0;
    for (int i = 0; i < 10; i++) {
        r.now += 500 * MS;
        eval_server_calls(&r);
    }
    assert_int_equal(coordinator_view_order_step(r.c), EVERY);
    free(r.c);
}

/* A restarted ps 0 makes the same decisions, from the best evaluation in the folder and its
 * step. */
static void restarted_ps0_decides_the_same(void **state)
{
    struct rig r;
    struct best_evaluation best = {1, 77, 5, 0.5, 0.5, {SAMPLES, 1, 2}};
    eval_open_with(&r, 1, 1, &best, 10);
    eval_at(&r, 10, 0.75);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 0);
    eval_expect_best(&r, 5);
    r.version = 15;
    const struct net_evaluation v = eval_whole(&r, 0.75);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    free(r.c);
    best.step = 7; /* the last step of a shorter job; the next evaluation is at step 10 */
    eval_open_with(&r, 1, 1, &best, 7);
    eval_at(&r, 10, 0.75);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 0);
    r.version = 15;
    const struct net_evaluation second = eval_whole(&r, 0.75);
    assert_int_equal(eval_ask(&r, &second), EVALUATION_NEW);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    free(r.c);
    best.step = 20; /* training resumes at an earlier step */
    eval_open_with(&r, 1, 1, &best, 10);
    eval_expect_best(&r, -1);
    free(r.c);
}

static void evaluations_of_other_data_are_not_compared(void **state)
{
    struct rig r;
    const struct best_evaluation best = {1, 77, 5, 0.5, 0.5, {SAMPLES, 1, 3}};
    eval_open_with(&r, 1, 1, &best, 10);
    eval_at(&r, 15, 0.75);
    eval_expect_best(&r, 15);
    assert_int_equal(r.lines[LINE_BEST_OTHER], 1);
    free(r.c);
    eval_open_with(&r, 1, 1, &best, 60); /* counted from step 60, where training resumes */
    eval_at(&r, 65, (double)INFINITY);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 0);
    r.version = 70;
    const struct net_evaluation v = eval_whole(&r, (double)INFINITY);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    free(r.c);
}

/* The sum has the same bits in any order of arrival. Only the sender of part 0 waits for all
 * parts. */
static void parts_are_summed_in_their_order(void **state)
{
    static const int orders[2][3] = {{0, 1, 2}, {2, 1, 0}};
    static const double losses[3] = {1e16, 1.25, -1e16 + 2};
    struct net_evaluation_reply reply[2];
    for (int k = 0; k < 2; k++) {
        struct rig r;
        eval_open(&r);
        r.version = 5;
        for (int i = 0; i < 3; i++) {
            struct net_evaluation v = eval_whole(&r, 0);
            v.part = orders[k][i];
            v.n_parts = 3;
            v.n = v.part < 2 ? 40 : 20;
            v.right = v.part;
            v.loss = losses[v.part];
            assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
            enum evaluation_go then = evaluation_verdict(r.c, &v, &reply[k]);
            assert_int_equal(then, v.part > 0 ? EVALUATION_GO : EVALUATION_WAIT);
            assert_int_equal(reply[k].n, i == 2 ? SAMPLES : 0);
        }
        free(r.c);
    }
    assert_int_equal(reply[0].right, 3);
    assert_true(reply[0].loss == reply[1].loss &&
                reply[0].loss == losses[0] + losses[1] + losses[2]);
}

static void incomplete_parts_are_ignored(void **state)
{
    struct rig r;
    eval_open(&r);
    r.version = 5;
    struct net_evaluation v = eval_whole(&r, 0.5);
    v.n--;
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    eval_server_calls(&r);
    assert_int_equal(r.n_manifests, 0);
    free(r.c);
}

/* A restarted ps 0 without a folder uses the same generation numbers again. */
static void evaluation_of_another_ps0_is_ignored(void **state)
{
    struct rig r;
    struct net_evaluation_reply reply;
    eval_open_with(&r, 0, 1, NULL, 0);
    r.version = 5;
    struct net_evaluation v = eval_whole(&r, 0.5);
    v.ps0++;
    assert_int_equal(evaluation_verdict(r.c, &v, &reply), EVALUATION_GO);
    eval_step(&r, (struct coordinator_event){.kind = COORDINATOR_EVALUATED, .evaluation = &v});
    eval_expect_best(&r, -1);
    v.step++;
    v.ps0--;
    eval_step(&r, (struct coordinator_event){.kind = COORDINATOR_EVALUATED, .evaluation = &v});
    eval_expect_best(&r, 6);
    free(r.c);
}

/* No worker waits after an evaluation of another generation, of independent chunks, of a loss that
 * is not finite, or of a job without a folder. */
static void evaluation_without_consequences_does_not_wait(void **state)
{
    struct rig r;
    struct net_evaluation_reply reply;
    eval_open(&r);
    r.version = 5;
    struct net_evaluation v = eval_whole(&r, (double)INFINITY);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    v.generation--;
    assert_int_equal(evaluation_verdict(r.c, &v, &reply), EVALUATION_GO);
    eval_expect_best(&r, -1);
    free(r.c);
    eval_open_with(&r, 1, 0, NULL, 0);
    v = eval_whole(&r, 0.5);
    assert_int_equal(evaluation_verdict(r.c, &v, &reply), EVALUATION_GO);
    free(r.c);
    eval_open_with(&r, 0, 1, NULL, 0);
    r.version = 5;
    v = eval_whole(&r, 0.5);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    eval_expect_best(&r, 5);
    free(r.c);
}

/* The server cannot capture the checkpoint in time: training continues. */
static void late_checkpoint_releases_training(void **state)
{
    struct rig r;
    eval_open(&r);
    r.version = 5;
    const struct net_evaluation v = eval_whole(&r, 0.5);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    for (int i = 0; i < 400; i++) {
        r.now += 100 * MS;
        eval_step(&r, (struct coordinator_event){.kind = COORDINATOR_TIMER});
    }
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    eval_expect_best(&r, -1);
    free(r.c);
}

/* The sweep after the record would delete the files of a checkpoint in progress, so no checkpoint
 * begins during the sweep. A disk that hangs does not block evaluations for ever. */
static void no_checkpoint_begins_during_the_sweep(void **state)
{
    struct rig r;
    eval_open(&r);
    r.is_patient = 1; /* at the job's end ps 0 would check the folder's owner, which hangs */
    r.best_hangs = 1;
    eval_at(&r, 5, 0.5);
    assert_true(r.best_op != 0);
    assert_int_equal(coordinator_view_order_step(r.c), -1);
    eval_expect_best(&r, -1);
    eval_step(&r, (struct coordinator_event){.kind = COORDINATOR_DISK, .op = r.best_op});
    eval_expect_best(&r, 5);
    eval_server_calls(&r);
    assert_int_equal(coordinator_view_order_step(r.c),
                     STEPS); /* the checkpoint of the last step is always due */
    eval_at(&r, 10, 0.25);
    uint32_t hangs = r.best_op;
    for (int i = 0; i < 400; i++) {
        r.now += 1000 * MS;
        eval_server_calls(&r);
    }
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    eval_at(&r, 15, 0.75);
    eval_expect_best(&r, 5);
    eval_step(&r, (struct coordinator_event){.kind = COORDINATOR_DISK, .op = hangs});
    eval_expect_best(&r, 10); /* `best` contains step 10, and the sweep has spared it */
    r.best_hangs = 0;
    eval_at(&r, 20, 0.375);
    eval_expect_best(&r, 10);
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    free(r.c);
}

/* Training rolls back while the file `best` is written. The file then contains a step that training
 * has not reached, as after a restart of ps 0. */
static void rollback_while_the_best_is_recorded_discards_it(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_at(&r, 5, 0.5);
    r.best_hangs = 1;
    eval_at(&r, 10, 0.25);
    uint32_t op = r.best_op;
    assert_true(op != 0);
    r.found = 5;
    r.incarnation++; /* the server has lost its chunks */
    r.version = -1;
    for (int i = 0; i < 10; i++) {
        r.now += 500 * MS;
        eval_server_calls(&r);
        eval_report_workers(&r);
    }
    assert_int_equal(r.n_plans, 2);
    r.version = 5;
    eval_server_calls(&r);
    eval_expect_best(&r, 5);
    r.version = 10;
    const struct net_evaluation v = eval_whole(&r, 0.375);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_WAIT);
    r.best_hangs = 0;
    eval_step(&r, (struct coordinator_event){.kind = COORDINATOR_DISK, .op = op});
    eval_expect_best(&r, -1);
    eval_at(&r, 10, 0.375);
    eval_expect_best(&r, 10);
    free(r.c);
}

int main(void)
{
    return RUN_TESTS(best_evaluation_gets_a_checkpoint, stop_cancels_the_checkpoint_of_the_best,
                     failed_checkpoint_leaves_the_previous_best,
                     server_without_checkpoints_does_not_block_training,
                     busy_server_does_not_delay_the_next_checkpoint, restarted_ps0_decides_the_same,
                     evaluations_of_other_data_are_not_compared, parts_are_summed_in_their_order,
                     incomplete_parts_are_ignored, evaluation_of_another_ps0_is_ignored,
                     evaluation_without_consequences_does_not_wait,
                     late_checkpoint_releases_training, no_checkpoint_begins_during_the_sweep,
                     rollback_while_the_best_is_recorded_discards_it);
}
