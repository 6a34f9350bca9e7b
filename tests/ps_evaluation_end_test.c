/* tests/ps_evaluation_end_test.c - evaluations of the validation data where a job ends
 * (ps/coordinator/evaluation.c): early, since there was no better one for long, or by its last
 * step. */
#include "tests/evaluation_rig.h"
#include <stdlib.h>

/* The job ends where training stands: nobody goes on before all have stopped. */
static void test_early_stopping(void **state)
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
    eval_tell_workers(&r);
    eval_server_calls(&r);
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.train_steps, 15);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO); /* its generation is over */
    eval_at(&r, 15, 0.75);                             /* as the last step is */
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    eval_expect_best(&r, 5);
    free(r.c);
}

/* A checkpoint by steps that is being written as the job is ended at its step does not say so: the
 * last one does. */
static void test_a_checkpoint_from_before_the_end(void **state)
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
        eval_tell_workers(&r);
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
        eval_tell_workers(&r);
    }
    assert_int_equal(r.manifest.step, 15);
    assert_true(r.manifest.generation == r.generation && r.generation > before);
    assert_int_equal(coordinator_view_last_step(r.c), 15);
    free(r.c);
}

/* It says nothing that the job ends with its last step. */
static void test_at_the_last_step(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_at(&r, 90, 0.5);
    eval_at(&r, STEPS, 0.75);
    assert_int_equal(r.n_plans, 1);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 0);
    free(r.c);
}

/* The other worker is gone before it has told its part of the last evaluation: when the next
 * generation is there, so is who evaluated all of it in the one before. */
static void test_one_is_killed_at_the_end(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_at(&r, 5, 0.5);
    eval_comes_to_the_end(&r);
    int n_manifests = r.n_manifests;
    uint64_t before = r.generation;
    struct net_evaluation v = eval_whole(&r, 0.25), part = v;
    part.n_parts = 2;
    part.n = SAMPLES / 2;
    assert_int_equal(eval_ask(&r, &part), EVALUATION_NEW);
    assert_int_equal(eval_ask(&r, &part), EVALUATION_WAIT);
    eval_loses_a_worker(&r);
    assert_int_equal(eval_ask(&r, &part), EVALUATION_GO);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_WAIT);
    r.stop_hangs = 0;
    for (int i = 0; eval_ask(&r, &v) != EVALUATION_GO; i++) {
        eval_server_calls(&r);
        eval_tell_workers(&r);
        assert_true(i < 50);
    }
    assert_int_equal(r.n_plans, 2);
    eval_server_calls(&r);
    eval_expect_best(&r, STEPS);
    assert_true(r.recorded.step == STEPS && r.recorded.generation == before);
    assert_int_equal(r.n_manifests, n_manifests); /* that of the last step is there */
    free(r.c);
}

/* A change that does not come to its end holds nobody for good. */
static void test_a_change_hangs_at_the_end(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_comes_to_the_end(&r);
    eval_loses_a_worker(&r);
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

/* ps 0 was started anew meanwhile: the checkpoint is made once more, in its generation. */
static void test_started_anew_at_the_end(void **state)
{
    struct rig r;
    eval_open_with(&r, 1, 1, NULL, STEPS);
    struct net_evaluation v = eval_whole(&r, 0.25);
    v.generation -= 7;
    for (int i = 0; eval_ask(&r, &v) != EVALUATION_GO; i++) {
        eval_server_calls(&r);
        eval_tell_workers(&r);
        assert_true(i < 50);
    }
    eval_server_calls(&r);
    eval_server_calls(&r);
    eval_expect_best(&r, STEPS);
    assert_true(r.recorded.generation == r.generation);
    v.step--; /* of an earlier step nothing comes */
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    free(r.c);
    eval_open_ps0(&r, (struct coordinator_start){.has_folder = 1, .has_all_steps = 1}, STEPS);
    v.step = STEPS;
    assert_int_equal(eval_ask(&r, &v), EVALUATION_WAIT); /* for the first plan */
    v.step--;
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    free(r.c);
}

/* Its worker is told nothing later: it waits until the best is named, or is not. */
static void test_the_last_is_told_the_best(void **state)
{
    static const enum status sts[] = {ST_OK, ST_IO};
    struct net_evaluation_reply reply;
    for (int i = 0; i < 2; i++) {
        struct rig r;
        eval_open(&r);
        eval_at(&r, 5, 0.5);
        eval_comes_to_the_end(&r);
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

/* The last step is saved, and given to the workers: that the disk hangs as `best` is written does
 * not make it doubtful whose job it was. */
static void test_a_disk_that_hangs_after_the_end(void **state)
{
    struct rig r;
    eval_open(&r);
    eval_at(&r, 5, 0.5);
    eval_comes_to_the_end(&r);
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

/* The last evaluation did best: ps 0 does not end before it is named, or the disk hangs. */
static void test_the_end_waits_for_the_best(void **state)
{
    for (int hangs = 0; hangs < 2; hangs++) {
        struct rig r;
        (void)state;
        eval_open(&r);
        eval_at(&r, 5, 0.5);
        r.best_hangs = 1;
        eval_comes_to_the_end(&r);
        const struct net_evaluation v = eval_whole(&r, 0.25);
        assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
        assert_true(r.best_op != 0);
        for (int i = 0; i < 2; i++)
            r.worker[i].done = 1;
        eval_tell_workers(&r);
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
    return RUN_TESTS(test_early_stopping, test_a_checkpoint_from_before_the_end,
                     test_at_the_last_step, test_one_is_killed_at_the_end,
                     test_a_change_hangs_at_the_end, test_started_anew_at_the_end,
                     test_the_last_is_told_the_best, test_a_disk_that_hangs_after_the_end,
                     test_the_end_waits_for_the_best);
}
