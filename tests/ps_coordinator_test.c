/* tests/ps_coordinator_test.c - ps 0's coordinator (ps/coordinator/coordinator.h) by itself, on a
 * clock of the test's: how long a worker is waited for that died between its Join and its first
 * word. One server, two workers, no folder. */
#include "ps/coordinator/coordinator_view.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 1000, LOOK_EVERY_MS = 100, MOST_MS = 60000 };
#define MS ((int64_t)1000000)

struct rig {
    struct coord *c;
    int64_t now;
    uint64_t call, generation;
    struct coord_worker_state worker[2];
    int n_plans; /* made so far */
};

static void step(struct rig *r, struct coord_event e);

/* ps 0's own store is where the plan in force wants it. */
static void say_how_it_stands(struct rig *r)
{
    const struct net_control own = {.n_servers = 1,
                                    .incarnation = 9,
                                    .generation = r->generation,
                                    .address = "h:1",
                                    .stop = r->call,
                                    .stopped = 1,
                                    .lowest = 3,
                                    .highest = 3};
    struct net_control said = own;
    struct net_control_reply reply;
    coord_fill_reply(r->c, 0, &reply);
    said.stop = reply.stop;
    said.seen = reply.number;
    step(r, (struct coord_event){.kind = COORD_CONTROL, .control = &said, .call = ++r->call});
}

static void step(struct rig *r, struct coord_event e)
{
    struct coord_out out;
    e.lowest = e.highest = 3;
    coord_step(r->c, &e, r->now, &out);
    for (int i = 0; i < out.n; i++) {
        struct coord_plan_view plan;
        if (out.act[i].kind != ACT_PLAN)
            continue;
        coord_next_plan(r->c, &plan);
        r->generation = plan.generation;
        r->n_plans++;
        step(r, (struct coord_event){.kind = COORD_PLANNED, .op = out.act[i].op, .st = ST_OK});
        say_how_it_stands(r);
        return;
    }
}

static void tell_workers(struct rig *r)
{
    step(r, (struct coord_event){
                .kind = COORD_WORKERS,
                .workers = {.generation = r->generation, .n = 2, .worker = r->worker}});
}

static void rig_open(struct rig *r)
{
    char *addrs[] = {"h:1"};
    const struct hosts servers = {1, addrs};
    const struct coord_start start = {.incarnation = 9,
                                      .address = "h:1",
                                      .servers = &servers,
                                      .worker_timeout_ms = TIMEOUT_MS,
                                      .last_step = -1};
    *r = (struct rig){.c = calloc(1, coord_bytes(4, 4)), .now = 1000 * MS};
    coord_init(r->c, 4, 4);
    step(r, (struct coord_event){.kind = COORD_START, .start = &start});
    say_how_it_stands(r);
    step(r, (struct coord_event){.kind = COORD_JOB,
                                 .job = {.train_steps = 100, .lockstep = 1, .n_members = 2}});
    assert_int_equal(r->n_plans, 1);
    for (int i = 0; i < 2; i++)
        r->worker[i] = (struct coord_worker_state){
            .member = i, .incarnation = 11 + (uint64_t)i, .missing_ms = -1, .joined = 1};
}

/* Until the others go on without worker 1, which nobody hears any more; in ms. */
static int64_t wait_for_plan(struct rig *r)
{
    int64_t begin = r->now;
    r->worker[1].missing_ms = 0;
    tell_workers(r);
    while (r->n_plans == 1 && r->now < begin + MOST_MS * MS) {
        r->now += LOOK_EVERY_MS * MS;
        r->worker[1].missing_ms += LOOK_EVERY_MS;
        tell_workers(r);
        say_how_it_stands(r);
    }
    assert_int_equal(r->n_plans, 2);
    free(r->c);
    return (r->now - begin) / MS;
}

/* It has spoken, and is away: as long as --worker_timeout says. */
static void test_one_that_spoke(void **state)
{
    struct rig r;
    rig_open(&r);
    tell_workers(&r);
    assert_in_range(wait_for_plan(&r), TIMEOUT_MS, TIMEOUT_MS + LOOK_EVERY_MS);
}

/* It lives, maybe, and is slow to come into the generation. */
static void test_one_that_has_not_come(void **state)
{
    struct rig r;
    rig_open(&r);
    assert_in_range(wait_for_plan(&r), 10000, 10000 + LOOK_EVERY_MS);
}

/* It joined the generation, and had only to speak: not as long as one that has to come. */
static void test_one_that_died_as_it_came(void **state)
{
    struct rig r;
    rig_open(&r);
    r.worker[1].came = 1;
    assert_in_range(wait_for_plan(&r), 2000, 2000 + LOOK_EVERY_MS);
}

/* Another process has taken its place since: it has its own time. */
static void test_another_comes_in_its_place(void **state)
{
    struct rig r;
    rig_open(&r);
    r.worker[1].came = 1;
    r.worker[1].missing_ms = 0;
    tell_workers(&r);
    r.now += 1900 * MS;
    r.worker[1].incarnation = 77;
    assert_in_range(wait_for_plan(&r), 2000, 2000 + LOOK_EVERY_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_that_spoke),
        cmocka_unit_test(test_one_that_has_not_come),
        cmocka_unit_test(test_one_that_died_as_it_came),
        cmocka_unit_test(test_another_comes_in_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
