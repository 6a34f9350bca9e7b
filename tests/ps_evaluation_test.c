/* tests/ps_evaluation_test.c - what ps 0's coordinator makes of evaluations of the validation data
 * (ps/coordinator/evaluation.c): the best one's checkpoint, and the end of the job where there was
 * no better one for long. One server, two workers, a clock and a disk of the test's. */
#include "ps/coordinator/coordinator_view.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* after its needs */
#include <cmocka.h>

enum { STEPS = 100, EVERY = 5, PATIENCE = 2, SAMPLES = 100 };
#define MS ((int64_t)1000000)

struct rig {
    struct coord *c;
    int64_t now, version;
    uint64_t call, generation, order;
    int phase;
    int file_hangs, stop_hangs; /* the server does not write, does not say that it has stopped */
    int file_fails;             /* it cannot write: its folder takes no files */
    int n_plans, n_manifests;
    struct coord_manifest_view manifest; /* the last */
    int64_t train_steps;                 /* of the last plan: 0: as it was */
    enum status manifest_st, best_st;
    int best_hangs;   /* the file `best` is not written: */
    uint32_t best_op; /* this order */
    struct coord_best recorded;
    int64_t found;        /* step of the newest checkpoint; 0: there is none */
    uint64_t incarnation; /* of the server, beyond its first */
    int n_finished;
    int lines[COORD_N_LINES];
    struct coord_worker_state worker[2];
};

static void step(struct rig *r, struct coord_event e);

static void disk_ends(struct rig *r, const struct coord_action *a)
{
    struct coord_manifest_view m = {.step = -1};
    struct coord_event e = {.kind = COORD_DISK, .op = a->op, .disk = {.epoch = a->value}};
    if (a->disk == DISK_FIND && r->found == 0)
        e.st = ST_NOT_FOUND;
    if (a->disk == DISK_MANIFEST) {
        r->n_manifests++;
        coord_manifest(r->c, &r->manifest);
        e.st = r->manifest_st;
    }
    if (a->disk == DISK_BEST && r->best_hangs) {
        r->best_op = a->op;
        return;
    }
    if (a->disk == DISK_BEST) {
        e.st = r->best_st;
        if (e.st == ST_OK)
            coord_new_best(r->c, &r->recorded);
    }
    coord_manifest(r->c, &m);
    e.disk.step = a->disk == DISK_MANIFEST ? m.step : a->disk == DISK_FIND ? r->found : -1;
    step(r, e);
}

static void on_plan(struct rig *r, uint32_t op)
{
    struct coord_plan_view plan;
    coord_next_plan(r->c, &plan);
    r->generation = plan.generation;
    r->train_steps = plan.train_steps;
    r->n_plans++;
    step(r, (struct coord_event){.kind = COORD_PLANNED, .op = op});
}

static void step(struct rig *r, struct coord_event e)
{
    struct coord_out out;
    e.lowest = e.highest = r->version;
    coord_step(r->c, &e, r->now, &out);
    for (int i = 0; i < out.n; i++) {
        const struct coord_action *a = &out.act[i];
        if (a->kind == ACT_PLAN)
            on_plan(r, a->op);
        else if (a->kind == ACT_DISK)
            disk_ends(r, a);
        else if (a->kind == ACT_FINISHED)
            r->n_finished++;
        else if (a->kind == ACT_LINE)
            r->lines[a->line.id]++;
    }
}

/* The server is where the plan in force wants it, and does what it is told. */
static void server_calls(struct rig *r)
{
    struct net_control_reply reply = {.step = -1};
    struct net_control said = {.n_servers = 1, .incarnation = 9 + r->incarnation};
    r->now += MS;
    coord_fill_reply(r->c, 0, &reply);
    if (reply.order != r->order && reply.step >= 0) {
        r->order = reply.order;
        r->phase = CONTROL_ARMED;
    }
    if (reply.step < 0 && r->phase == CONTROL_ARMED)
        r->phase = CONTROL_IDLE;
    if (r->phase == CONTROL_ARMED && r->file_fails)
        r->phase = CONTROL_FAILED;
    if (r->phase == CONTROL_ARMED && r->version >= reply.step)
        r->phase = r->version == reply.step ? CONTROL_WRITING : CONTROL_PAST;
    else if (r->phase == CONTROL_WRITING && !r->file_hangs)
        r->phase = CONTROL_WRITTEN;
    snprintf(said.address, sizeof said.address, "h:1");
    said.generation = r->generation;
    said.ps0 = said.heard_ps0 = 9;
    said.heard_epoch = 1;
    said.order = r->order;
    said.phase = r->phase;
    said.stop = r->stop_hangs ? 0 : reply.stop;
    said.stopped = 1;
    said.lowest = said.highest = r->version;
    said.seen = reply.number;
    step(r, (struct coord_event){.kind = COORD_CONTROL, .control = &said, .call = ++r->call});
}

static void tell_workers(struct rig *r)
{
    step(r,
         (struct coord_event){.kind = COORD_WORKERS, .workers = {r->generation, 0, 2, r->worker}});
}

/* ps 0 alone: there is no job yet. */
static void open_ps0(struct rig *r, struct coord_start start, int64_t from)
{
    char *addrs[] = {"h:1"};
    const struct hosts servers = {1, addrs};
    start.incarnation = 9;
    start.address = "h:1";
    start.servers = &servers;
    start.worker_timeout_ms = 1000;
    start.last_step = from > 0 ? from : -1;
    *r = (struct rig){.c = calloc(1, coord_bytes(2, 4)), .now = 1000 * MS, .version = from};
    coord_init(r->c, 2, 4);
    step(r, (struct coord_event){.kind = COORD_START, .start = &start});
    server_calls(r);
}

static void open_start(struct rig *r, struct coord_start start, int lockstep, int64_t from)
{
    open_ps0(r, start, from);
    step(r, (struct coord_event){.kind = COORD_JOB,
                                 .job = {.train_steps = STEPS,
                                         .step = from,
                                         .from_checkpoint = from > 0,
                                         .lockstep = lockstep,
                                         .n_members = 2}});
    assert_int_equal(r->n_plans, 1);
    for (int i = 0; i < 2; i++)
        r->worker[i] = (struct coord_worker_state){.member = i,
                                                   .incarnation = 11 + (uint64_t)i,
                                                   .missing_ms = -1,
                                                   .joined = 1,
                                                   .spoke = 1};
    server_calls(r);
    tell_workers(r);
}

static void open_with(struct rig *r, int has_folder, int lockstep, const struct coord_best *best,
                      int64_t from)
{
    struct coord_start start = {.has_folder = has_folder};
    if (best)
        start.best = *best;
    open_start(r, start, lockstep, from);
}

static void open_rig(struct rig *r)
{
    open_with(r, 1, 1, NULL, 0);
}

static struct net_evaluation whole(const struct rig *r, double loss)
{
    return (struct net_evaluation){.generation = r->generation,
                                   .step = r->version,
                                   .n_parts = 1,
                                   .n = SAMPLES,
                                   .right = 50,
                                   .loss = loss * SAMPLES,
                                   .data = {SAMPLES, 1, 2},
                                   .every = EVERY,
                                   .patience = PATIENCE};
}

static enum coord_verdict ask(struct rig *r, const struct net_evaluation *v)
{
    struct net_evaluation_reply reply;
    enum coord_verdict is = coord_evaluation_verdict(r->c, v, &reply);
    if (is == VERDICT_NEW)
        step(r, (struct coord_event){.kind = COORD_EVALUATED, .evaluation = v});
    return is;
}

/* As often as it takes: training comes to the step, stands there, and goes on. */
static void evaluate(struct rig *r, int64_t at, double loss)
{
    r->version = at;
    const struct net_evaluation v = whole(r, loss);
    int n = 0;
    while (ask(r, &v) != VERDICT_GO) {
        server_calls(r);
        tell_workers(r);
        assert_true(n++ < 50);
    }
    for (int i = 0; i < 5; i++)
        server_calls(r);
}

/* Training is over, and its last step's checkpoint is there. */
static void come_to_the_end(struct rig *r)
{
    r->version = STEPS;
    for (int i = 0; i < 10; i++)
        server_calls(r);
    assert_int_equal(coord_last_step(r->c), STEPS);
}

static void expect_best(const struct rig *r, int64_t at)
{
    struct coord_best best;
    coord_best(r->c, &best);
    assert_int_equal(best.known, at >= 0);
    if (at >= 0)
        assert_int_equal(best.step, at);
}

/* Held at the step until the chunks are taken, no longer; best once it is on the disk and named. */
static void test_the_best_has_a_checkpoint(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    r.version = 5;
    r.file_hangs = 1;
    const struct net_evaluation v = whole(&r, 0.5);
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    assert_int_equal(ask(&r, &v), VERDICT_WAIT);
    server_calls(&r);
    assert_int_equal(ask(&r, &v), VERDICT_GO);
    expect_best(&r, -1);
    r.version = 7;
    r.file_hangs = 0;
    server_calls(&r);
    server_calls(&r);
    expect_best(&r, 5);
    assert_int_equal(r.n_manifests, 1);
    assert_true(r.recorded.known && r.recorded.step == 5 && r.recorded.loss == 0.5);
    assert_true(r.recorded.accuracy == 0.5 && r.recorded.generation == r.generation);
    assert_int_equal(r.lines[LINE_BEST], 1);
    evaluate(&r, 10, 0.75);
    assert_int_equal(r.n_manifests, 1);
    expect_best(&r, 5);
    evaluate(&r, 15, 0.25);
    assert_int_equal(r.n_manifests, 2);
    expect_best(&r, 15);
    free(r.c);
}

/* A Stop takes back the order for its checkpoint: nobody is held for one that cannot be, however
 * long the change takes. In the next generation the step is evaluated again. */
static void test_a_stop_comes_first(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    r.version = 5;
    r.stop_hangs = 1;
    struct net_evaluation v = whole(&r, 0.5);
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    assert_int_equal(ask(&r, &v), VERDICT_WAIT);
    r.worker[1].leaving = 1;
    r.worker[1].missing_ms = 0;
    tell_workers(&r);
    assert_int_equal(ask(&r, &v), VERDICT_GO);
    for (int i = 0; i < 50; i++) {
        r.now += 1000 * MS;
        server_calls(&r);
    }
    assert_int_equal(r.lines[LINE_BEST_LOST], 0);
    r.stop_hangs = 0;
    server_calls(&r);
    tell_workers(&r);
    server_calls(&r);
    assert_int_equal(r.n_plans, 2);
    expect_best(&r, -1);
    evaluate(&r, 5, 0.5);
    expect_best(&r, 5);
    free(r.c);
}

/* What could not be written is not the best, and the next is compared with the one before. */
static void test_one_that_is_not_written(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    evaluate(&r, 5, 0.5);
    r.manifest_st = ST_IO;
    evaluate(&r, 10, 0.25);
    expect_best(&r, 5);
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    r.manifest_st = ST_OK;
    r.best_st = ST_IO;
    r.now += 2000 * MS; /* until the next try of a checkpoint */
    evaluate(&r, 15, 0.25);
    expect_best(&r, 5);
    assert_int_equal(r.lines[LINE_BEST_LOST], 2);
    r.best_st = ST_OK;
    evaluate(&r, 20, 0.375);
    expect_best(&r, 20);
    free(r.c);
}

/* A server that keeps no checkpoints says so at once: training is not held up, nor is the order
 * given again and again. */
static void test_a_server_that_cannot_write(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    r.file_fails = 1;
    for (int k = 1; k <= 3; k++) {
        r.version = 5 * k;
        const struct net_evaluation v = whole(&r, 1.0 / k);
        int64_t begin = r.now;
        while (ask(&r, &v) != VERDICT_GO) {
            r.now += 50 * MS;
            server_calls(&r);
            tell_workers(&r);
            assert_true(r.now - begin < 2000 * MS);
        }
        assert_int_equal(r.lines[LINE_BEST_LOST], k);
        assert_int_equal(r.lines[LINE_CHECKPOINT_FAILED], k);
    }
    r.file_fails = 0;
    r.now += 1000 * MS;
    evaluate(&r, 20, 0.125);
    expect_best(&r, 20);
    free(r.c);
}

/* The job ends where training stands: nobody goes on before all have stopped. */
static void test_early_stopping(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    evaluate(&r, 5, 0.5);
    evaluate(&r, 10, 0.5);
    assert_int_equal(r.n_plans, 1);
    r.version = 15;
    r.stop_hangs = 1;
    const struct net_evaluation v = whole(&r, 0.75);
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    server_calls(&r);
    assert_int_equal(ask(&r, &v), VERDICT_WAIT);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    assert_int_equal(r.n_plans, 1);
    r.stop_hangs = 0;
    for (int i = 0; i < 2; i++)
        r.worker[i].asked = 1;
    server_calls(&r);
    tell_workers(&r);
    server_calls(&r);
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.train_steps, 15);
    assert_int_equal(ask(&r, &v), VERDICT_GO); /* its generation is over */
    evaluate(&r, 15, 0.75);                    /* as the last step is */
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    expect_best(&r, 5);
    free(r.c);
}

/* A checkpoint by steps that is being written as the job is ended at its step does not say so: the
 * last one does. */
static void test_a_checkpoint_from_before_the_end(void **state)
{
    struct rig r;
    (void)state;
    open_start(&r, (struct coord_start){.has_folder = 1, .save_steps = EVERY}, 1, 0);
    evaluate(&r, 5, 0.5);
    for (int at = 6; at <= 10; at++) {
        r.version = at;
        server_calls(&r);
    }
    evaluate(&r, 10, 0.75);
    for (int at = 11; at <= 15; at++) {
        r.version = at;
        r.file_hangs = at == 15;
        server_calls(&r);
    }
    assert_int_equal(coord_order_step(r.c), 15);
    assert_int_equal(r.phase, CONTROL_WRITING);
    server_calls(&r);
    const struct net_evaluation v = whole(&r, 0.75);
    uint64_t before = r.generation;
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    for (int i = 0; i < 4; i++) {
        r.worker[i % 2].asked = 1;
        server_calls(&r);
        tell_workers(&r);
    }
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.train_steps, 15);
    r.file_hangs = 0;
    server_calls(&r);
    assert_int_equal(r.manifest.step, 15);
    assert_true(r.manifest.generation == before);
    for (int i = 0; i < 10; i++) {
        r.now += 500 * MS;
        server_calls(&r);
        tell_workers(&r);
    }
    assert_int_equal(r.manifest.step, 15);
    assert_true(r.manifest.generation == r.generation && r.generation > before);
    assert_int_equal(coord_last_step(r.c), 15);
    free(r.c);
}

/* It says nothing that the job ends with its last step. */
static void test_at_the_last_step(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    evaluate(&r, 90, 0.5);
    evaluate(&r, STEPS, 0.75);
    assert_int_equal(r.n_plans, 1);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 0);
    free(r.c);
}

/* A ps 0 that is started anew comes to the same: by what the folder says and the step. */
static void test_started_anew(void **state)
{
    struct rig r;
    struct coord_best best = {1, 77, 5, 0.5, 0.5, {SAMPLES, 1, 2}};
    (void)state;
    open_with(&r, 1, 1, &best, 10);
    evaluate(&r, 10, 0.75);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 0);
    expect_best(&r, 5);
    r.version = 15;
    const struct net_evaluation v = whole(&r, 0.75);
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    assert_int_equal(r.lines[LINE_EARLY_STOP], 1);
    free(r.c);
    best.step = 20; /* training goes on from before it */
    open_with(&r, 1, 1, &best, 10);
    expect_best(&r, -1);
    free(r.c);
}

static void test_other_data(void **state)
{
    struct rig r;
    const struct coord_best best = {1, 77, 5, 0.5, 0.5, {SAMPLES, 1, 3}};
    (void)state;
    open_with(&r, 1, 1, &best, 10);
    evaluate(&r, 15, 0.75);
    expect_best(&r, 15);
    assert_int_equal(r.lines[LINE_BEST_OTHER], 1);
    free(r.c);
}

/* Whatever the order of their coming, the sums have the same bits; only the first waits for all. */
static void test_parts(void **state)
{
    static const int orders[2][3] = {{0, 1, 2}, {2, 1, 0}};
    static const double losses[3] = {1e16, 1.25, -1e16 + 2};
    struct net_evaluation_reply reply[2];
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct rig r;
        open_rig(&r);
        r.version = 5;
        for (int i = 0; i < 3; i++) {
            struct net_evaluation v = whole(&r, 0);
            v.part = orders[k][i];
            v.n_parts = 3;
            v.n = v.part < 2 ? 40 : 20;
            v.right = v.part;
            v.loss = losses[v.part];
            assert_int_equal(ask(&r, &v), VERDICT_NEW);
            enum coord_verdict then = coord_evaluation_verdict(r.c, &v, &reply[k]);
            assert_int_equal(then, v.part > 0 ? VERDICT_GO : VERDICT_WAIT);
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
    (void)state;
    open_rig(&r);
    r.version = 5;
    struct net_evaluation v = whole(&r, 0.5);
    v.n--;
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    assert_int_equal(ask(&r, &v), VERDICT_GO);
    server_calls(&r);
    assert_int_equal(r.n_manifests, 0);
    free(r.c);
}

/* Nobody is held up: of another generation, of chunks that go each at its own pace, a loss that is
 * no number, a job without a folder. */
static void test_nothing_to_wait_for(void **state)
{
    struct rig r;
    struct net_evaluation_reply reply;
    (void)state;
    open_rig(&r);
    r.version = 5;
    struct net_evaluation v = whole(&r, (double)INFINITY);
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    assert_int_equal(ask(&r, &v), VERDICT_GO);
    v.generation--;
    assert_int_equal(coord_evaluation_verdict(r.c, &v, &reply), VERDICT_GO);
    expect_best(&r, -1);
    free(r.c);
    open_with(&r, 1, 0, NULL, 0);
    v = whole(&r, 0.5);
    assert_int_equal(coord_evaluation_verdict(r.c, &v, &reply), VERDICT_GO);
    free(r.c);
    open_with(&r, 0, 1, NULL, 0);
    r.version = 5;
    v = whole(&r, 0.5);
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    assert_int_equal(ask(&r, &v), VERDICT_GO);
    expect_best(&r, 5);
    free(r.c);
}

/* The server cannot take it in time: training goes on. */
static void test_a_checkpoint_that_does_not_come(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    r.version = 5;
    const struct net_evaluation v = whole(&r, 0.5);
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    for (int i = 0; i < 400; i++) {
        r.now += 100 * MS;
        step(&r, (struct coord_event){.kind = COORD_TIMER});
    }
    assert_int_equal(ask(&r, &v), VERDICT_GO);
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    expect_best(&r, -1);
    free(r.c);
}

/* Its sweep knows nothing of a checkpoint that is being made: none is begun beside it. A disk that
 * hangs holds up no evaluation for good. */
static void test_no_checkpoint_beside_the_sweep(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    r.best_hangs = 1;
    evaluate(&r, 5, 0.5);
    assert_true(r.best_op != 0);
    assert_int_equal(coord_order_step(r.c), -1);
    expect_best(&r, -1);
    step(&r, (struct coord_event){.kind = COORD_DISK, .op = r.best_op});
    expect_best(&r, 5);
    server_calls(&r);
    assert_int_equal(coord_order_step(r.c), STEPS); /* the last step's is due all along */
    evaluate(&r, 10, 0.25);
    uint32_t hangs = r.best_op;
    for (int i = 0; i < 400; i++) {
        r.now += 1000 * MS;
        server_calls(&r);
    }
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    evaluate(&r, 15, 0.75);
    expect_best(&r, 5);
    step(&r, (struct coord_event){.kind = COORD_DISK, .op = hangs});
    expect_best(&r, 10); /* its file names that, and the sweep has gone by it */
    r.best_hangs = 0;
    evaluate(&r, 20, 0.375);
    expect_best(&r, 10);
    assert_int_equal(r.lines[LINE_BEST_LOST], 1);
    free(r.c);
}

/* Its time runs out; the Stop that follows does not come to its end. */
static void lose_a_worker(struct rig *r)
{
    struct net_control_reply reply = {.stop = 0};
    r->worker[1].missing_ms = 0;
    r->stop_hangs = 1;
    for (int i = 0; i < 30 && reply.stop == 0; i++) {
        r->now += 1000 * MS;
        r->worker[1].missing_ms += 1000;
        server_calls(r);
        tell_workers(r);
        coord_fill_reply(r->c, 0, &reply);
    }
    assert_true(reply.stop > 0);
}

/* Training goes back while the file is written: it names a step that is not there, as for a ps 0
 * that is started anew. */
static void test_back_while_the_best_is_named(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    evaluate(&r, 5, 0.5);
    r.best_hangs = 1;
    evaluate(&r, 10, 0.25);
    uint32_t op = r.best_op;
    assert_true(op != 0);
    r.found = 5;
    r.incarnation++; /* the server has lost its chunks */
    r.version = -1;
    for (int i = 0; i < 10; i++) {
        r.now += 500 * MS;
        server_calls(&r);
        tell_workers(&r);
    }
    assert_int_equal(r.n_plans, 2);
    r.version = 5;
    server_calls(&r);
    expect_best(&r, 5);
    r.version = 10;
    const struct net_evaluation v = whole(&r, 0.375);
    assert_int_equal(ask(&r, &v), VERDICT_NEW);
    assert_int_equal(ask(&r, &v), VERDICT_WAIT);
    r.best_hangs = 0;
    step(&r, (struct coord_event){.kind = COORD_DISK, .op = op});
    expect_best(&r, -1);
    evaluate(&r, 10, 0.375);
    expect_best(&r, 10);
    free(r.c);
}

/* The other worker is gone before it has told its part of the last evaluation: when the next
 * generation is there, so is who evaluated all of it in the one before. */
static void test_one_is_killed_at_the_end(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    evaluate(&r, 5, 0.5);
    come_to_the_end(&r);
    int n_manifests = r.n_manifests;
    uint64_t before = r.generation;
    struct net_evaluation v = whole(&r, 0.25), part = v;
    part.n_parts = 2;
    part.n = SAMPLES / 2;
    assert_int_equal(ask(&r, &part), VERDICT_NEW);
    assert_int_equal(ask(&r, &part), VERDICT_WAIT);
    lose_a_worker(&r);
    assert_int_equal(ask(&r, &part), VERDICT_GO);
    assert_int_equal(ask(&r, &v), VERDICT_WAIT);
    r.stop_hangs = 0;
    for (int i = 0; ask(&r, &v) != VERDICT_GO; i++) {
        server_calls(&r);
        tell_workers(&r);
        assert_true(i < 50);
    }
    assert_int_equal(r.n_plans, 2);
    server_calls(&r);
    expect_best(&r, STEPS);
    assert_true(r.recorded.step == STEPS && r.recorded.generation == before);
    assert_int_equal(r.n_manifests, n_manifests); /* that of the last step is there */
    free(r.c);
}

/* A change that does not come to its end holds nobody for good. */
static void test_a_change_hangs_at_the_end(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    come_to_the_end(&r);
    lose_a_worker(&r);
    const struct net_evaluation v = whole(&r, 0.25);
    for (int i = 0; i < 25; i++) {
        r.now += 1000 * MS;
        server_calls(&r);
        assert_int_equal(ask(&r, &v), VERDICT_WAIT);
    }
    for (int i = 0; i < 10; i++) {
        r.now += 1000 * MS;
        server_calls(&r);
    }
    assert_int_equal(ask(&r, &v), VERDICT_GO);
    free(r.c);
}

/* ps 0 was started anew meanwhile: the checkpoint is made once more, in its generation. */
static void test_started_anew_at_the_end(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, 1, 1, NULL, STEPS);
    struct net_evaluation v = whole(&r, 0.25);
    v.generation -= 7;
    for (int i = 0; ask(&r, &v) != VERDICT_GO; i++) {
        server_calls(&r);
        tell_workers(&r);
        assert_true(i < 50);
    }
    server_calls(&r);
    server_calls(&r);
    expect_best(&r, STEPS);
    assert_true(r.recorded.generation == r.generation);
    v.step--; /* of an earlier step nothing comes */
    assert_int_equal(ask(&r, &v), VERDICT_GO);
    free(r.c);
    open_ps0(&r, (struct coord_start){.has_folder = 1, .has_all_steps = 1}, STEPS);
    v.step = STEPS;
    assert_int_equal(ask(&r, &v), VERDICT_WAIT); /* for the first plan */
    v.step--;
    assert_int_equal(ask(&r, &v), VERDICT_GO);
    free(r.c);
}

/* The last evaluation did best: ps 0 does not end before it is named, or the disk hangs. */
static void test_the_end_waits_for_the_best(void **state)
{
    for (int hangs = 0; hangs < 2; hangs++) {
        struct rig r;
        (void)state;
        open_rig(&r);
        evaluate(&r, 5, 0.5);
        r.best_hangs = 1;
        come_to_the_end(&r);
        const struct net_evaluation v = whole(&r, 0.25);
        assert_int_equal(ask(&r, &v), VERDICT_NEW);
        assert_true(r.best_op != 0);
        for (int i = 0; i < 2; i++)
            r.worker[i].done = 1;
        tell_workers(&r);
        step(&r, (struct coord_event){.kind = COORD_COMMAND, .command = {.what = COORD_FINISH}});
        for (int i = 0; i < 100; i++) {
            r.now += 100 * MS;
            server_calls(&r);
        }
        assert_int_equal(r.n_finished, 0);
        if (!hangs)
            step(&r, (struct coord_event){.kind = COORD_DISK, .op = r.best_op});
        for (int i = 0; hangs && i < 300; i++) {
            r.now += 100 * MS;
            server_calls(&r);
        }
        assert_int_equal(r.n_finished, 1);
        expect_best(&r, hangs ? 5 : STEPS);
        free(r.c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_has_a_checkpoint),
        cmocka_unit_test(test_a_stop_comes_first),
        cmocka_unit_test(test_one_that_is_not_written),
        cmocka_unit_test(test_a_server_that_cannot_write),
        cmocka_unit_test(test_early_stopping),
        cmocka_unit_test(test_a_checkpoint_from_before_the_end),
        cmocka_unit_test(test_at_the_last_step),
        cmocka_unit_test(test_started_anew),
        cmocka_unit_test(test_other_data),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_that_are_not_the_set),
        cmocka_unit_test(test_nothing_to_wait_for),
        cmocka_unit_test(test_a_checkpoint_that_does_not_come),
        cmocka_unit_test(test_no_checkpoint_beside_the_sweep),
        cmocka_unit_test(test_back_while_the_best_is_named),
        cmocka_unit_test(test_one_is_killed_at_the_end),
        cmocka_unit_test(test_a_change_hangs_at_the_end),
        cmocka_unit_test(test_started_anew_at_the_end),
        cmocka_unit_test(test_the_end_waits_for_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
