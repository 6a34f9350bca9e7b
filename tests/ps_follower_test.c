/* tests/ps_follower_test.c - the follower of ps 0 at a server (ps/coordinator/follower.h) alone, on
 * the test's clock: which ps 0 it obeys, and which plans it begins. */
#include "base/term.h"
#include "net/wire/plan.h"
#include "ps/coordinator/follower.h"
#include "tests/check.h"

#define MS ((int64_t)1000000)

enum { NEW_LIFE = 77, LIFE = 7, OLD_LIFE = 5 }; /* incarnations of ps 0 */

static struct net_plan some_plan; /* the follower uses only the reply's generation */

struct rig {
    struct follower f;
    struct follower_out out; /* actions of the last step */
    int64_t now;
};

static void step(struct rig *r, struct follower_event e)
{
    follower_step(&r->f, &e, r->now, &r->out);
}

/* Answers the call in progress. The follower calls again at once, or after a pause. */
static void answer(struct rig *r, struct net_control_reply reply)
{
    assert_int_equal(r->f.call, CALL_UNDER_WAY);
    step(r, (struct follower_event){.kind = FOLLOWER_REPLY, .reply = &reply});
}

/* Puts the store into the generation. The next call reports this to ps 0. */
static void stand_in(struct rig *r, uint64_t generation)
{
    const struct follower_store store = {
        .generation = generation, .ps0 = LIFE, .lowest = 3, .highest = 4};
    step(r, (struct follower_event){.kind = FOLLOWER_STORE, .store = &store});
    const struct follower_out out = r->out;
    if (out.cancel)
        step(r, (struct follower_event){.kind = FOLLOWER_FAILED, .st = ST_CANCELLED});
    r->out = out;
}

/* Returns ps 0's reply with this plan, without a checkpoint. */
static struct net_control_reply plan_of(uint64_t incarnation, uint64_t generation)
{
    return (struct net_control_reply){.incarnation = incarnation,
                                      .epoch = term_epoch(generation),
                                      .generation = generation,
                                      .number = generation,
                                      .plan = &some_plan,
                                      .step = -1};
}

/* Returns a reply with an order, for a server that is already in the order's generation. */
static struct net_control_reply order_of(uint64_t generation, uint64_t order, int64_t at)
{
    struct net_control_reply reply = plan_of(LIFE, generation);
    reply.plan = NULL;
    reply.order = order;
    reply.step = at;
    return reply;
}

/* Starts a follower in the generation that ps 0 `LIFE` planned; 0: before the first message. */
static struct rig begin(uint64_t generation)
{
    struct rig r = {.now = 1000 * MS};
    const struct follower_start start = {.incarnation = 9, .keeps_checkpoints = 1};
    follower_init(&r.f);
    step(&r, (struct follower_event){.kind = FOLLOWER_START, .start = &start});
    assert_int_equal(r.out.call, 1);
    if (!generation)
        return r;
    answer(&r, plan_of(LIFE, generation));
    assert_int_equal(r.out.n, 1);
    assert_int_equal(r.out.act[0].kind, FOLLOWER_ACT_APPLY);
    stand_in(&r, generation);
    return r;
}

/* Returns nonzero if the last step has this action. */
static int has(const struct rig *r, enum follower_action_kind kind)
{
    int n = 0;
    for (int i = 0; i < r->out.n; i++)
        n += r->out.act[i].kind == kind;
    return n;
}

static void assert_applies(const struct rig *r, uint64_t generation)
{
    assert_int_equal(has(r, FOLLOWER_ACT_APPLY), 1);
    for (int i = 0; i < r->out.n; i++)
        if (r->out.act[i].kind == FOLLOWER_ACT_APPLY)
            assert_int_equal(r->out.act[i].generation, generation);
}

static void assert_orders(const struct rig *r, uint64_t generation, uint64_t order, int64_t at)
{
    assert_int_equal(r->out.n, 1);
    assert_int_equal(r->out.act[0].kind, FOLLOWER_ACT_ORDER);
    assert_int_equal(r->out.act[0].generation, generation);
    assert_int_equal(r->out.act[0].order, order);
    assert_int_equal(r->out.act[0].step, at);
}

/* A ps 0 of a lower epoch leads to a line. The follower ignores everything else in its reply,
 * whatever generation the reply claims, and still obeys the other ps 0. */
static void replaced_ps0_is_not_obeyed(void **state)
{
    const uint64_t generations[] = {term_of(1, 1), term_of(2, 1), term_of(3, 1)};
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++) {
        struct rig r = begin(term_of(2, 1));
        struct net_control before, after;
        follower_request(&r.f, &before);
        struct net_control_reply old = plan_of(OLD_LIFE, generations[i]);
        old.epoch = 1;
        old.stop = old.order = old.settled = 4;
        old.step = 9;
        old.drained = 1;
        answer(&r, old);
        assert_int_equal(r.out.n, 1);
        assert_int_equal(r.out.act[0].kind, FOLLOWER_ACT_OLD_PS0);
        follower_request(&r.f, &after);
        assert_int_equal(after.seen, before.seen);
        assert_int_equal(after.stop, before.stop);
        assert_int_equal(after.order, before.order);
        assert_int_equal(r.out.call, 0); /* the follower calls again after a pause */
        r.now = r.out.wake_ns;
        step(&r, (struct follower_event){.kind = FOLLOWER_TIMER});
        assert_int_equal(r.out.call, 1);
        answer(&r, plan_of(LIFE, term_of(2, 2)));
        assert_int_equal(r.out.n, 1); /* no further line */
        assert_applies(&r, term_of(2, 2));
    }
}

/* Before there is a plan, only the epoch decides which ps 0 is obeyed. */
static void replaced_ps0_is_not_obeyed_before_a_plan(void **state)
{
    struct rig r = begin(0);
    answer(&r, (struct net_control_reply){.incarnation = LIFE, .epoch = 2, .step = -1});
    assert_int_equal(r.out.n, 0);
    answer(&r, plan_of(OLD_LIFE, term_of(1, 1)));
    assert_int_equal(r.out.n, 1);
    assert_int_equal(r.out.act[0].kind, FOLLOWER_ACT_OLD_PS0);
}

/* ps 0 was restarted, with an equal or higher epoch. Training stops until the new ps 0 has sent a
 * plan. */
static void restarted_ps0_stops_training_until_its_plan(void **state)
{
    for (uint64_t epoch = 2; epoch <= 3; epoch++) {
        struct rig r = begin(term_of(2, 1));
        struct net_control report;
        follower_request(&r.f,
                         &report); /* contains the obeyed ps 0, and the ps 0 of the generation */
        assert_true(report.heard_ps0 == LIFE && report.heard_epoch == 2 && report.ps0 == LIFE);
        answer(&r, (struct net_control_reply){.incarnation = NEW_LIFE, .epoch = epoch, .step = -1});
        follower_request(&r.f, &report);
        assert_true(report.heard_ps0 == NEW_LIFE && report.heard_epoch == epoch &&
                    report.ps0 == LIFE);
        assert_int_equal(r.out.n, 2);
        assert_int_equal(has(&r, FOLLOWER_ACT_NEW_PS0), 1);
        assert_int_equal(has(&r, FOLLOWER_ACT_STOP), 1);
        answer(&r, plan_of(NEW_LIFE, term_of(3, 1)));
        assert_int_equal(r.out.n, 1);
        assert_applies(&r, term_of(3, 1));
    }
}

/* The follower does not begin the generation in force, or an earlier one, again. */
static void older_plan_is_not_begun(void **state)
{
    struct rig r = begin(term_of(2, 3));
    const uint64_t not_newer[] = {term_of(2, 3), term_of(2, 2), term_of(1, 9)};
    for (size_t i = 0; i < sizeof not_newer / sizeof *not_newer; i++) {
        struct net_control_reply reply = plan_of(LIFE, not_newer[i]);
        reply.epoch = 2;
        reply.stop = i; /* another generation is in force */
        answer(&r, reply);
        assert_int_equal(r.out.n, 0);
    }
    answer(&r, plan_of(LIFE, term_of(2, 4)));
    assert_applies(&r, term_of(2, 4));
}

/* ps 0 repeats a plan until the server is in its generation. */
static void repeated_plan_is_begun_once(void **state)
{
    struct rig r = begin(term_of(1, 1));
    answer(&r, plan_of(LIFE, term_of(1, 2)));
    assert_applies(&r, term_of(1, 2));
    for (int i = 0; i < 3; i++) {
        answer(&r, plan_of(LIFE, term_of(1, 2)));
        assert_int_equal(has(&r, FOLLOWER_ACT_APPLY), 0);
        stand_in(&r, term_of(1, 1)); /* the store is not there yet */
        assert_int_equal(r.out.n, 0);
    }
    answer(&r, plan_of(LIFE, term_of(1, 3))); /* replaces the first plan */
    assert_applies(&r, term_of(1, 3));
    stand_in(&r, term_of(1, 3));
    answer(&r, plan_of(LIFE, term_of(1, 3))); /* a repeat that was in flight */
    assert_int_equal(r.out.n, 0);
}

/* An order waits until the store is in its generation, and is accepted once. */
static void order_waits_for_its_generation(void **state)
{
    struct rig r = begin(term_of(1, 1));
    struct net_control_reply reply = plan_of(LIFE, term_of(1, 2));
    struct net_control report;
    reply.order = 41;
    reply.step = 8;
    answer(&r, reply);
    assert_int_equal(r.out.n, 1);
    assert_applies(&r, term_of(1, 2));
    stand_in(&r, term_of(1, 1));
    assert_int_equal(r.out.n, 0);
    follower_request(&r.f, &report);
    assert_int_equal(report.order, 0);
    stand_in(&r, term_of(1, 2));
    assert_orders(&r, term_of(1, 2), 41, 8);
    answer(&r, order_of(term_of(1, 2), 41, 8)); /* a repeat */
    assert_int_equal(r.out.n, 0);
    answer(&r, order_of(term_of(1, 2), 42, 16));
    assert_orders(&r, term_of(1, 2), 42, 16);
}

/* The follower does not accept an order of a generation that has ended, or an order without a
 * job. */
static void order_of_another_generation_is_ignored(void **state)
{
    struct net_control report;
    struct rig r = begin(term_of(1, 2));
    answer(&r, order_of(term_of(1, 1), 41, 8));
    assert_int_equal(has(&r, FOLLOWER_ACT_ORDER), 0);
    stand_in(&r, term_of(1, 2));
    assert_int_equal(r.out.n, 0);
    follower_request(&r.f, &report);
    assert_int_equal(report.order, 0);
    r = begin(0);
    answer(&r, order_of(0, 41, 8));
    assert_int_equal(r.out.n, 0);
}

/* The progress of an earlier order does not count for the last one. */
static void progress_of_another_order_is_ignored(void **state)
{
    struct rig r = begin(term_of(1, 1));
    struct net_control report;
    answer(&r, order_of(term_of(1, 1), 42, 8));
    struct net_control snapshot = {.order = 41, .phase = PART_WRITTEN, .bytes = 5, .crc32c = 6};
    step(&r, (struct follower_event){.kind = FOLLOWER_SNAPSHOT, .snapshot = &snapshot});
    assert_int_equal(r.out.cancel, 0);
    follower_request(&r.f, &report);
    assert_int_equal(report.order, 42);
    assert_int_equal(report.phase, PART_ARMED);
    assert_int_equal(report.bytes, 0);
    snapshot.order = 42;
    step(&r, (struct follower_event){.kind = FOLLOWER_SNAPSHOT, .snapshot = &snapshot});
    assert_int_equal(r.out.cancel, 1); /* the next call reports the new state */
    follower_request(&r.f, &report);
    assert_int_equal(report.phase, PART_WRITTEN);
    assert_int_equal(report.bytes, 5);
    assert_int_equal(report.crc32c, 6);
}

/* ps 0 does not answer. After a while the follower begins to check, now and then, whether the job
 * continued without this server. */
static void missing_ps0_leads_to_looks_at_the_folder(void **state)
{
    struct rig r = begin(term_of(1, 1));
    int n_looks = 0;
    for (int i = 0; i < 25; i++) {
        r.now += 1000 * MS;
        step(&r, (struct follower_event){.kind = FOLLOWER_TIMER});
        step(&r, (struct follower_event){.kind = FOLLOWER_FAILED, .st = ST_UNAVAILABLE});
        n_looks += has(&r, FOLLOWER_ACT_LOOK);
        if (i < 10)
            assert_int_equal(n_looks, 0);
    }
    assert_int_equal(n_looks, 2);
    const uint64_t here = term_of(1, 1);
    step(&r,
         (struct follower_event){.kind = FOLLOWER_LOOKED, .generation = here, .has_all_steps = 1});
    assert_int_equal(r.out.n, 0); /* workers may still need the chunks here */
    step(&r, (struct follower_event){.kind = FOLLOWER_LOOKED, .generation = 0, .left_out = 1});
    assert_int_equal(r.out.n, 0); /* a look that began before this generation */
    step(&r, (struct follower_event){.kind = FOLLOWER_LOOKED, .generation = here, .left_out = 1});
    assert_int_equal(r.out.n, 1);
    assert_int_equal(r.out.act[0].kind, FOLLOWER_ACT_DRAINED);
    assert_int_equal(r.out.act[0].arg, 0);
}

/* Returns true if the follower ends this server, without ps 0, by what the folder shows. */
static bool ends_by(struct rig *r, struct follower_event looked)
{
    looked.kind = FOLLOWER_LOOKED;
    looked.generation = r->f.store.generation;
    step(r, (struct follower_event){.kind = FOLLOWER_FAILED, .st = ST_UNAVAILABLE});
    step(r, looked);
    assert_int_equal(has(r, FOLLOWER_ACT_DONE), has(r, FOLLOWER_ACT_DRAINED));
    return has(r, FOLLOWER_ACT_DRAINED);
}

/* ps 0 ended in order, and did not reach this server: it ends as well if it had a part in the job,
 * or joined it. A server that has only been started may belong to a later job. */
static void server_that_missed_the_end_ends(void **state)
{
    (void)state;
    struct rig r = begin(term_of(1, 1));
    assert_true(ends_by(&r, (struct follower_event){.has_all_steps = 1, .is_over = 1}));
    for (int joins = 0; joins < 2; joins++) {
        int n_looks = 0;
        r = begin(0);
        r.f.start.joins = joins;
        for (int i = 0; i < 25; i++) {
            r.now += 1000 * MS;
            step(&r, (struct follower_event){.kind = FOLLOWER_TIMER});
            step(&r, (struct follower_event){.kind = FOLLOWER_FAILED, .st = ST_UNAVAILABLE});
            n_looks += has(&r, FOLLOWER_ACT_LOOK);
        }
        assert_int_equal(n_looks, joins ? 2 : 0);
        assert_false(ends_by(&r, (struct follower_event){.has_all_steps = 1}));
        if (joins)
            assert_true(ends_by(&r, (struct follower_event){.has_all_steps = 1, .is_over = 1}));
    }
}

/* A look at the folder may last long. If ps 0 answers before the look ends, the look's result is
 * ignored. */
static void late_look_is_ignored_when_ps0_answers(void **state)
{
    (void)state;
    struct rig r = begin(term_of(1, 1));
    step(&r, (struct follower_event){.kind = FOLLOWER_FAILED, .st = ST_UNAVAILABLE});
    struct net_control_reply last = plan_of(LIFE, term_of(1, 1));
    last.plan = NULL;
    step(&r, (struct follower_event){.kind = FOLLOWER_REPLY, .reply = &last});
    step(&r, (struct follower_event){
                 .kind = FOLLOWER_LOOKED, .generation = term_of(1, 1), .left_out = 1});
    assert_false(has(&r, FOLLOWER_ACT_DRAINED));
}

/* The follower acknowledges to ps 0 that the job has ended. When ps 0 does not answer any more,
 * this server ends, and reports whether the job failed. */
static void server_ends_with_the_job(void **state)
{
    for (int failed = 0; failed < 2; failed++) {
        struct rig r = begin(term_of(1, 1));
        struct net_control_reply last = plan_of(LIFE, term_of(1, 1));
        last.plan = NULL;
        last.drained = last.closing = 1;
        last.failed = failed;
        answer(&r, last);
        assert_int_equal(has(&r, FOLLOWER_ACT_DRAINED), 0);
        assert_int_equal(r.out.call, 1);
        step(&r, (struct follower_event){.kind = FOLLOWER_FAILED, .st = ST_UNAVAILABLE});
        assert_int_equal(r.out.n, 1);
        assert_int_equal(r.out.act[0].kind, FOLLOWER_ACT_DRAINED);
        assert_int_equal(r.out.act[0].arg, failed ? 2 : 1);
        assert_int_equal(r.out.call, 0);
    }
}

int main(void)
{
    return RUN_TESTS(replaced_ps0_is_not_obeyed, replaced_ps0_is_not_obeyed_before_a_plan,
                     restarted_ps0_stops_training_until_its_plan, older_plan_is_not_begun,
                     repeated_plan_is_begun_once, order_waits_for_its_generation,
                     order_of_another_generation_is_ignored, progress_of_another_order_is_ignored,
                     server_ends_with_the_job, missing_ps0_leads_to_looks_at_the_folder,
                     server_that_missed_the_end_ends, late_look_is_ignored_when_ps0_answers);
}
