/* tests/ps_coordinator_test.c - ps 0's coordinator (ps/coordinator/coordinator.h) by itself, on a
 * clock of the test's: how long a worker is waited for that died between its Join and its first
 * word, epochs and plans that cannot be had, and a disk of ps 0's that hangs. */
#include "tests/coordinator_rig.h"
#include <stdlib.h>

enum { WRITE_MS = 300000 }; /* for a disk, as coordinator_times.h has it */
/* Until the others go on without worker 1, which nobody hears any more; in ms. */
static int64_t wait_for_plan(struct rig *r)
{
    int64_t begin = r->now;
    r->worker[1].missing_ms = 0;
    rig_tell_workers(r);
    while (r->n_plans == 1 && r->now < begin + MOST_MS * MS) {
        r->now += LOOK_EVERY_MS * MS;
        r->worker[1].missing_ms += LOOK_EVERY_MS;
        rig_tell_workers(r);
        rig_server_says(r, 0);
    }
    assert_int_equal(r->n_plans, 2);
    free(r->c);
    return (r->now - begin) / MS;
}

/* It has spoken, and is away: as long as --worker_timeout says. */
static void test_one_that_spoke(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_tell_workers(&r);
    assert_in_range(wait_for_plan(&r), TIMEOUT_MS, TIMEOUT_MS + LOOK_EVERY_MS);
}

/* It lives, maybe, and is slow to come into the generation. */
static void test_one_that_has_not_come(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    assert_in_range(wait_for_plan(&r), 10000, 10000 + LOOK_EVERY_MS);
}

/* It joined the generation, and had only to speak: not as long as one that has to come. */
static void test_one_that_died_as_it_came(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.worker[1].came = 1;
    assert_in_range(wait_for_plan(&r), 2000, 2000 + LOOK_EVERY_MS);
}

/* Another process has taken its place since: it has its own time. */
static void test_another_comes_in_its_place(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.worker[1].came = 1;
    r.worker[1].missing_ms = 0;
    rig_tell_workers(&r);
    r.now += 1900 * MS;
    r.worker[1].incarnation = 77;
    assert_in_range(wait_for_plan(&r), 2000, 2000 + LOOK_EVERY_MS);
}

/* Nobody is missed before he has come for the first time, however late that is. */
static void test_one_that_comes_late(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.worker[1].joined = 0;
    for (int i = 0; i < 60; i++) {
        r.worker[1].missing_ms = i * 1000;
        rig_tell_workers(&r);
        r.now += 1000 * MS;
        rig_server_says(&r, 0);
    }
    assert_int_equal(r.n_plans, 1);
    r.worker[1].joined = 1;
    assert_in_range(wait_for_plan(&r), 10000, 10000 + LOOK_EVERY_MS);
}

static void a_worker_is_lost(struct rig *r)
{
    r->worker[1].missing_ms = 0;
    rig_changes(r, TIMEOUT_MS + 3 * LOOK_EVERY_MS);
}

static int is_given(const struct rig *r)
{
    return coordinator_view_given(r->c) == coordinator_view_wanted(r->c);
}

/* What was asked for is given up as late as it may be, with `line`. `begin`: when it was due. */
static void is_given_up(struct rig *r, int64_t begin, enum coordinator_line_id line)
{
    assert_false(is_given(r));
    assert_int_equal(r->lines[line], 0);
    while (!is_given(r) && r->now < begin + (WRITE_MS + MOST_MS) * MS)
        rig_look(r);
    assert_true(is_given(r));
    assert_int_equal(r->lines[line], 1);
    assert_in_range(r->said[line] - begin, WRITE_MS * MS, (WRITE_MS + 5 * LOOK_EVERY_MS) * MS);
    assert_true(coordinator_view_last_step(r->c) < 0);
}

/* The disk answers again: the next is made. */
static void the_next_is_made(struct rig *r)
{
    int n = r->n_manifests;
    r->version = 5;
    rig_ask(r);
    rig_let_pass(r, 1000);
    assert_true(is_given(r));
    assert_int_equal(coordinator_view_last_step(r->c), 5);
    assert_int_equal(r->n_manifests, n + 1);
}

/* ps 0's disk hangs as the manifest of step 3 is written. */
static void hang_in_a_manifest(struct rig *r)
{
    rig_open(r, 1);
    r->disk_hangs = 1;
    rig_ask(r);
    for (int i = 0; i < 10 && r->n_manifests == 0; i++)
        rig_look(r);
    assert_int_equal(r->n_manifests, 1);
}

static void test_a_manifest_hangs(void **state)
{
    struct rig r;
    hang_in_a_manifest(&r);
    int64_t begin = r.now;
    a_worker_is_lost(&r);
    rig_let_pass(&r, WRITE_MS / 2);
    rig_server_joins(&r);
    is_given_up(&r, begin, LINE_CHECKPOINT_SLOW);
    rig_server_joins(&r);
    rig_ask(&r); /* nobody waits for a disk that is known to hang */
    rig_look(&r);
    assert_true(is_given(&r));
    assert_true(r.lines[LINE_CHECKPOINT_DISK] > 0);
    rig_server_joins(&r);
    assert_int_equal(r.n_manifests, 1);
    r.disk_hangs = 0;
    rig_disk_ends(&r, r.manifest, ST_IO, -1, 0);
    the_next_is_made(&r);
    free(r.c);
}

/* Training comes to its last step while the disk hangs. Whose the folder is cannot be known: ps 0
 * ends, and the step's result is not released, since another ps 0 may make one as well. */
static void test_the_last_step_and_a_disk_that_hangs(void **state)
{
    struct rig r;
    hang_in_a_manifest(&r);
    is_given_up(&r, r.now, LINE_CHECKPOINT_SLOW);
    assert_true(r.holds_last);
    r.version = STEPS;
    rig_let_pass(&r, 1000);
    assert_true(r.fenced == 1 && r.unsure == 1 && r.holds_last);
    free(r.c);
}

/* The manifest of the last step itself hangs. */
static void test_the_last_manifest_hangs(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    rig_let_pass(&r, 1000);
    r.disk_hangs = 1;
    r.version = STEPS;
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_manifests, 1);
    rig_let_pass(&r, WRITE_MS - 2000);
    assert_false(r.fenced);
    rig_let_pass(&r, 3000);
    assert_true(r.fenced == 1 && r.unsure == 1 && r.holds_last);
    free(r.c);
}

/* The manifest of the last step cannot be written. The result is released where this ps 0 still
 * owns the folder; where another one does, or that cannot be read, ps 0 ends and releases nothing.
 */
static void test_the_last_manifest_fails(void **state)
{
    const enum status owner[] = {ST_OK, ST_REFUSED, ST_IO};
    for (int i = 0; i < 3; i++) {
        struct rig r;
        rig_open(&r, 1);
        rig_let_pass(&r, 1000);
        r.manifest_st = ST_FULL;
        r.owner_st = owner[i];
        r.version = STEPS;
        rig_let_pass(&r, 1000);
        assert_true(r.n_manifests > 0);
        assert_int_equal(r.fenced, owner[i] == ST_REFUSED);
        assert_int_equal(r.holds_last, owner[i] != ST_OK);
        rig_let_pass(&r, WRITE_MS - 3000);
        assert_int_equal(r.fenced, owner[i] == ST_REFUSED);
        rig_let_pass(&r, 5000);
        assert_int_equal(r.fenced, owner[i] != ST_OK);
        assert_int_equal(r.unsure, owner[i] == ST_IO);
        assert_int_equal(r.holds_last, owner[i] != ST_OK);
        free(r.c);
    }
}

/* ps 0's own part of a checkpoint is not written, before or after the parts of others. */
static void hang_in_a_file(int n_others)
{
    struct rig r;
    rig_open(&r, 1);
    rig_let_pass(&r, 1000);
    for (int i = 0; i < n_others; i++)
        rig_server_joins(&r);
    r.server[0].hangs = 1;
    rig_ask(&r);
    for (int i = 0; i < 10 && r.server[0].phase != PART_WRITING; i++)
        rig_look(&r);
    assert_int_equal(r.server[0].phase, PART_WRITING);
    int64_t begin = r.now;
    a_worker_is_lost(&r);
    rig_let_pass(&r, WRITE_MS / 2);
    rig_server_joins(&r);
    is_given_up(&r, begin, LINE_CHECKPOINT_SLOW);
    rig_server_joins(&r);
    r.server[0].hangs = 0;
    the_next_is_made(&r);
    free(r.c);
}

static void test_own_file_hangs(void **state)
{
    hang_in_a_file(0);
}

static void test_own_file_hangs_after_others(void **state)
{
    hang_in_a_file(1);
}

/* A worker that lives on names a generation of the epoch that is being recorded just then: the next
 * one is recorded before anything is planned in it. */
static void test_an_epoch_that_is_claimed_meanwhile(void **state)
{
    struct rig r;
    rig_start(&r, 1, 1);
    struct coordinator_event job = {
        .kind = COORDINATOR_JOB,
        .job = {.train_steps = STEPS, .lockstep = 1, .n_members = 2, .claim = term_of(1, 5)}};
    rig_server_says(&r, 0);
    rig_step(&r, job);
    assert_int_equal(r.epoch, 2);
    job.job.claim = term_of(2, 5);
    rig_step(&r, job);
    rig_disk_ends(&r, r.epoch_op, ST_OK, -1, 2);
    rig_step(&r, job);
    assert_int_equal(r.epoch, 3);
    assert_int_equal(r.n_plans, 0);
    rig_disk_ends(&r, r.epoch_op, ST_OK, -1, 3);
    r.now += 10000 * MS;
    rig_server_says(&r, 0);
    rig_step(&r, job);
    assert_int_equal(r.n_plans, 1);
    assert_int_equal(term_epoch(r.generation), 3);
    free(r.c);
}

/* A change without a cause of its own: only of the epoch. */
static void rises_above(struct rig *r, uint64_t epoch)
{
    int n = r->n_plans;
    while ((r->n_plans == n || !coordinator_view_is_settled(r->c)) && r->now < 2000000 * MS)
        rig_look(r);
    assert_int_equal(r->n_plans, n + 1);
    assert_int_equal(r->generation, term_of(epoch + 1, 1));
    rig_let_pass(r, 3000);
    assert_int_equal(r->n_plans, n + 1); /* and that was all */
}

/* A ps 0 that has lost the count makes its first plan before a worker comes that lives on in
 * generation 4.7 of another one: all go to one above that. What is not above its epoch is no news,
 * and what no job comes to is not believed. */
static void test_a_worker_of_another_ps0(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_let_pass(&r, 1000);
    r.claim = term_of(4, 7);
    rises_above(&r, 4);
    r.claim = term_of(4, 9);
    rig_let_pass(&r, 3000);
    r.claim = term_of(TERM_MAX_EPOCH, 1);
    rig_let_pass(&r, 3000);
    assert_int_equal(r.lines[LINE_WORKER_CLAIM], 1);
    r.claim = term_of(1 << 20, 1); /* so often nobody starts it again */
    rig_let_pass(&r, 3000);
    assert_int_equal(r.lines[LINE_WORKER_CLAIM], 2);
    assert_int_equal(r.n_plans, 2);
    free(r.c);
}

/* However long it was away before, the one for which the epoch was raised has its time to come, and
 * to speak. */
static void test_it_has_its_time(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.worker[1] = (struct coordinator_worker_event){.member = 1};
    rig_let_pass(&r, 16000);
    assert_int_equal(r.n_plans, 1);
    r.claim = term_of(4, 7);
    rises_above(&r, 4);
    r.worker[1] = (struct coordinator_worker_event){.member = 1, .incarnation = 12, .joined = 1};
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.lines[LINE_WORKER_LATE], 0);
    free(r.c);
}

/* Likewise with a folder, which was emptied: the new epoch is recorded before it is used. */
static void test_a_claim_is_recorded_first(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    rig_let_pass(&r, 1000);
    r.epoch_hangs = 1;
    r.claim = term_of(4, 7);
    rig_let_pass(&r, 3000);
    assert_int_equal(r.epoch, 5);
    assert_int_equal(r.n_plans, 1);
    rig_server_joins(&r); /* who obeys this ps 0 goes on meanwhile, with its checkpoints */
    assert_int_equal(r.generation, term_of(1, 2));
    rig_ask(&r);
    rig_let_pass(&r, 1000);
    assert_int_equal(coordinator_view_last_step(r.c), 3);
    rig_disk_ends(&r, r.epoch_op, ST_OK, -1, 5);
    rises_above(&r, 4);
    assert_false(r.fenced);
    r.claim = term_of(8, 1); /* the folder was claimed meanwhile, by one that is there */
    rig_let_pass(&r, 1000);
    rig_disk_ends(&r, r.epoch_op, ST_REFUSED, -1, 5);
    assert_int_equal(r.fenced, 1);
    free(r.c);
}

/* A server that lives on in generation `of`, which has the number of the one in force or a higher
 * one, joins. It is not taken to be in it, and goes with all to one above. */
static void joins_from(uint64_t of)
{
    struct rig r;
    rig_open(&r, 0);
    rig_let_pass(&r, 1000);
    r.server[1] = (struct rig_server){
        .generation = of, .ps0 = 5, .heard_ps0 = 5, .heard_epoch = term_epoch(of)};
    r.n_servers = 2;
    rises_above(&r, term_epoch(of));
    assert_int_equal(r.server[1].generation, r.generation);
    assert_int_equal(r.server[1].ps0, 9);
    free(r.c);
}

static void test_a_server_of_another_ps0(void **state)
{
    joins_from(term_of(1, 1));
    joins_from(term_of(3, 2));
    joins_from(term_of(3, 0)); /* it has obeyed another, and was in no generation */
}

/* The checkpoint of the plan in force is damaged where a server reads it: the one before is looked
 * for, and the next plan is of that. */
static void test_a_damaged_checkpoint_is_passed_over(void **state)
{
    struct rig r;
    struct coordinator_plan_view plan;
    rig_start(&r, 1, 0);
    r.server[0].damaged = term_of(1, 1);
    r.found = 40;
    rig_server_says(&r, 0);
    rig_step(&r, (struct coordinator_event){.kind = COORDINATOR_JOB,
                                            .job = {.train_steps = STEPS,
                                                    .step = 60,
                                                    .from_checkpoint = 1,
                                                    .lockstep = 1,
                                                    .n_members = 2}});
    rig_let_pass(&r, 1000);
    assert_int_equal(r.lines[LINE_CHECKPOINT_UNREAD], 1);
    assert_true(r.passed_over == term_of(1, 1));
    assert_int_equal(r.n_plans, 2);
    coordinator_view_next_plan(r.c, &plan);
    assert_int_equal(plan.source, PLAN_CHECKPOINT);
    assert_int_equal(plan.step, 40);
    assert_true(r.server[0].generation == term_of(1, 2));
    free(r.c);
}

/* A server that has obeyed this ps 0 obeys another of a higher epoch now: this one was replaced. */
static void test_replaced(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.n_servers = 2;
    rig_let_pass(&r, 3000);
    assert_int_equal(r.server[1].heard_ps0, 9);
    r.server[1].heard_ps0 = 5;
    r.server[1].heard_epoch = 2;
    rig_look(&r);
    assert_int_equal(r.fenced, 1);
    int n = r.n_plans;
    r.worker[1].missing_ms = 0;
    rig_let_pass(&r, 3 * TIMEOUT_MS);
    assert_int_equal(r.n_plans, n); /* it decides nothing any more */
    free(r.c);
}

/* Another ps 0 claims the folder while this one waits for its first worker. */
static void test_replaced_before_the_first_worker(void **state)
{
    struct rig r;
    rig_start(&r, 1, 0);
    rig_let_pass(&r, 20000);
    assert_int_equal(r.fenced, 0);
    r.owner_st = ST_IO; /* not known now */
    rig_let_pass(&r, 20000);
    assert_int_equal(r.fenced, 0);
    r.owner_st = ST_REFUSED;
    rig_let_pass(&r, 6000);
    assert_int_equal(r.fenced, 1);
    free(r.c);
}

/* It is made as soon as there is memory; till then what waits for it waits. */
static void test_a_plan_without_memory(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_tell_workers(&r);
    r.no_memory = 3;
    assert_in_range(wait_for_plan(&r), TIMEOUT_MS + 1, TIMEOUT_MS + 30 * LOOK_EVERY_MS);
    assert_int_equal(r.no_memory, 0);
}

/* While a checkpoint is being written for long, training comes to the step of the next one, and
 * goes on: that follows, and does not wait for the step after. */
static void test_one_is_due_by_steps_meanwhile(void **state)
{
    struct rig r;
    rig_open_saving(&r, 10, 0);
    rig_let_pass(&r, 1000);
    r.server[0].hangs = 1;
    for (r.version = 9; r.version < 24; r.version++)
        rig_let_pass(&r, 1000);
    assert_int_equal(r.n_manifests, 0);
    r.server[0].hangs = 0;
    rig_let_pass(&r, 1000);
    assert_int_equal(coordinator_view_last_step(r.c), 10);
    for (; r.version < 29; r.version++)
        rig_let_pass(&r, 1000);
    assert_int_equal(r.n_manifests, 2);
    assert_in_range(coordinator_view_last_step(r.c), 25, 28);
    for (; r.version < 32; r.version++) /* those after are as ever */
        rig_let_pass(&r, 1000);
    assert_int_equal(coordinator_view_last_step(r.c), 30);
    free(r.c);
}

/* Likewise by time, which is counted from where each was begun. */
static void test_one_is_due_by_time_meanwhile(void **state)
{
    struct rig r;
    rig_open_saving(&r, 0, 60000);
    r.server[0].hangs = 1;
    for (int i = 0; i < 130; i++, r.version += i % 5 == 0)
        rig_let_pass(&r, 1000);
    assert_int_equal(r.n_manifests, 0);
    r.server[0].hangs = 0;
    rig_let_pass(&r, 200);
    assert_int_equal(r.n_manifests, 1);
    for (int i = 0; i < 20; i++, r.version += i % 5 == 0)
        rig_let_pass(&r, 1000);
    assert_int_equal(r.n_manifests, 2);
    free(r.c);
}

/* How long until then, and that nothing is said where it is not known. */
static void test_the_next_by_time(void **state)
{
    struct rig r;
    rig_open_saving(&r, 10, 0);
    rig_let_pass(&r, 1000);
    assert_int_equal(coordinator_view_next_ms(r.c), -1);
    free(r.c);
    rig_open_saving(&r, 0, 60000);
    for (int i = 0; i < 20; i++, r.version += i % 5 == 0)
        rig_let_pass(&r, 1000);
    assert_int_equal(coordinator_view_order_step(r.c), STEPS);
    assert_in_range(coordinator_view_next_ms(r.c), 39000, 41000);
    r.server[0].hangs = 1;
    for (int i = 0; i < 50; i++, r.version += i % 5 == 0)
        rig_let_pass(&r, 1000);
    assert_in_range(coordinator_view_order_step(r.c), 1, STEPS - 1);
    assert_int_equal(coordinator_view_next_ms(r.c), -1);
    r.server[0].hangs = 0;
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_manifests, 1);
    assert_in_range(coordinator_view_next_ms(r.c), 45000, 52000); /* from where that was begun */
    free(r.c);
}

int main(void)
{
    return RUN_TESTS(
        test_one_that_spoke, test_the_next_by_time, test_one_that_has_not_come,
        test_one_that_died_as_it_came, test_another_comes_in_its_place, test_one_that_comes_late,
        test_an_epoch_that_is_claimed_meanwhile, test_a_plan_without_memory,
        test_a_worker_of_another_ps0, test_it_has_its_time, test_a_claim_is_recorded_first,
        test_a_server_of_another_ps0, test_a_damaged_checkpoint_is_passed_over, test_replaced,
        test_replaced_before_the_first_worker, test_a_manifest_hangs,
        test_the_last_step_and_a_disk_that_hangs, test_the_last_manifest_hangs,
        test_the_last_manifest_fails, test_own_file_hangs, test_own_file_hangs_after_others,
        test_one_is_due_by_steps_meanwhile, test_one_is_due_by_time_meanwhile);
}
