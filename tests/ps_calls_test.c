/* tests/ps_calls_test.c - ps 0's coordinator (ps/coordinator/coordinator.h) and the calls of
 * another server, on the test's clock: which process counts as that server, how long a new ps 0
 * waits for its first call, and how long an ending ps 0 waits for its last call. The job has two
 * servers and no folder. */
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
    enum answer answer[64]; /* answer to each call, by the call's number */
    uint64_t plan;          /* generation of the plan to make; 0: none */
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

/* Advances the clock by at most one look at a time, with a step after each: between two steps the
 * coordinator's awake clock counts at most one look. */
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

/* Calls as server 1. seen: number of replies of ps 0 that this server has received. Returns the
 * call's number. */
static uint64_t ask(struct rig *r, uint64_t incarnation, uint64_t seen, uint64_t generation)
{
    const struct net_control report = {.server = 1,
                                       .n_servers = 2,
                                       .incarnation = incarnation,
                                       .generation = generation,
                                       .ps0 = generation ? 5 : 0, /* ps 0 of an earlier life */
                                       .address = "h:2",
                                       .seen = seen,
                                       .lowest = -1,
                                       .highest = -1};
    step(r, (struct coordinator_event){
                .kind = COORDINATOR_CONTROL, .control = &report, .call = ++r->call});
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

/* No process replaces a server whose call is open, however silent the server is. */
static void server_with_open_call_keeps_its_place(void **state)
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

/* A server keeps its place while it has time to call again after an answer. Then the place is
 * free. */
static void place_is_free_when_no_call_follows_an_answer(void **state)
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

/* After the end of a call the server either calls at once or has ended. */
static void place_is_free_shortly_after_a_closed_call(void **state)
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

/* An ending ps 0 stays until the other server has acknowledged the end. If the server's next call
 * crosses with the reply, ps 0 repeats the reply. */
static void crossed_closing_reply_is_repeated(void **state)
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

/* An ending ps 0 does not wait for a server that no longer calls. */
static void ending_ps0_leaves_without_a_silent_server(void **state)
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

/* Without a folder only servers that still run can report earlier generations. The first generation
 * of a restarted ps 0 is above theirs. */
static void first_generation_exceeds_that_of_a_running_server(void **state)
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

/* ps 0 waits only for a limited time: the server may have ended with the earlier ps 0, or may not
 * have been started yet. */
static void job_begins_when_no_server_calls(void **state)
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
    return RUN_TESTS(
        server_with_open_call_keeps_its_place, place_is_free_when_no_call_follows_an_answer,
        place_is_free_shortly_after_a_closed_call, crossed_closing_reply_is_repeated,
        ending_ps0_leaves_without_a_silent_server,
        first_generation_exceeds_that_of_a_running_server, job_begins_when_no_server_calls);
}
