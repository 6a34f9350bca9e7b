/* tests/ps_generation_test.c - a server from generation to generation: which joiners it admits or
 * asks to wait, its missing members, the run of a plan, and the release of earlier runs. */
#include "base/clock.h"
#include "base/log.h"
#include "net/exchange/exchange.h"
#include "ps/service/run.h"
#include "ps/service/service.h"
#include "ps/store/handover.h"
#include "ps/store/stragglers.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHUNKS = 2, N_ELEMS = 1024 + 300, BATCH = 10, WAIT_MS = 20000 };

static const struct net_param model[] = {{.name = "w", .shape = {2, {331, 4}}}};

static char self_addr[32] = "127.0.0.1:1", other_addr[] = "127.0.0.1:2";
static char *self_addrs[] = {self_addr}, *both_addrs[] = {self_addr, other_addr};
static const struct hosts alone = {1, self_addrs}, both = {2, both_addrs}, no_workers = {0, NULL};

struct rig {
    struct chunks *chunks;
    struct service *service;
    struct net_server_handler handler;
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t wake;
    int n_started, n_changed, n_done, n_first;
};

static void bump(void *ctx, int *n)
{
    struct rig *r = ctx;
    pthread_mutex_lock(&r->lock);
    (*n)++;
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->lock);
}

static void on_started(void *ctx)
{
    bump(ctx, &((struct rig *)ctx)->n_started);
}

static void on_changed(void *ctx)
{
    bump(ctx, &((struct rig *)ctx)->n_changed);
}

static void on_done(void *ctx)
{
    bump(ctx, &((struct rig *)ctx)->n_done);
}

static enum status on_first(void *ctx, const struct net_join *join, char *why, size_t why_bytes)
{
    bump(ctx, &((struct rig *)ctx)->n_first);
    return ST_OK;
}

static void setup_at(struct rig *r, const char *address, int self, int plans)
{
    *r = (struct rig){.n_started = 0};
    pthread_mutex_init(&r->lock, NULL);
    clock_cond_init(&r->wake);
    assert_int_equal(chunks_create(model, 1, 4096, &r->chunks), ST_OK);
    assert_int_equal(r->chunks->n_chunks, N_CHUNKS);
    const struct service_config cfg = {.self = self,
                                       .address = address,
                                       .ps_hosts = &alone,
                                       .worker_hosts = &no_workers,
                                       .max_model_bytes = 1 << 20,
                                       .hold_last = self == 0,
                                       .started = on_started,
                                       .first_join = plans ? on_first : NULL,
                                       .roster_changed = on_changed,
                                       .done = on_done,
                                       .ctx = r};
    assert_int_equal(service_create(&cfg, &r->service), ST_OK);
    r->handler = service_handler(r->service);
}

static void setup(struct rig *r, int self, int plans)
{
    setup_at(r, self_addr, self, plans);
}

static void teardown(struct rig *r)
{
    service_destroy(r->service);
    chunks_destroy(r->chunks);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
}

static struct net_job job_of(int n_workers)
{
    struct net_job job = {.n_workers = n_workers,
                          .sync_mode = JOB_SYNC,
                          .train_steps = n_workers ? 100 : 0,
                          .batch = BATCH};
    optim_defaults(OPTIM_MOMENTUM, &job.optim);
    return job;
}

/* Joins as `member`. n_workers 0: the worker joins a running job, and `member` may be -1. */
static enum join_answer join(struct rig *r, int member, uint64_t incarnation, int n_workers,
                             struct net_join_reply *reply)
{
    const struct net_join req = {.member = member,
                                 .incarnation = incarnation,
                                 .address = "gpu7",
                                 .job = job_of(n_workers),
                                 .chunks = r->chunks};
    r->handler.join(r->handler.ctx, &req, "ipv4:10.0.0.7:5000", reply);
    free(reply->server);
    hosts_free(&reply->servers);
    reply->server = NULL;
    return reply->answer;
}

static void leave(struct rig *r, struct net_leave l)
{
    r->handler.leave(r->handler.ctx, &l);
}

/* Makes a plan for `servers`. Two servers have one chunk each. */
static struct net_plan *plan_of(struct rig *r, uint64_t generation, const int *member, int n,
                                const struct hosts *servers)
{
    static int shard[N_CHUNKS], held_by[N_CHUNKS];
    const struct net_plan p = {.generation = generation,
                               .job = job_of(2),
                               .chunks = r->chunks,
                               .n_members = n,
                               .member = (int *)member,
                               .servers = *servers,
                               .shard = shard,
                               .before = generation - 1,
                               .holders = *servers,
                               .held_by = held_by};
    struct net_plan *copy;
    for (int i = 0; i < N_CHUNKS; i++)
        shard[i] = held_by[i] = i % servers->n;
    assert_int_equal(net_plan_copy(&p, &copy), ST_OK);
    return copy;
}

static enum status begin(struct rig *r, struct net_plan *p)
{
    enum status st = generation_begin(r->service, p, NULL);
    net_plan_free(p);
    return st;
}

/* Sets the first generation's values and makes `version` steps. Returns the last answer. */
static enum piece_kind fill(struct rig *r, int64_t version, int n_members)
{
    static float values[1024];
    int ended;
    enum piece_kind last = PIECE_NONE;
    struct run *run = service_run(r->service, &ended);
    for (int64_t step = -1; step < version; step++)
        for (int c = 0; c < N_CHUNKS; c++)
            for (int m = 0; m < (step < 0 ? 1 : n_members); m++) {
                for (int i = 0; i < 1024; i++)
                    values[i] = (float)(step + m + i) / 1024;
                size_t bytes = (size_t)r->chunks->chunks[c].n_elems * sizeof(float);
                const struct net_frame_head head = {run->generation, (uint32_t)m, 10 + (uint64_t)m};
                const struct net_piece piece = {.kind = step < 0 ? PIECE_INIT : PIECE_PUSH,
                                                .chunk = (uint32_t)c,
                                                .step = (uint64_t)(step < 0 ? 0 : step),
                                                .weight = 1,
                                                .unsummed = 1,
                                                .payload.bytes = bytes};
                last = store_rig_act(run->store, &head, piece, values, clock_now_ns());
                assert_int_not_equal(last, PIECE_REFUSED);
            }
    run_unref(run);
    return last;
}

/* Starts two members, at version 3. */
static void start_two(struct rig *r)
{
    struct net_join_reply reply;
    assert_int_equal(join(r, 0, 10, 2, &reply), JOIN_INIT);
    assert_int_equal(join(r, 1, 11, 2, &reply), JOIN_WELCOME);
    fill(r, 3, 2);
}

/* No member receives the last version before ps 0 releases it. */
static void last_version_waits_for_its_release(void **state)
{
    struct rig r;
    struct net_join_reply reply;
    setup(&r, 0, 0);
    assert_int_equal(join(&r, 0, 10, 2, &reply), JOIN_INIT);
    assert_int_equal(join(&r, 1, 11, 2, &reply), JOIN_WELCOME);
    fill(&r, 99, 2);
    assert_int_equal(fill(&r, 99, 2), PIECE_DUPLICATE); /* a repeat */
    fill(&r, 100, 2);
    assert_int_equal(fill(&r, 100, 2), PIECE_NONE);
    teardown(&r);
}

static struct generation_state state_of(struct rig *r)
{
    struct generation_state state;
    generation_state(r->service, &state);
    return state;
}

struct people {
    struct roster_entry *members, *waiting;
    int n_members, n_waiting;
};

static struct people people_of(struct rig *r)
{
    struct people p;
    assert_int_equal(
        membership_roster(r->service, &p.members, &p.n_members, &p.waiting, &p.n_waiting), ST_OK);
    return p;
}

static void people_free(struct people *p)
{
    free(p->members);
    free(p->waiting);
}

/* Without a coordinator the first member's join makes the plan. */
static void first_member_makes_the_plan_without_a_coordinator(void **state)
{
    struct rig r;
    struct net_join_reply reply;
    setup(&r, 0, 0);
    assert_int_equal(state_of(&r).generation, 0);
    assert_int_equal(join(&r, -1, 99, 0, &reply), JOIN_RETRY); /* there is no job to join yet */
    struct people p = people_of(&r);
    assert_true(p.n_members == 0 && p.n_waiting == 0);
    people_free(&p);
    assert_int_equal(join(&r, 1, 11, 2, &reply), JOIN_WELCOME);
    assert_true(reply.generation == 1 && reply.step == -1 && reply.place.train_steps == 100);
    assert_true(reply.place.member == 1 && reply.place.rank == 1 && reply.place.n_members == 2);
    assert_int_equal(join(&r, 0, 10, 2, &reply), JOIN_INIT);
    assert_int_equal(r.n_started, 1);
    fill(&r, 0, 2);
    assert_int_equal(join(&r, 0, 10, 2, &reply), JOIN_WELCOME);
    assert_int_equal(join(&r, 2, 12, 3, &reply), JOIN_REFUSED); /* it has another job */
    leave(&r, (struct net_leave){.member = 0, .incarnation = 10, .done = 1});
    assert_int_equal(r.n_done, 0);
    leave(&r, (struct net_leave){.member = 1, .incarnation = 12, .done = 1});
    assert_false(state_of(&r).ended);
    leave(&r, (struct net_leave){.member = 1, .incarnation = 11, .done = 1});
    assert_int_equal(r.n_done, 1);
    assert_true(state_of(&r).ended);
    assert_int_equal(join(&r, 1, 13, 2, &reply), JOIN_RETRY);
    teardown(&r);
}

/* All members wait for the first plan, which the coordinator makes. */
static void members_wait_for_the_first_plan(void **state)
{
    struct rig r;
    struct net_join_reply reply;
    static const int member[] = {0, 1};
    setup(&r, 0, 1);
    assert_int_equal(join(&r, 1, 11, 2, &reply), JOIN_RETRY);
    assert_int_equal(join(&r, 0, 10, 2, &reply), JOIN_RETRY);
    assert_int_equal(r.n_first, 2);
    assert_int_equal(join(&r, -1, 99, 0, &reply), JOIN_RETRY);
    assert_int_equal(r.n_first, 2);
    assert_int_equal(begin(&r, plan_of(&r, 7, member, 2, &alone)), ST_OK);
    assert_int_equal(join(&r, 1, 11, 2, &reply), JOIN_WELCOME);
    assert_int_equal(reply.generation, 7);
    assert_int_equal(join(&r, 0, 10, 2, &reply), JOIN_INIT);
    assert_int_equal(r.n_first, 2);
    teardown(&r);
}

/* A joiner that is in no plan waits at ps 0, under its own index, until a plan contains it. */
static void joiners_wait_for_a_plan_with_their_index(void **state)
{
    struct rig r;
    struct net_join_reply reply;
    static const int member[] = {0, 1, 3};
    setup(&r, 0, 0);
    start_two(&r);
    int before = r.n_changed;
    assert_int_equal(join(&r, -1, 12, 0, &reply), JOIN_RETRY);
    assert_true(r.n_changed > before);
    before = r.n_changed;
    assert_int_equal(join(&r, -1, 12, 0, &reply), JOIN_RETRY);
    assert_int_equal(r.n_changed, before);
    assert_int_equal(join(&r, -1, 13, 0, &reply), JOIN_RETRY);
    struct people p = people_of(&r);
    assert_int_equal(p.n_members, 2);
    assert_int_equal(p.n_waiting, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(p.waiting[i].member, 2 + i);
        assert_int_equal(p.waiting[i].incarnation, 12 + i);
        assert_string_equal(p.waiting[i].address, "gpu7");
    }
    people_free(&p);
    generation_stop(r.service);
    struct net_plan *plan = plan_of(&r, 2, member, 3, &alone);
    plan->source = PLAN_MEMORY;
    plan->step = 3;
    plan->position = 60;
    assert_int_equal(begin(&r, plan), ST_OK);
    assert_int_equal(join(&r, -1, 13, 0, &reply), JOIN_WELCOME);
    assert_true(reply.place.member == 3 && reply.place.rank == 2 && reply.place.n_members == 3);
    assert_true(reply.place.first_step == 3 && reply.place.position == 60 && reply.step == 3);
    assert_int_equal(join(&r, 3, 13, 0, &reply), JOIN_WELCOME); /* it has received its index */
    assert_int_equal(join(&r, 0, 10, 2, &reply), JOIN_WELCOME); /* not INIT: the values exist */
    assert_int_equal(join(&r, 2, 12, 0, &reply), JOIN_RETRY);
    p = people_of(&r);
    assert_int_equal(p.n_members, 3);
    assert_int_equal(p.members[2].member, 3);
    assert_true(p.members[2].joined && p.members[1].joined);
    assert_int_equal(p.members[1].incarnation, 11); /* expected, and not connected yet */
    assert_true(p.members[1].missing_ms >= 0);
    assert_int_equal(p.n_waiting, 1);
    assert_int_equal(p.waiting[0].member, 2);
    people_free(&p);
    int ended;
    struct run *run = service_run(r.service, &ended);
    assert_int_equal(run_position(run, 5), 60 + 2 * 3 * BATCH);
    run_unref(run);
    teardown(&r);
}

/* A dropped member returns with its earlier index. If another connected process has that index now,
 * the member gets a new index. */
static void dropped_member_returns_with_its_index(void **state)
{
    struct rig r;
    struct net_join_reply reply;
    static const int member[] = {0, 2};
    setup(&r, 0, 0);
    start_two(&r);
    assert_int_equal(join(&r, -1, 12, 0, &reply), JOIN_RETRY);
    struct net_plan *plan = plan_of(&r, 2, member, 2, &alone);
    plan->source = PLAN_MEMORY;
    plan->step = 3;
    assert_int_equal(begin(&r, plan), ST_OK);
    assert_int_equal(join(&r, -1, 12, 0, &reply), JOIN_WELCOME);
    assert_int_equal(reply.place.rank, 1);
    assert_int_equal(join(&r, -1, 15, 0, &reply),
                     JOIN_RETRY); /* the first workers' indices are not assigned */
    assert_int_equal(join(&r, 1, 11, 2, &reply), JOIN_RETRY);
    struct people p = people_of(&r);
    assert_true(p.n_waiting == 2 && p.waiting[0].member == 3 && p.waiting[1].member == 1);
    people_free(&p);
    assert_int_equal(join(&r, 2, 14, 0, &reply),
                     JOIN_WELCOME); /* 12 has no stream, so it was restarted */
    assert_int_equal(reply.place.rank, 1);
    teardown(&r);
}

/* A server other than ps 0 keeps no list of joiners, and admits a member only after ps 0 has
 * admitted it. */
static void other_server_admits_after_ps0(void **state)
{
    struct rig r;
    struct net_join_reply reply;
    static const int member[] = {0, 1};
    setup(&r, 1, 1);
    assert_int_equal(join(&r, 0, 10, 2, &reply), JOIN_REFUSED);
    assert_string_equal(reply.why,
                        "this server is ps:1 of its job; --ps_hosts must begin with ps:0");
    struct net_join request = {
        .member = 0, .incarnation = 10, .job = job_of(2), .chunks = r.chunks, .generation = 2};
    r.handler.join(r.handler.ctx, &request, "ipv4:10.0.0.7:5000", &reply);
    assert_int_equal(reply.answer, JOIN_RETRY); /* ps 0 has sent the worker to this server */
    assert_string_equal(reply.why, "this server has not reached generation 0.2 yet");
    assert_int_equal(begin(&r, plan_of(&r, 3, member, 2, &alone)), ST_OK);
    r.handler.join(r.handler.ctx, &request, "ipv4:10.0.0.7:5000", &reply);
    assert_true(reply.answer == JOIN_RETRY &&
                reply.generation == 3); /* ps 0 must announce that generation first */
    request.generation = 3;
    r.handler.join(r.handler.ctx, &request, "ipv4:10.0.0.7:5000", &reply);
    assert_int_equal(reply.answer, JOIN_INIT);
    assert_int_equal(join(&r, 0, 10, 2, &reply),
                     JOIN_INIT); /* it was in no generation of the job */
    assert_int_equal(join(&r, 5, 15, 0, &reply), JOIN_RETRY);
    struct people p = people_of(&r);
    assert_int_equal(p.n_waiting, 0);
    people_free(&p);
    const struct net_join ahead = {
        .member = 0, .incarnation = 10, .job = job_of(2), .chunks = r.chunks, .generation = 2};
    r.handler.join(r.handler.ctx, &ahead, "ipv4:10.0.0.7:5000", &reply);
    assert_int_equal(reply.answer, JOIN_RETRY);
    teardown(&r);
}

/* Joiners wait after the stop. The next generation continues with the same buffers. The previous
 * generation is released when all servers are in the next one. */
static void generation_from_memory_shares_buffers(void **state)
{
    struct rig r;
    struct net_join_reply reply;
    static const int member[] = {0, 1};
    struct handover_chunk was, is;
    int ended;
    setup(&r, 0, 0);
    start_two(&r);
    generation_stop(r.service);
    struct generation_state at = state_of(&r);
    assert_true(at.stopped && at.generation == 1 && at.lowest == 3 && at.highest == 3);
    assert_int_equal(join(&r, 1, 11, 2, &reply), JOIN_RETRY);
    struct run *old = service_run(r.service, &ended);
    struct net_plan *plan = plan_of(&r, 2, member, 2, &alone);
    plan->source = PLAN_MEMORY;
    plan->step = 3;
    assert_int_equal(begin(&r, plan), ST_OK);
    at = state_of(&r);
    assert_true(!at.stopped && at.generation == 2 && at.lowest == 3 && at.highest == 3);
    assert_int_equal(r.n_started, 2);
    struct run *run = service_run(r.service, &ended);
    assert_int_equal(handover_take(old->store, 0, 3, &was), ST_OK);
    assert_int_equal(handover_take(run->store, 0, 3, &is), ST_OK);
    assert_ptr_equal(was.value, is.value);
    assert_ptr_equal(was.slots, is.slots);
    handover_drop(&was);
    handover_drop(&is);
    run_unref(run);
    assert_int_equal(atomic_load(&old->refs), 2); /* the service holds it */
    generation_settle(r.service, 1);              /* the generation is over */
    assert_int_equal(atomic_load(&old->refs), 2);
    generation_settle(r.service, 2);
    assert_int_equal(atomic_load(&old->refs), 1);
    run_unref(old);
    teardown(&r);
}

/* A generation does not begin if a chunk is missing: the earlier generation stays, stopped. A
 * server without chunks also has a run. A run whose chunks no server needs is released when the
 * generation settles. */
static void missing_chunks_keep_the_stopped_run(void **state)
{
    struct rig r;
    static const int member[] = {0, 1};
    setup(&r, 0, 0);
    start_two(&r);
    struct net_plan *plan = plan_of(&r, 2, member, 2, &alone);
    plan->source = PLAN_MEMORY;
    plan->step = 4; /* no server has that step */
    log_init("test", -1, LOG_LEVEL_ERROR + 1);
    assert_int_equal(begin(&r, plan), ST_RANGE);
    log_init("test", -1, LOG_LEVEL_WARN);
    struct generation_state at = state_of(&r);
    assert_true(at.stopped && at.generation == 1 && at.lowest == 3);
    assert_int_equal(r.n_started, 1);
    plan = plan_of(&r, 2, member, 2, &both); /* chunk 1 moves to the other server */
    plan->source = PLAN_MEMORY;
    plan->step = 3;
    plan->held_by[1] = 0;
    assert_int_equal(begin(&r, plan), ST_OK);
    at = state_of(&r);
    assert_true(!at.stopped && at.generation == 2 && at.lowest == 3 && at.highest == 3);
    plan = plan_of(&r, 3, member, 2, &both);
    free(plan->servers.addr[0]);
    plan->servers.addr[0] = strdup("127.0.0.1:3"); /* the plan does not name this server */
    plan->source = PLAN_MEMORY;
    plan->step = 3;
    assert_int_equal(begin(&r, plan), ST_OK);
    at = state_of(&r);
    assert_true(at.generation == 3 && at.highest == -1 && at.lowest == 100);
    generation_stop(r.service);
    assert_true(state_of(&r).stopped);
    generation_settle(r.service, 3);
    teardown(&r);
}

/* A worker that asks to leave differs from one that has left. */
static void roster_distinguishes_leaving_and_left(void **state)
{
    struct rig r;
    static const int member[] = {0};
    setup(&r, 0, 0);
    start_two(&r);
    leave(&r, (struct net_leave){.member = 1, .incarnation = 12, .soon = 1});
    struct people p = people_of(&r);
    assert_false(p.members[1].leaving); /* another process asked to leave */
    people_free(&p);
    r.n_changed = 0;
    leave(&r, (struct net_leave){.member = 1, .incarnation = 11, .soon = 1});
    assert_true(r.n_changed > 0);
    p = people_of(&r);
    assert_true(p.members[1].leaving && !p.members[1].done && !p.members[0].leaving);
    people_free(&p);
    struct net_plan *plan = plan_of(&r, 2, member, 1, &alone);
    plan->source = PLAN_MEMORY;
    plan->step = 3;
    assert_int_equal(begin(&r, plan), ST_OK);
    leave(&r, (struct net_leave){.member = 1, .incarnation = 11});
    struct net_leave done = {.member = 0, .incarnation = 10, .done = 1};
    leave(&r, done);
    p = people_of(&r); /* the servers have lost its steps */
    assert_true(p.members[0].leaving && !p.members[0].done && !state_of(&r).ended);
    assert_int_equal(p.n_members, 1);
    people_free(&p);
    assert_int_equal(join(&r, 0, 10, 2, &(struct net_join_reply){.step = 0}), JOIN_WELCOME);
    done.generation = 1; /* the message crossed with the worker's admission */
    leave(&r, done);
    assert_false(state_of(&r).ended);
    done.generation = 2;
    leave(&r, done);
    assert_int_equal(r.n_done, 1);
    teardown(&r);
}

/* A worker that left with an error keeps that mark in the next generation. A process that replaces
 * the worker has no mark. */
static void roster_marks_a_worker_that_left_with_an_error(void **state)
{
    struct rig r;
    static const int member[] = {0, 1};
    setup(&r, 0, 0);
    start_two(&r);
    struct net_leave failed = {.member = 1, .incarnation = 11, .error = "it diverged"};
    leave(&r, failed);
    leave(&r, (struct net_leave){.member = 0, .incarnation = 10});
    struct people p = people_of(&r);
    assert_true(p.members[1].leaving && p.members[1].failed && !p.members[1].done);
    assert_true(p.members[0].leaving && !p.members[0].failed);
    people_free(&p);
    struct net_plan *plan = plan_of(&r, 2, member, 2, &alone);
    plan->source = PLAN_MEMORY;
    plan->step = 3;
    assert_int_equal(begin(&r, plan), ST_OK);
    p = people_of(&r);
    assert_true(p.members[1].failed);
    people_free(&p);
    generation_stop(r.service);
    assert_int_equal(join(&r, 1, 77, 2, &(struct net_join_reply){.step = 0}), JOIN_RETRY);
    p = people_of(&r);
    assert_true(p.members[1].asked && !p.members[1].leaving && !p.members[1].failed);
    people_free(&p);
    teardown(&r);
}

/* Waits, for a limited time, until the given function returns nonzero. */
static void wait_until(struct rig *r, int (*want)(struct rig *r))
{
    int64_t deadline = clock_deadline_ns(WAIT_MS);
    for (;;) {
        pthread_mutex_lock(&r->lock);
        int seen = r->n_changed;
        pthread_mutex_unlock(&r->lock);
        if (want(r))
            return;
        pthread_mutex_lock(&r->lock);
        while (r->n_changed == seen && clock_cond_wait(&r->wake, &r->lock, deadline) == 0)
            ;
        int same = r->n_changed == seen;
        pthread_mutex_unlock(&r->lock);
        assert_false(same);
    }
}

static int is_stopped(struct rig *r)
{
    return state_of(r).stopped;
}

static int is_missing(struct rig *r)
{
    struct people p = people_of(r);
    int missing = p.members[1].missing_ms >= 0;
    people_free(&p);
    return missing;
}

/* Pushes a member's contributions of a step. */
static void push(struct net_exchange *x[2], int m, int64_t step)
{
    static float gradient[2][8][1024];
    for (int i = 0; i < 1024; i++)
        gradient[m][step][i] = (float)((i * 7 + m + step) % 11) / 64;
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(net_exchange_push(x[m], c, step, gradient[m][step], 1), ST_OK);
    net_exchange_flush(x[m]);
}

/* Starts both members, member 0 first, and checks that they continue from `step` in
 * `generation`. */
static void start_both(struct net_exchange *x[2], int64_t step, uint64_t generation)
{
    for (int m = 0; m < 2; m++) {
        struct net_start at;
        assert_int_equal(net_exchange_start(x[m], &at), ST_OK);
        assert_int_equal(at.step, step);
        assert_int_equal(at.generation, generation);
        assert_int_equal(at.place.rank, m);
    }
}

/* Stops the generation in the middle of a step. Both members push the step again in the next
 * generation: no contribution counts twice. */
static void change_generation(struct rig *r, struct net_exchange *x[2], int64_t step)
{
    static const int member[] = {0, 1};
    push(x, 0, step);
    generation_stop(r->service);
    wait_until(r, is_stopped);
    struct net_plan *plan = plan_of(r, 2, member, 2, &alone);
    plan->source = PLAN_MEMORY;
    plan->step = step;
    plan->position = (uint64_t)step * 2 * BATCH;
    assert_int_equal(begin(r, plan), ST_OK);
    push(x, 1, step); /* too late */
    for (int m = 0; m < 2; m++)
        assert_int_equal(net_exchange_wait(x[m], 0, N_CHUNKS, step + 1), ST_REBASED);
    start_both(x, step, 2);
    generation_settle(r->service, 2);
}

/* Trains 8 steps; if `changes` is set, the next generation begins at step 4. */
static void train(bool changes, float *params)
{
    struct rig r;
    struct generation_state now;
    struct net_server *server;
    struct net_exchange *x[2];
    static float values[2][N_ELEMS];
    setup(&r, 0, 0);
    struct net_server_config cfg = {.addr = "127.0.0.1:0", .handler = r.handler};
    assert_int_equal(net_server_create(&cfg, &server), ST_OK);
    snprintf(self_addr, sizeof self_addr, "127.0.0.1:%d", net_server_port(server));
    generation_state(r.service, &now); /* its lock shows the address to the server's threads */
    memset(values, 0, sizeof values);
    for (int m = 0; m < 2; m++) {
        const struct net_exchange_config client = {.ps_hosts = &alone,
                                                   .join = {.member = m,
                                                            .incarnation = 10 + (uint64_t)m,
                                                            .chunks = r.chunks,
                                                            .job = job_of(2)},
                                                   .params = values[m]};
        assert_int_equal(net_exchange_create(&client, &x[m]), ST_OK);
    }
    start_both(x, 0, 1);
    for (int64_t step = 0; step < 8; step++) {
        if (step == 4 && changes)
            change_generation(&r, x, 4);
        for (int m = 0; m < 2; m++)
            push(x, m, step);
        for (int m = 0; m < 2; m++)
            assert_int_equal(net_exchange_wait(x[m], 0, N_CHUNKS, step + 1), ST_OK);
    }
    memcpy(params, values[0], sizeof values[0]);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    struct net_join_reply reply;
    /* The process with index 1 runs and keeps this index, so another one is refused for now. */
    assert_int_equal(join(&r, 1, 99, 0, &reply), JOIN_RETRY);
    struct people p = people_of(&r);
    assert_true(p.members[0].missing_ms < 0 && p.members[1].missing_ms < 0);
    assert_int_equal(p.n_waiting, 1);
    assert_int_equal(p.waiting[0].member, 2);
    people_free(&p);
    net_exchange_destroy(x[1]); /* the member ends without a leave message */
    wait_until(&r, is_missing);
    net_exchange_destroy(x[0]);
    net_server_destroy(server);
    teardown(&r);
}

/* A server with its address for other servers. */
struct node {
    struct rig rig;
    struct net_server *server;
    char addr[32];
};

static void node_start(struct node *n, int self)
{
    setup_at(&n->rig, n->addr, self, 1);
    struct net_server_config cfg = {.addr = "127.0.0.1:0", .handler = n->rig.handler};
    assert_int_equal(net_server_create(&cfg, &n->server), ST_OK);
    snprintf(n->addr, sizeof n->addr, "127.0.0.1:%d", net_server_port(n->server));
}

static void node_stop(struct node *n)
{
    net_server_destroy(n->server);
    teardown(&n->rig);
}

/* Makes a plan for the servers of both nodes. `shard` maps the chunks to servers, and `held_by` to
 * the servers that had them before. */
static struct net_plan *shared_plan(struct node node[2], uint64_t generation, const int shard[2],
                                    const int held_by[2])
{
    static const int member[] = {0, 1};
    char *addr[] = {node[0].addr, node[1].addr};
    const struct hosts hosts = {2, addr};
    struct net_plan *p = plan_of(&node[0].rig, generation, member, 2, &hosts);
    memcpy(p->shard, shard, N_CHUNKS * sizeof *shard);
    memcpy(p->held_by, held_by, N_CHUNKS * sizeof *held_by);
    p->source = generation > 1 ? PLAN_MEMORY : PLAN_FIRST;
    p->step = generation > 1 ? 3 : 0;
    return p;
}

static void take(struct rig *r, int chunk, struct handover_chunk *out)
{
    int ended;
    struct run *run = service_run(r->service, &ended);
    assert_int_equal(handover_take(run->store, chunk, 3, out), ST_OK);
    run_unref(run);
}

/* Chunk 1 moves to a server without chunks, and back, with the same bits and its slots. The sending
 * server may already be in the new generation, or not. */
static void moved_chunk_keeps_its_bits(void **state)
{
    static const int first[] = {0, 0}, second[] = {0, 1};
    struct node node[2];
    struct handover_chunk was, is;
    for (int i = 0; i < 2; i++)
        node_start(&node[i], i);
    for (int i = 0; i < 2; i++)
        assert_int_equal(begin(&node[i].rig, shared_plan(node, 1, first, first)), ST_OK);
    struct net_join_reply reply;
    for (int m = 0; m < 2; m++)
        join(&node[0].rig, m, 10 + (uint64_t)m, 2, &reply);
    fill(&node[0].rig, 3, 2);
    take(&node[0].rig, 1, &was);
    log_init("test", -1,
             LOG_LEVEL_ERROR + 1); /* a server that has not stopped refuses to send chunks */
    assert_int_equal(begin(&node[1].rig, shared_plan(node, 2, second, first)), ST_REFUSED);
    log_init("test", -1, LOG_LEVEL_WARN);
    generation_stop(node[0].rig.service);
    assert_int_equal(begin(&node[1].rig, shared_plan(node, 2, second, first)), ST_OK);
    assert_int_equal(begin(&node[0].rig, shared_plan(node, 2, second, first)), ST_OK);
    take(&node[1].rig, 1, &is);
    assert_ptr_not_equal(was.value, is.value);
    assert_memory_equal(was.value->data, is.value->data, was.value->bytes);
    assert_non_null(was.slots);
    assert_memory_equal(was.slots->data, is.slots->data, was.slots->bytes);
    handover_drop(&is);
    assert_int_equal(state_of(&node[0].rig).lowest, 3);
    for (int i = 0; i < 2; i++) {
        generation_settle(node[i].rig.service, 2);
        generation_stop(node[i].rig.service);
    }
    log_init("test", -1, LOG_LEVEL_ERROR + 1);
    struct net_plan *gone = shared_plan(node, 3, first, second);
    gone->before = 1; /* the generation was released */
    assert_int_equal(begin(&node[0].rig, gone), ST_NOT_FOUND);
    generation_cancel(node[0].rig.service, 3);
    assert_int_equal(begin(&node[0].rig, shared_plan(node, 3, first, second)), ST_CANCELLED);
    log_init("test", -1, LOG_LEVEL_WARN);
    struct net_plan *back = shared_plan(node, 4, first, second);
    back->before = 2;
    assert_int_equal(begin(&node[0].rig, back), ST_OK);
    take(&node[0].rig, 1, &is);
    assert_memory_equal(was.value->data, is.value->data, was.value->bytes);
    assert_memory_equal(was.slots->data, is.slots->data, was.slots->bytes);
    handover_drop(&is);
    handover_drop(&was);
    for (int i = 0; i < 2; i++)
        node_stop(&node[i]);
}

static void generation_change_keeps_the_bits(void **state)
{
    static float plain[N_ELEMS], changed[N_ELEMS];
    train(false, plain);
    train(true, changed);
    assert_memory_equal(plain, changed, sizeof plain);
    assert_true(plain[0] != 0);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_WARN);
    return RUN_TESTS(first_member_makes_the_plan_without_a_coordinator,
                     members_wait_for_the_first_plan, joiners_wait_for_a_plan_with_their_index,
                     dropped_member_returns_with_its_index, other_server_admits_after_ps0,
                     generation_from_memory_shares_buffers, last_version_waits_for_its_release,
                     missing_chunks_keep_the_stopped_run, roster_distinguishes_leaving_and_left,
                     roster_marks_a_worker_that_left_with_an_error, moved_chunk_keeps_its_bits,
                     generation_change_keeps_the_bits);
}
