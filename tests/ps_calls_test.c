/* tests/ps_calls_test.c - ps 0's coordinator (ps/coordinator/coordinator.h) and the calls of
 * another server, on a clock of the test's: who is believed to be that server, how long a ps 0 that
 * begins waits for its first call, and one that ends for its last. Two servers, no folder. */
#include "base/term.h"
#include "ps/coordinator/coordinator_view.h"
#include "tests/check.h"
#include <stdlib.h>

enum { BEAT_MS = 3000, AGAIN_MS = 500, CLOSED_MS = 20, FIRST_CALL_MS = 4000, LOOK_EVERY_MS = 100 };
enum { OTHER = 5, STRANGER = 6 };
#define MS ((int64_t)1000000)

enum answer { ANSWER_NONE, ANSWER_GIVEN, ANSWER_REFUSED };

struct rig {
    struct coordinator_state *c;
    int64_t now;
    uint64_t call;
    enum answer answer[64]; /* by call */
    uint64_t plan;          /* the generation that is to be made; 0: none is */
};

static void step(struct rig *r, struct coordinator_event e)
{
    struct coordinator_out out;
    e.lowest = e.highest = -1;
    coordinator_step(r->c, &e, r->now, &out);
    for (int i = 0; i < out.n; i++) {
        const struct coordinator_action *a = &out.act[i];
        struct coordinator_plan_view plan;
        if (a->kind == ACT_REPLY)
            r->answer[a->call] = a->server < 0 ? ANSWER_REFUSED : ANSWER_GIVEN;
        if (a->kind != ACT_PLAN)
            continue;
        coordinator_view_next_plan(r->c, &plan);
        r->plan = plan.generation;
    }
}

/* In looks, as the awake clock takes no more than one for what has passed. */
static void pass(struct rig *r, int64_t ms)
{
    for (int64_t left = ms; left > 0; left -= LOOK_EVERY_MS) {
        r->now += (left < LOOK_EVERY_MS ? left : LOOK_EVERY_MS) * MS;
        step(r, (struct coordinator_event){.kind = COORDINATOR_TIMER});
    }
}

static void rig_open(struct rig *r)
{
    char *addrs[] = {"h:1", "h:2"};
    const struct hosts servers = {2, addrs};
    const struct coordinator_start start = {
        .incarnation = 9, .address = "h:1", .servers = &servers, .last_step = -1};
    *r = (struct rig){.c = calloc(1, coordinator_bytes(4, 4)), .now = 1000 * MS};
    coordinator_init(r->c, 4, 4);
    step(r, (struct coordinator_event){.kind = COORDINATOR_START, .start = &start});
}

static void rig_close(struct rig *r)
{
    free(r->c);
}

static uint64_t number(struct rig *r)
{
    struct net_control_reply reply;
    coordinator_view_fill_reply(r->c, 1, &reply);
    return reply.number;
}

/* A call as server 1, that has seen so many of ps 0's replies; its number. */
static uint64_t ask(struct rig *r, uint64_t incarnation, uint64_t seen, uint64_t generation)
{
    const struct net_control said = {.server = 1,
                                     .n_servers = 2,
                                     .incarnation = incarnation,
                                     .generation = generation,
                                     .ps0 = generation ? 5 : 0, /* of another life */
                                     .address = "h:2",
                                     .seen = seen,
                                     .lowest = -1,
                                     .highest = -1};
    step(r, (struct coordinator_event){
                .kind = COORDINATOR_CONTROL, .control = &said, .call = ++r->call});
    return r->call;
}

static enum answer answer_to(struct rig *r, uint64_t call)
{
    return r->answer[call];
}

static void assert_refused(struct rig *r)
{
    assert_int_equal(answer_to(r, ask(r, STRANGER, number(r), 0)), ANSWER_REFUSED);
}

static void assert_believed(struct rig *r)
{
    assert_int_not_equal(answer_to(r, ask(r, STRANGER, number(r), 0)), ANSWER_REFUSED);
    rig_close(r);
}

/* Nobody takes the place of a server whose call is open, whatever else is silent. */
static void while_its_call_is_open(void **state)
{
    struct rig r;
    rig_open(&r);
    uint64_t call = ask(&r, OTHER, number(&r), 0);
    for (int i = 0; i < BEAT_MS / LOOK_EVERY_MS - 1; i++) {
        assert_refused(&r);
        pass(&r, LOOK_EVERY_MS);
    }
    assert_int_equal(answer_to(&r, call), ANSWER_NONE);
    rig_close(&r);
}

/* Nor while it has the time to call again; then its place is free. */
static void after_an_answer(void **state)
{
    struct rig r;
    rig_open(&r);
    uint64_t call = ask(&r, OTHER, number(&r), 0);
    pass(&r, BEAT_MS);
    assert_int_equal(answer_to(&r, call), ANSWER_GIVEN);
    pass(&r, AGAIN_MS - 1);
    assert_refused(&r);
    assert_int_equal(answer_to(&r, ask(&r, OTHER, number(&r), 0)), ANSWER_NONE);
    pass(&r, BEAT_MS);
    pass(&r, AGAIN_MS);
    assert_believed(&r);
}

/* A call that its server has ended: it calls at once, or has ended itself. */
static void after_the_end_of_a_call(void **state)
{
    struct rig r;
    rig_open(&r);
    uint64_t call = ask(&r, OTHER, number(&r), 0);
    step(&r, (struct coordinator_event){.kind = COORDINATOR_CLOSED, .call = call});
    pass(&r, CLOSED_MS - 1);
    assert_refused(&r);
    pass(&r, 1);
    assert_believed(&r);
}

static void finish(struct rig *r)
{
    step(r, (struct coordinator_event){.kind = COORDINATOR_COMMAND,
                                       .command = {.what = COORDINATOR_FINISH}});
}

/* A ps 0 that ends stays until the other has shown that it knows: an answer that crossed with
 * another question is given again. */
static void a_goodbye_that_crossed(void **state)
{
    struct rig r;
    struct net_control_reply reply;
    rig_open(&r);
    uint64_t seen = number(&r), call = ask(&r, OTHER, seen, 0);
    finish(&r);
    assert_int_equal(answer_to(&r, call), ANSWER_GIVEN);
    coordinator_view_fill_reply(r.c, 1, &reply);
    assert_true(reply.closing);
    pass(&r, AGAIN_MS - 1);
    assert_true(coordinator_view_is_unheard(r.c));
    call = ask(&r, OTHER, seen, 0);
    assert_int_equal(answer_to(&r, call), ANSWER_GIVEN);
    pass(&r, AGAIN_MS - 1);
    assert_true(coordinator_view_is_unheard(r.c));
    ask(&r, OTHER, reply.number, 0);
    assert_false(coordinator_view_is_unheard(r.c));
    rig_close(&r);
}

/* One that does not call any more is not waited for. */
static void a_goodbye_that_nobody_hears(void **state)
{
    struct rig r;
    rig_open(&r);
    ask(&r, OTHER, number(&r), 0);
    finish(&r);
    assert_true(coordinator_view_is_unheard(r.c));
    pass(&r, AGAIN_MS);
    assert_false(coordinator_view_is_unheard(r.c));
    rig_close(&r);
}

static void offer_job(struct rig *r)
{
    step(r, (struct coordinator_event){.kind = COORDINATOR_JOB,
                                       .job = {.train_steps = 100, .lockstep = 1, .n_members = 1}});
}

/* Without a folder only servers that live on know which generations there have been: the first one
 * of a ps 0 that came back is above theirs. */
static void a_job_waits_for_who_lives_on(void **state)
{
    struct rig r;
    struct coordinator_line why;
    rig_open(&r);
    pass(&r, FIRST_CALL_MS - 1);
    assert_false(coordinator_view_takes_job(r.c, &why));
    assert_int_equal(why.id, WAIT_SERVER_CALLS);
    assert_int_equal(why.server, 1);
    offer_job(&r);
    assert_int_equal(r.plan, 0);
    ask(&r, OTHER, 0, term_of(1, 7));
    offer_job(&r);
    assert_int_equal(r.plan, term_of(2, 1));
    rig_close(&r);
}

/* Not for ever: it may have gone with ps 0, or not have been started yet. */
static void a_job_begins_without_a_call(void **state)
{
    struct rig r;
    struct coordinator_line why;
    rig_open(&r);
    pass(&r, FIRST_CALL_MS + 1);
    assert_true(coordinator_view_takes_job(r.c, &why));
    offer_job(&r);
    assert_int_equal(r.plan, term_of(1, 1));
    rig_close(&r);
}

int main(void)
{
    return RUN_TESTS(while_its_call_is_open, after_an_answer, after_the_end_of_a_call,
                     a_goodbye_that_crossed, a_goodbye_that_nobody_hears,
                     a_job_waits_for_who_lives_on, a_job_begins_without_a_call);
}
