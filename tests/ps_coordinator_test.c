/* tests/ps_coordinator_test.c - ps 0's coordinator (ps/coordinator/coordinator.h) alone, on the
 * test's clock: how long it waits for a worker that died between its Join and its first message,
 * epochs and plans that fail, and a disk of ps 0 that hangs. */
#include "tests/coordinator_rig.h"
#include <stdlib.h>

enum { WRITE_MS = 300000 }; /* longest write of a disk, as in coordinator_times.h */
/* Returns how many ms ps 0 waits for worker 1, which has died, before the job continues without
 * it. */
static int64_t wait_for_plan(struct rig *r)
{
    int64_t begin = r->now;
    r->worker[1].missing_ms = 0;
    rig_report_workers(r);
    while (r->n_plans == 1 && r->now < begin + MOST_MS * MS) {
        r->now += LOOK_EVERY_MS * MS;
        r->worker[1].missing_ms += LOOK_EVERY_MS;
        rig_report_workers(r);
        rig_report_server(r, 0);
    }
    assert_int_equal(r->n_plans, 2);
    free(r->c);
    return (r->now - begin) / MS;
}

/* The worker has sent a message before: ps 0 waits for --worker_timeout. */
static void lost_worker_is_awaited_for_worker_timeout(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_report_workers(&r);
    assert_in_range(wait_for_plan(&r), TIMEOUT_MS, TIMEOUT_MS + LOOK_EVERY_MS);
}

/* The worker may be alive, and may enter the generation slowly. */
static void worker_gets_time_to_enter_a_generation(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    assert_in_range(wait_for_plan(&r), 10000, 10000 + LOOK_EVERY_MS);
}

/* The worker has joined the generation and need only send a message. So the wait is shorter than
 * for a worker that must still join. */
static void joined_worker_gets_less_time(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.worker[1].came = 1;
    assert_in_range(wait_for_plan(&r), 2000, 2000 + LOOK_EVERY_MS);
}

/* A new process has replaced the lost worker, and gets its own time. */
static void replacing_process_gets_its_own_time(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.worker[1].came = 1;
    r.worker[1].missing_ms = 0;
    rig_report_workers(&r);
    r.now += 1900 * MS;
    r.worker[1].incarnation = 77;
    assert_in_range(wait_for_plan(&r), 2000, 2000 + LOOK_EVERY_MS);
}

/* A worker counts as missing only after its first join, however late that is. */
static void worker_is_not_missing_before_its_first_join(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.worker[1].joined = 0;
    for (int i = 0; i < 60; i++) {
        r.worker[1].missing_ms = i * 1000;
        rig_report_workers(&r);
        r.now += 1000 * MS;
        rig_report_server(&r, 0);
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

static int is_answered(const struct rig *r)
{
    return coordinator_view_given(r->c) == coordinator_view_wanted(r->c);
}

/* Checks that the requested checkpoint is given up when its time is over, not earlier, and that
 * `line` is logged. begin: time at which the checkpoint was due. */
static void expect_given_up(struct rig *r, int64_t begin, enum coordinator_line_id line)
{
    assert_false(is_answered(r));
    assert_int_equal(r->lines[line], 0);
    while (!is_answered(r) && r->now < begin + (WRITE_MS + MOST_MS) * MS)
        rig_look(r);
    assert_true(is_answered(r));
    assert_int_equal(r->lines[line], 1);
    assert_in_range(r->line_ns[line] - begin, WRITE_MS * MS, (WRITE_MS + 5 * LOOK_EVERY_MS) * MS);
    assert_true(coordinator_view_last_step(r->c) < 0);
}

/* Checks that the next checkpoint is made once the disk answers again. */
static void expect_next(struct rig *r)
{
    int n = r->n_manifests;
    r->version = 5;
    rig_ask(r);
    rig_let_pass(r, 1000);
    assert_true(is_answered(r));
    assert_int_equal(coordinator_view_last_step(r->c), 5);
    assert_int_equal(r->n_manifests, n + 1);
}

/* Lets ps 0's disk hang while it writes the manifest of step 3. */
static void hang_in_a_manifest(struct rig *r)
{
    rig_open(r, 1);
    r->disk_hangs = 1;
    rig_ask(r);
    for (int i = 0; i < 10 && r->n_manifests == 0; i++)
        rig_look(r);
    assert_int_equal(r->n_manifests, 1);
}

static void hanging_manifest_is_given_up(void **state)
{
    struct rig r;
    hang_in_a_manifest(&r);
    int64_t begin = r.now;
    a_worker_is_lost(&r);
    rig_let_pass(&r, WRITE_MS / 2);
    rig_server_joins(&r);
    expect_given_up(&r, begin, LINE_CHECKPOINT_SLOW);
    rig_server_joins(&r);
    rig_ask(&r); /* a request does not wait for a disk that is known to hang */
    rig_look(&r);
    assert_true(is_answered(&r));
    assert_true(r.lines[LINE_CHECKPOINT_DISK] > 0);
    rig_server_joins(&r);
    assert_int_equal(r.n_manifests, 1);
    r.disk_hangs = 0;
    rig_disk_ends(&r, r.manifest, ST_IO, -1, 0);
    expect_next(&r);
    free(r.c);
}

/* Training reaches its last step while the disk hangs. ps 0 cannot verify that it owns the
 * folder, and another ps 0 may compute the same step. So ps 0 ends, and does not release the
 * step's result. */
static void hanging_disk_at_the_last_step_ends_ps0(void **state)
{
    struct rig r;
    hang_in_a_manifest(&r);
    expect_given_up(&r, r.now, LINE_CHECKPOINT_SLOW);
    assert_true(r.holds_last);
    r.version = STEPS;
    rig_let_pass(&r, 1000);
    assert_true(r.fenced == 1 && r.unsure == 1 && r.holds_last);
    free(r.c);
}

/* The write of the last step's manifest hangs. */
static void hanging_last_manifest_ends_ps0(void **state)
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

/* The manifest of the last step cannot be written. ps 0 releases the result if it still owns the
 * folder. If another ps 0 owns it, or the owner cannot be read, ps 0 ends and releases nothing. */
static void failed_last_manifest_is_released_by_the_owner(void **state)
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

/* Lets the write of ps 0's own part hang, before or after n_others parts of other servers. */
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
    expect_given_up(&r, begin, LINE_CHECKPOINT_SLOW);
    rig_server_joins(&r);
    r.server[0].hangs = 0;
    expect_next(&r);
    free(r.c);
}

static void hanging_own_file_is_given_up(void **state)
{
    hang_in_a_file(0);
}

static void hanging_own_file_is_given_up_after_others(void **state)
{
    hang_in_a_file(1);
}

/* While ps 0 records an epoch, a running worker reports a generation of the same epoch. ps 0
 * records the next epoch before a plan uses it. */
static void epoch_claimed_while_recorded_is_raised(void **state)
{
    struct rig r;
    rig_start(&r, 1, 1);
    struct coordinator_event job = {
        .kind = COORDINATOR_JOB,
        .job = {.train_steps = STEPS, .lockstep = 1, .n_members = 2, .claim = term_of(1, 5)}};
    rig_report_server(&r, 0);
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
    rig_report_server(&r, 0);
    rig_step(&r, job);
    assert_int_equal(r.n_plans, 1);
    assert_int_equal(term_epoch(r.generation), 3);
    free(r.c);
}

/* Checks that a change follows which only raises the epoch, to epoch + 1. */
static void expect_epoch_above(struct rig *r, uint64_t epoch)
{
    int n = r->n_plans;
    while ((r->n_plans == n || !coordinator_view_is_settled(r->c)) && r->now < 2000000 * MS)
        rig_look(r);
    assert_int_equal(r->n_plans, n + 1);
    assert_int_equal(r->generation, term_of(epoch + 1, 1));
    rig_let_pass(r, 3000);
    assert_int_equal(r->n_plans, n + 1); /* no other change follows */
}

/* A ps 0 that has lost its epoch makes its first plan. Then a worker joins that was in generation
 * 4.7 of another ps 0: all members enter a generation above 4.7. A claim that is not above the
 * epoch changes nothing, and an impossible claim is ignored. */
static void worker_of_another_ps0_raises_the_epoch(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_let_pass(&r, 1000);
    r.claim = term_of(4, 7);
    expect_epoch_above(&r, 4);
    r.claim = term_of(4, 9);
    rig_let_pass(&r, 3000);
    r.claim = term_of(TERM_MAX_EPOCH, 1);
    rig_let_pass(&r, 3000);
    assert_int_equal(r.lines[LINE_WORKER_CLAIM], 1);
    r.claim = term_of(1 << 20, 1); /* no ps 0 is restarted so often */
    rig_let_pass(&r, 3000);
    assert_int_equal(r.lines[LINE_WORKER_CLAIM], 2);
    assert_int_equal(r.n_plans, 2);
    free(r.c);
}

/* However long the worker was away before, it gets the usual time to enter the raised generation
 * and to send a message. */
static void worker_that_raised_the_epoch_gets_its_time(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    r.worker[1] = (struct coordinator_worker_event){.member = 1};
    rig_let_pass(&r, 16000);
    assert_int_equal(r.n_plans, 1);
    r.claim = term_of(4, 7);
    expect_epoch_above(&r, 4);
    r.worker[1] = (struct coordinator_worker_event){.member = 1, .incarnation = 12, .joined = 1};
    rig_let_pass(&r, 1000);
    assert_int_equal(r.n_plans, 2);
    assert_int_equal(r.lines[LINE_WORKER_LATE], 0);
    free(r.c);
}

/* ps 0 has a folder, which was emptied: it records the new epoch before a plan uses it. */
static void raised_epoch_is_recorded_before_use(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    rig_let_pass(&r, 1000);
    r.epoch_hangs = 1;
    r.claim = term_of(4, 7);
    rig_let_pass(&r, 3000);
    assert_int_equal(r.epoch, 5);
    assert_int_equal(r.n_plans, 1);
    rig_server_joins(&r); /* servers of this ps 0 continue, and make checkpoints */
    assert_int_equal(r.generation, term_of(1, 2));
    rig_ask(&r);
    rig_let_pass(&r, 1000);
    assert_int_equal(coordinator_view_last_step(r.c), 3);
    rig_disk_ends(&r, r.epoch_op, ST_OK, -1, 5);
    expect_epoch_above(&r, 4);
    assert_false(r.fenced);
    r.claim = term_of(8, 1); /* another ps 0, which runs, has claimed the folder since */
    rig_let_pass(&r, 1000);
    rig_disk_ends(&r, r.epoch_op, ST_REFUSED, -1, 5);
    assert_int_equal(r.fenced, 1);
    free(r.c);
}

/* A server joins from generation `of` of another ps 0, which is not below the present generation.
 * The server does not count as a member of the present generation, and all servers enter a
 * generation above `of`. */
static void joins_from(uint64_t of)
{
    struct rig r;
    rig_open(&r, 0);
    rig_let_pass(&r, 1000);
    r.server[1] = (struct rig_server){
        .generation = of, .ps0 = 5, .heard_ps0 = 5, .heard_epoch = term_epoch(of)};
    r.n_servers = 2;
    expect_epoch_above(&r, term_epoch(of));
    assert_int_equal(r.server[1].generation, r.generation);
    assert_int_equal(r.server[1].ps0, 9);
    free(r.c);
}

static void server_of_another_ps0_raises_the_epoch(void **state)
{
    joins_from(term_of(1, 1));
    joins_from(term_of(3, 2));
    joins_from(term_of(3, 0)); /* it obeyed another ps 0, but was in no generation */
}

/* A server finds that the checkpoint of the plan in force is damaged. ps 0 searches for an older
 * checkpoint, and the next plan resumes from it. */
static void damaged_checkpoint_leads_to_an_older_one(void **state)
{
    struct rig r;
    struct coordinator_plan_view plan;
    rig_start(&r, 1, 0);
    r.server[0].damaged = term_of(1, 1);
    r.found = 40;
    rig_report_server(&r, 0);
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

/* A server that has obeyed this ps 0 now obeys another ps 0 with a higher epoch. So this ps 0 was
 * replaced, and ends. */
static void replaced_ps0_ends(void **state)
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
    assert_int_equal(r.n_plans, n); /* it makes no further decision */
    free(r.c);
}

/* Another ps 0 claims the folder while this one waits for its first worker. */
static void ps0_notices_another_claim_before_the_first_worker(void **state)
{
    struct rig r;
    rig_start(&r, 1, 0);
    rig_let_pass(&r, 20000);
    assert_int_equal(r.fenced, 0);
    r.owner_st = ST_IO; /* the owner is unknown at present */
    rig_let_pass(&r, 20000);
    assert_int_equal(r.fenced, 0);
    r.owner_st = ST_REFUSED;
    rig_let_pass(&r, 6000);
    assert_int_equal(r.fenced, 1);
    free(r.c);
}

/* ps 0 makes the plan when it has memory for it. Until then the change waits. */
static void plan_waits_for_memory(void **state)
{
    struct rig r;
    rig_open(&r, 0);
    rig_report_workers(&r);
    r.no_memory = 3;
    assert_in_range(wait_for_plan(&r), TIMEOUT_MS + 1, TIMEOUT_MS + 30 * LOOK_EVERY_MS);
    assert_int_equal(r.no_memory, 0);
}

/* ps 0 writes a long checkpoint, while training passes the step at which the next one is due. The
 * next checkpoint follows at once, not at a later step. */
static void checkpoint_due_by_steps_follows_a_long_one(void **state)
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
    for (; r.version < 32; r.version++) /* later checkpoints are made at the usual steps */
        rig_let_pass(&r, 1000);
    assert_int_equal(coordinator_view_last_step(r.c), 30);
    free(r.c);
}

/* A checkpoint by time is due one interval after the previous checkpoint has begun. */
static void checkpoint_due_by_time_follows_a_long_one(void **state)
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

/* Training stands still before the step of the periodic checkpoint that ps 0 has ordered. A
 * requested checkpoint is made of the present step, and the periodic one follows later. */
static void check_requested_checkpoint(struct rig *r)
{
    rig_let_pass(r, 1000);
    r->version = 9;
    rig_let_pass(r, 5000);
    assert_int_equal(coordinator_view_order_step(r->c), 10);
    assert_int_equal(r->n_manifests, 0);
    rig_ask(r);
    rig_let_pass(r, 5000);
    assert_int_equal(r->n_manifests, 1);
    assert_int_equal(coordinator_view_last_step(r->c), 9);
    for (; r->version < 13; r->version++)
        rig_let_pass(r, 1000);
    assert_int_equal(coordinator_view_last_step(r->c), 10);
    free(r->c);
}

static void requested_checkpoint_does_not_wait_for_the_periodic_one(void **state)
{
    struct rig r;
    rig_open_saving(&r, 10, 0);
    check_requested_checkpoint(&r);
    rig_open_saving_async(&r, 10);
    check_requested_checkpoint(&r);
}

/* Checks the reported time until the next checkpoint. It is reported only while it is known. */
static void time_until_the_next_checkpoint_is_reported(void **state)
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
    assert_in_range(coordinator_view_next_ms(r.c), 45000,
                    52000); /* counted from the time at which that checkpoint began */
    free(r.c);
}

/* The only worker is removed, or leaves, before ps 0 has begun its first generation, whose
 * checkpoint is damaged. ps 0 keeps it until a generation has begun, since no other worker can join
 * before that. */
static void last_worker_stays_until_the_first_generation(void **state)
{
    for (int leaves = 0; leaves <= 1; leaves++) {
        struct rig r;
        rig_start(&r, 1, 0);
        r.server[0].damaged = term_of(1, 1);
        r.found = 40;
        r.find_st = ST_IO;
        rig_report_server(&r, 0);
        rig_step(&r, (struct coordinator_event){.kind = COORDINATOR_JOB,
                                                .job = {.train_steps = STEPS,
                                                        .step = 60,
                                                        .from_checkpoint = 1,
                                                        .lockstep = 1,
                                                        .n_members = 1}});
        r.generation = 0; /* neither ps 0 nor its worker is in a generation of this ps 0 */
        r.worker[0] = (struct coordinator_worker_event){
            .member = 0, .incarnation = 11, .missing_ms = -1, .leaving = leaves};
        r.worker[1] = (struct coordinator_worker_event){.member = -1};
        if (!leaves)
            rig_step(&r, (struct coordinator_event){.kind = COORDINATOR_COMMAND,
                                                    .command = {COORDINATOR_REMOVE_WORKER, 0}});
        rig_let_pass(&r, 1000);
        assert_int_equal(r.n_plans, 1);
        r.find_st = ST_OK;
        rig_let_pass(&r, MOST_MS);
        assert_int_equal(r.n_plans, 2);
        r.generation = term_of(1, 2);
        r.worker[1] = (struct coordinator_worker_event){
            .member = 1, .incarnation = 12, .missing_ms = 0, .waits = 1};
        rig_changes(&r, 1000);
        rig_let_pass(&r, 1000);
        assert_int_equal(r.n_plans, 3);
        free(r.c);
    }
}

int main(void)
{
    return RUN_TESTS(
        lost_worker_is_awaited_for_worker_timeout, time_until_the_next_checkpoint_is_reported,
        worker_gets_time_to_enter_a_generation, joined_worker_gets_less_time,
        replacing_process_gets_its_own_time, worker_is_not_missing_before_its_first_join,
        epoch_claimed_while_recorded_is_raised, plan_waits_for_memory,
        worker_of_another_ps0_raises_the_epoch, worker_that_raised_the_epoch_gets_its_time,
        raised_epoch_is_recorded_before_use, server_of_another_ps0_raises_the_epoch,
        damaged_checkpoint_leads_to_an_older_one, last_worker_stays_until_the_first_generation,
        replaced_ps0_ends, ps0_notices_another_claim_before_the_first_worker,
        hanging_manifest_is_given_up, hanging_disk_at_the_last_step_ends_ps0,
        hanging_last_manifest_ends_ps0, failed_last_manifest_is_released_by_the_owner,
        hanging_own_file_is_given_up, hanging_own_file_is_given_up_after_others,
        checkpoint_due_by_steps_follows_a_long_one, checkpoint_due_by_time_follows_a_long_one,
        requested_checkpoint_does_not_wait_for_the_periodic_one);
}
