/* tests/ps_evaluation_test.c - what ps 0's coordinator makes of evaluations of the validation data
 * (ps/coordinator/evaluation.c): the best one's checkpoint, and what is compared with what. */
#include "tests/evaluation_rig.h"
#include <math.h>
#include <stdlib.h>

/* Held at the step until the chunks are taken, no longer; best once it is on the disk and named. */
static void test_the_best_has_a_checkpoint(void **state)
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

/* A Stop takes back the order for its checkpoint: nobody is held for one that cannot be, however
 * long the change takes. In the next generation the step is evaluated again. */
static void test_a_stop_comes_first(void **state)
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
    eval_tell_workers(&r);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_GO);
    for (int i = 0; i < 50; i++) {
        r.now += 1000 * MS;
        eval_server_calls(&r);
    }
    assert_int_equal(r.lines[LINE_BEST_LOST], 0);
    r.stop_hangs = 0;
    eval_server_calls(&r);
    eval_tell_workers(&r);
    eval_server_calls(&r);
    assert_int_equal(r.n_plans, 2);
    eval_expect_best(&r, -1);
    eval_at(&r, 5, 0.5);
    eval_expect_best(&r, 5);
    free(r.c);
}

/* What could not be written is not the best, and the next is compared with the one before. */
static void test_one_that_is_not_written(void **state)
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
    r.now += 2000 * MS; /* until the next try of a checkpoint */
    eval_at(&r, 15, 0.25);
    eval_expect_best(&r, 5);
    assert_int_equal(r.lines[LINE_BEST_LOST], 2);
    r.best_st = ST_OK;
    eval_at(&r, 20, 0.375);
    eval_expect_best(&r, 20);
    free(r.c);
}

/* A server that keeps no checkpoints says so at once: training is not held up, nor is the order
 * given again and again. */
static void test_a_server_that_cannot_write(void **state)
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
            eval_tell_workers(&r);
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

/* Nor is the next one by steps put off for it: it was not ahead of training. */
static void test_a_server_that_is_busy(void **state)
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

/* A ps 0 that is started anew comes to the same: by what the folder says and the step. */
static void test_started_anew(void **state)
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
    best.step = 7; /* the last of a job that had no more: 10 is the first evaluation after it */
    eval_open_with(&r, 1, 1, &best, 7);
    eval_at(&r, 10, 0.75);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 0);
    r.version = 15;
    const struct net_evaluation second = eval_whole(&r, 0.75);
    assert_int_equal(eval_ask(&r, &second), EVALUATION_NEW);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    free(r.c);
    best.step = 20; /* training goes on from before it */
    eval_open_with(&r, 1, 1, &best, 10);
    eval_expect_best(&r, -1);
    free(r.c);
}

static void test_other_data(void **state)
{
    struct rig r;
    const struct best_evaluation best = {1, 77, 5, 0.5, 0.5, {SAMPLES, 1, 3}};
    eval_open_with(&r, 1, 1, &best, 10);
    eval_at(&r, 15, 0.75);
    eval_expect_best(&r, 15);
    assert_int_equal(r.lines[LINE_BEST_OTHER], 1);
    free(r.c);
    eval_open_with(&r, 1, 1, &best, 60); /* counted from where it goes on */
    eval_at(&r, 65, (double)INFINITY);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 0);
    r.version = 70;
    const struct net_evaluation v = eval_whole(&r, (double)INFINITY);
    assert_int_equal(eval_ask(&r, &v), EVALUATION_NEW);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    free(r.c);
}

/* Whatever the order of their coming, the sums have the same bits; only the first waits for all. */
static void test_parts(void **state)
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

static void test_parts_that_are_not_the_set(void **state)
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

/* One without a folder that is started again gives a generation's number once more. */
static void test_of_another_ps0(void **state)
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

/* Nobody is held up: of another generation, of chunks that go each at its own pace, a loss that is
 * no number, a job without a folder. */
static void test_nothing_to_wait_for(void **state)
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

/* The server cannot take it in time: training goes on. */
static void test_a_checkpoint_that_does_not_come(void **state)
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

/* Its sweep knows nothing of a checkpoint that is being made: none is begun beside it. A disk that
 * hangs holds up no evaluation for good. */
static void test_no_checkpoint_beside_the_sweep(void **state)
{
    struct rig r;
    eval_open(&r);
    r.is_patient = 1; /* the job's end would have ps 0 ask whose the folder is, which hangs */
    r.best_hangs = 1;
    eval_at(&r, 5, 0.5);
    assert_true(r.best_op != 0);
    assert_int_equal(coordinator_view_order_step(r.c), -1);
    eval_expect_best(&r, -1);
    eval_step(&r, (struct coordinator_event){.kind = COORDINATOR_DISK, .op = r.best_op});
    eval_expect_best(&r, 5);
    eval_server_calls(&r);
    assert_int_equal(coordinator_view_order_step(r.c),
                     STEPS); /* the last step's is due all along */
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
    eval_expect_best(&r, 10); /* its file names that, and the sweep has gone by it */
    r.best_hangs = 0;
    eval_at(&r, 20, 0.375);
    eval_expect_best(&r, 10);
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    free(r.c);
}

/* Training goes back while the file is written: it names a step that is not there, as for a ps 0
 * that is started anew. */
static void test_back_while_the_best_is_named(void **state)
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
        eval_tell_workers(&r);
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
    return RUN_TESTS(test_the_best_has_a_checkpoint, test_a_stop_comes_first,
                     test_one_that_is_not_written, test_a_server_that_cannot_write,
                     test_a_server_that_is_busy, test_started_anew, test_other_data, test_parts,
                     test_parts_that_are_not_the_set, test_of_another_ps0, test_nothing_to_wait_for,
                     test_a_checkpoint_that_does_not_come, test_no_checkpoint_beside_the_sweep,
                     test_back_while_the_best_is_named);
}
