/* tests/ps_membership_test.c - which workers a server admits if it has no job, or if its job is
 * full: the worker that begins the job, the number of workers, and the reasons of refusals. */
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "ps/service/refusals.h"
#include "ps/service/service.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fake_time.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct net_param model[] = {{.name = "w", .shape = {2, {331, 4}}}};
static char self_addr[] = "127.0.0.1:1";
static char *self_addrs[] = {self_addr};
static const struct hosts alone = {1, self_addrs}, no_workers = {0, NULL};

struct rig {
    struct chunks *chunks;
    struct service *service;
    struct net_server_handler handler;
    const char *peer;
    float learning_rate;
    int wire_auto;
    enum job_sync_mode mode;
    enum dtype dtype;            /* format in both directions */
    uint64_t generation, ps0;    /* generation of a joiner, and the ps 0 that made its plan */
    struct net_join_reply reply; /* reply to the last join */
    int n_changes;               /* calls to the coordinator */
};

static struct service_config config(void)
{
    return (struct service_config){.address = self_addr,
                                   .ps_hosts = &alone,
                                   .worker_hosts = &no_workers,
                                   .max_model_bytes = 1 << 20};
}

static void setup(struct rig *r, const struct service_config *cfg)
{
    *r = (struct rig){.peer = "ipv4:10.0.0.7:5000", .learning_rate = 0.5f};
    assert_int_equal(chunks_create(model, 1, 4096, &r->chunks), ST_OK);
    assert_int_equal(service_create(cfg, &r->service), ST_OK);
    r->handler = service_handler(r->service);
}

static void teardown(struct rig *r)
{
    service_destroy(r->service);
    chunks_destroy(r->chunks);
}

/* Joins as `member`. n_workers 0: the worker joins a running job, and `member` may be -1. */
static enum join_answer join(struct rig *r, int member, uint64_t incarnation, int n_workers)
{
    struct net_join req = {.member = member,
                           .incarnation = incarnation,
                           .generation = r->generation,
                           .ps0 = r->ps0,
                           .address = "gpu7",
                           .job = {.n_workers = n_workers,
                                   .sync_mode = r->mode,
                                   .train_steps = n_workers ? 100 : 0,
                                   .push_dtype = r->dtype,
                                   .version_dtype = r->dtype,
                                   .wire_auto = r->wire_auto,
                                   .batch = 10},
                           .chunks = r->chunks};
    optim_defaults(OPTIM_MOMENTUM, &req.job.optim);
    req.job.optim.learning_rate = r->learning_rate;
    r->handler.join(r->handler.ctx, &req, r->peer, &r->reply);
    free(r->reply.server);
    hosts_free(&r->reply.servers);
    r->reply.server = NULL;
    return r->reply.answer;
}

/* Many refusals of one process make a few log lines. */
static void repeated_refusals_make_few_lines(void **state)
{
    struct rig r;
    const struct service_config cfg = config();
    int lines = 0;
    setup(&r, &cfg);
    for (int i = 0; i < 5 * LOG_LIMIT_BURST; i++) {
        enum join_answer answer = CAPTURE(join(&r, 2, 9, 2));
        assert_int_equal(answer, JOIN_REFUSED);
        lines += capture_lines();
    }
    assert_in_range(lines, 1, LOG_LIMIT_BURST + 1); /* a further line, if this lasts 10 s */
    teardown(&r);
}

/* Returns the stored refusal of this worker, in static memory; NULL: there is no refusal. */
static const char *refusal_of(struct rig *r, int member)
{
    static struct refusal copy;
    struct refusals *all = NULL;
    assert_int_equal(membership_refusals(r->service, &all), ST_OK);
    const struct refusal *found = refusals_find(all, member);
    if (found)
        copy = *found;
    free(all);
    return found ? copy.why : NULL;
}

/* The reason of a worker's refusal is stored until the worker joins, for members that wait for it.
 * A refusal of a second process of a present worker is not stored. */
static void refusals_stay_until_the_worker_joins(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    setup(&r, &cfg);
    assert_int_equal(CAPTURE(join(&r, 2, 9, 2)), JOIN_REFUSED); /* there is no job yet */
    assert_non_null(refusal_of(&r, 2));
    assert_int_equal(join(&r, 0, 10, 2), JOIN_INIT);
    assert_null(refusal_of(&r, 1));
    for (int i = 0; i < 2; i++) {
        r.learning_rate = i ? 0.125f : 0.25f;
        assert_int_equal(CAPTURE(join(&r, 1, 11 + (uint64_t)i, 2)), JOIN_REFUSED);
    }
    assert_non_null(strstr(refusal_of(&r, 1), "the worker has 0.125"));
    assert_int_equal(CAPTURE(join(&r, -1, 13, 0)), JOIN_REFUSED);
    assert_non_null(strstr(capture_text, "a joining worker from ipv4:10.0.0.7:5000 refused: "));
    r.learning_rate = 0.5f;
    assert_int_equal(join(&r, 1, 14, 2), JOIN_WELCOME);
    assert_null(refusal_of(&r, 1));
    teardown(&r);
}

/* The last refusals are stored, up to a limit. */
static void refusals_are_bounded(void **state)
{
    static struct refusals all;
    for (int i = 0; i < 3 * REFUSALS_MAX; i++) {
        refusals_put(&all, i, "why", 1000 + i);
        assert_in_range(all.n, 1, REFUSALS_MAX);
    }
    assert_null(refusals_find(&all, 2 * REFUSALS_MAX - 1));
    assert_non_null(refusals_find(&all, 2 * REFUSALS_MAX));
    assert_non_null(refusals_find(&all, 3 * REFUSALS_MAX - 1));
    refusals_drop(&all, 2 * REFUSALS_MAX);
    refusals_drop(&all, 1);
    assert_int_equal(all.n, REFUSALS_MAX - 1);
}

/* Worker 0 begins the job, however early other workers ask. */
static void worker_0_begins_the_job(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    cfg.first_wait_ms = -1;
    cfg.max_workers = 2;
    setup(&r, &cfg);
    r.learning_rate = 0.25f;
    for (int i = 0; i < 3; i++)
        assert_int_equal(join(&r, 1, 11, 2), JOIN_RETRY);
    assert_string_equal(r.reply.why, "worker 0 decides the job's settings, and has not joined yet");
    assert_int_equal(CAPTURE(join(&r, 0, 10, 3)), JOIN_REFUSED);
    assert_int_equal(join(&r, 1, 11, 2), JOIN_RETRY);
    assert_string_equal(r.reply.why,
                        "worker 0 decides the job's settings, and was refused: the job has 3 "
                        "workers, above --max_workers=2 of this server");
    r.learning_rate = 0.5f;
    assert_int_equal(join(&r, 0, 10, 2), JOIN_INIT);
    assert_int_equal(join(&r, 1, 12, 2), JOIN_WELCOME);
    teardown(&r);
}

static enum join_answer join_for(struct rig *r, int member, int is_auto, enum dtype dtype)
{
    r->wire_auto = is_auto;
    r->dtype = dtype;
    return join(r, member, 10 + (uint64_t)member, 3);
}

static void assert_format(const struct rig *r, enum dtype dtype)
{
    assert_int_equal(r->reply.place.push_dtype, dtype);
    assert_int_equal(r->reply.place.version_dtype, dtype);
}

/* If no member sets a number format, the job gets the format for the slowest link. */
static void slowest_link_decides_the_format(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    cfg.first_wait_ms = -1;
    setup(&r, &cfg);
    assert_int_equal(join_for(&r, 1, 1, DTYPE_INT4), JOIN_RETRY);
    assert_int_equal(join_for(&r, 0, 1, DTYPE_F32), JOIN_RETRY);
    assert_non_null(strstr(r.reply.why, "2 of the 3 workers have done so"));
    assert_int_equal(join_for(&r, 2, 1, DTYPE_INT8), JOIN_RETRY);
    assert_int_equal(join_for(&r, 0, 1, DTYPE_F32), JOIN_INIT);
    assert_format(&r, DTYPE_INT4);
    assert_int_equal(join_for(&r, 1, 1, DTYPE_F32), JOIN_WELCOME); /* restarted */
    assert_format(&r, DTYPE_INT4);
    assert_int_equal(CAPTURE(join_for(&r, 2, 0, DTYPE_INT8)), JOIN_REFUSED);
    assert_int_equal(join_for(&r, 2, 0, DTYPE_INT4), JOIN_WELCOME);
    teardown(&r);
}

/* A format from a member's flags or from a checkpoint has precedence. */
static void format_from_flags_or_checkpoint_has_precedence(void **state)
{
    for (int restored = 0; restored < 2; restored++) {
        const struct net_job was = {.push_dtype = DTYPE_INT8, .version_dtype = DTYPE_INT8};
        struct rig r;
        struct service_config cfg = config();
        cfg.first_wait_ms = -1;
        setup(&r, &cfg);
        if (restored)
            admission_fix_format(r.service, &was);
        else
            assert_int_equal(join_for(&r, 1, 0, DTYPE_INT8), JOIN_RETRY);
        assert_int_equal(join_for(&r, 0, 1, DTYPE_INT4), JOIN_INIT);
        assert_format(&r, DTYPE_INT8);
        teardown(&r);
    }
}

/* Members of another mode do not decide the format: in async, parameters cannot be sent as changes
 * in int8. */
static void format_of_another_mode_is_ignored(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    cfg.first_wait_ms = -1;
    setup(&r, &cfg);
    assert_int_equal(join_for(&r, 1, 0, DTYPE_INT8), JOIN_RETRY);
    assert_int_equal(join_for(&r, 2, 0, DTYPE_INT8), JOIN_RETRY);
    r.mode = JOB_ASYNC;
    assert_int_equal(join_for(&r, 0, 1, DTYPE_F32), JOIN_INIT);
    assert_format(&r, DTYPE_F32);
    teardown(&r);
}

/* A checkpoint of another mode may have a number format that is impossible in this mode. Then the
 * format is not used. */
static void checkpoint_format_of_another_mode_is_adapted(void **state)
{
    const struct net_job was = {.push_dtype = DTYPE_INT8, .version_dtype = DTYPE_INT8};
    struct rig r;
    struct service_config cfg = config();
    setup(&r, &cfg);
    admission_fix_format(r.service, &was);
    r.mode = JOB_ASYNC;
    assert_int_equal(join_for(&r, 0, 1, DTYPE_F32), JOIN_INIT);
    assert_int_equal(r.reply.place.push_dtype, DTYPE_INT8);
    assert_int_equal(r.reply.place.version_dtype, DTYPE_F32);
    teardown(&r);
}

/* Only the last process of a worker counts, and only while it asks. */
static void format_of_an_ended_process_expires(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    cfg.first_wait_ms = -1;
    setup(&r, &cfg);
    fake_time_stop();
    assert_int_equal(join_for(&r, 1, 0, DTYPE_INT8), JOIN_RETRY);
    assert_int_equal(join_for(&r, 1, 1, DTYPE_F32), JOIN_RETRY); /* its flags are different */
    assert_int_equal(join_for(&r, 2, 1, DTYPE_INT4), JOIN_RETRY);
    fake_time_move(11000);
    assert_int_equal(join_for(&r, 1, 1, DTYPE_F32), JOIN_RETRY);
    assert_int_equal(join_for(&r, 0, 1, DTYPE_F32), JOIN_RETRY);
    assert_non_null(strstr(r.reply.why, "2 of the 3 workers have done so"));
    assert_int_equal(join_for(&r, 2, 1, DTYPE_INT8), JOIN_RETRY); /* restarted */
    assert_int_equal(join_for(&r, 0, 1, DTYPE_F32), JOIN_INIT);
    assert_format(&r, DTYPE_INT8);
    fake_time_release();
    teardown(&r);
}

/* Returns nonzero if the member has joined and need only send a piece. */
static int has_joined(struct rig *r, int rank)
{
    struct roster_entry *members = NULL, *waiting = NULL;
    int n = 0, n_waiting = 0;
    assert_int_equal(membership_roster(r->service, &members, &n, &waiting, &n_waiting), ST_OK);
    assert_in_range(rank, 0, n - 1);
    int came = members[rank].came;
    assert_true(members[rank].missing_ms >= 0); /* it has not sent a piece */
    free(members);
    free(waiting);
    return came;
}

/* The service records that a member has joined, in case the member dies directly after its join. It
 * does not record this for a member that must still make first values, or for another process in
 * the member's place. */
static void joined_member_need_only_send_a_piece(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    setup(&r, &cfg);
    assert_int_equal(join(&r, 0, 10, 2), JOIN_INIT);
    assert_int_equal(has_joined(&r, 0), 0);
    assert_int_equal(has_joined(&r, 1), 0);
    assert_int_equal(join(&r, 1, 11, 2), JOIN_WELCOME);
    assert_int_equal(has_joined(&r, 1), 1);
    assert_int_equal(has_joined(&r, 0), 0);
    teardown(&r);
}

/* A worker that joined before the servers were restarted proves that its job continues. */
static void worker_of_an_earlier_life_waits(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    cfg.first_wait_ms = -1;
    setup(&r, &cfg);
    r.generation = 3;
    assert_int_equal(join(&r, 1, 11, 2), JOIN_RETRY); /* the worker's job has begun */
    assert_non_null(strstr(r.reply.why, "has not reached generation"));
    teardown(&r);
}

static void on_people(void *ctx)
{
    struct rig *r = ctx;
    r->n_changes++;
}

static uint64_t claim_of(struct rig *r)
{
    struct generation_state s;
    generation_state(r->service, &s);
    return s.claim;
}

/* Returns nonzero if the member, which is not admitted, was seen since the generation stopped. */
static int has_asked(struct rig *r, int rank)
{
    struct roster_entry *members = NULL, *waiting = NULL;
    int n = 0, n_waiting = 0;
    assert_int_equal(membership_roster(r->service, &members, &n, &waiting, &n_waiting), ST_OK);
    int asked = members[rank].asked;
    free(members);
    free(waiting);
    return asked;
}

static uint64_t incarnation_of(struct rig *r, int rank)
{
    struct roster_entry *members = NULL, *waiting = NULL;
    int n = 0, n_waiting = 0;
    assert_int_equal(membership_roster(r->service, &members, &n, &waiting, &n_waiting), ST_OK);
    uint64_t incarnation = members[rank].incarnation;
    free(members);
    free(waiting);
    return incarnation;
}

/* A member from a generation of another ps 0 is not admitted if that generation's number is not
 * below the present one. The coordinator receives this claim and, after training has stopped, a
 * report that the member is present. */
static void member_of_another_ps0_is_reported(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    cfg.roster_changed = on_people;
    cfg.ctx = &r;
    setup(&r, &cfg);
    assert_int_equal(join(&r, 0, 10, 2), JOIN_INIT);
    r.generation = r.reply.generation;
    assert_int_equal(join(&r, 1, 11, 2), JOIN_WELCOME); /* the same ps 0 made its plan */
    assert_int_equal(claim_of(&r), 0);
    r.ps0 = 77;
    for (uint64_t more = 0; more < 2; more++) {
        int before = r.n_changes;
        r.generation += more;
        for (int again = 0; again < 2; again++) {
            assert_int_equal(join(&r, 1, 12, 2), JOIN_RETRY);
            assert_non_null(strstr(r.reply.why, "ps:0 was restarted: a generation above"));
            assert_int_equal(claim_of(&r), r.generation);
            assert_int_equal(r.n_changes, before + 1);
        }
    }
    assert_int_equal(join(&r, -1, 13, 0), JOIN_RETRY); /* it has no place yet */
    assert_int_equal(has_asked(&r, 1), 1); /* before the stop, too: the generation will end */
    generation_stop(r.service);
    assert_int_equal(join(&r, 1, 12, 2), JOIN_RETRY);
    assert_int_equal(has_asked(&r, 1), 1);
    r.generation = term_of(TERM_MAX_EPOCH, 1);
    assert_int_equal(CAPTURE(join(&r, 1, 12, 2)), JOIN_REFUSED);
    assert_non_null(strstr(r.reply.why, "the server received an invalid generation"));
    teardown(&r);
}

/* A generation has ended, and a second process with worker 1's number asks to join. The next
 * generation begins with the first process, which also asks, unless the first process has ended. */
static void first_process_wins_between_generations(void **state)
{
    struct rig r;
    const struct service_config cfg = config();
    fake_time_stop();
    setup(&r, &cfg);
    assert_int_equal(join(&r, 0, 10, 2), JOIN_INIT);
    assert_int_equal(join(&r, 1, 11, 2), JOIN_WELCOME);
    generation_stop(r.service);
    for (int again = 0; again < 4; again++) {
        fake_time_move(3000);
        assert_int_equal(join(&r, 1, 12, 2), JOIN_RETRY); /* shortly before the first one does */
        assert_int_equal(incarnation_of(&r, 1), 11);
        assert_int_equal(join(&r, 1, 11, 2), JOIN_RETRY);
    }
    fake_time_move(5000);
    assert_int_equal(join(&r, 1, 12, 2), JOIN_RETRY);
    assert_int_equal(incarnation_of(&r, 1), 12);
    teardown(&r);
    fake_time_release();
}

/* If worker 0 need not join, other workers wait for it only for a limited time. */
static void absent_worker_0_is_awaited_for_a_limited_time(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    cfg.first_wait_ms = 20;
    setup(&r, &cfg);
    int64_t deadline = clock_deadline_ns(20000);
    enum join_answer answer = join(&r, 1, 11, 2);
    assert_int_equal(answer, JOIN_RETRY);
    while (answer == JOIN_RETRY && clock_now_ns() < deadline)
        answer = join(&r, 1, 11, 2);
    assert_int_equal(answer, JOIN_WELCOME);
    teardown(&r);
}

/* The refusal of a worker with other flags names both values and a remedy, even if the worker
 * replaces the one that began the job. */
static void refusal_for_other_flags_names_both(void **state)
{
    static const char expect[] =
        "another job: --learning_rate: the servers have 0.5, the worker has 0.25; worker 0 from ipv4:10.0.0.7:5000 decided this job's settings: start both workers with the same flags; if that worker had wrong flags, restart the servers, too";
    struct rig r;
    const struct service_config cfg = config();
    setup(&r, &cfg);
    assert_int_equal(join(&r, 0, 10, 2), JOIN_INIT);
    r.learning_rate = 0.25f;
    r.peer = "ipv4:10.0.0.8:5000";
    for (int member = 0; member < 2; member++) {
        assert_int_equal(CAPTURE(join(&r, member, 12, 2)), JOIN_REFUSED);
        assert_string_equal(r.reply.why, expect);
        assert_non_null(strstr(capture_text, expect));
        assert_non_null(strstr(capture_text, "from ipv4:10.0.0.8:5000 refused"));
    }
    teardown(&r);
}

static void full_job_refuses_workers(void **state)
{
    struct rig r;
    struct service_config cfg = config();
    cfg.max_workers = 2;
    setup(&r, &cfg);
    assert_int_equal(CAPTURE(join(&r, 0, 10, 3)), JOIN_REFUSED);
    assert_string_equal(r.reply.why, "the job has 3 workers, above --max_workers=2 of this server");
    assert_int_equal(join(&r, 0, 10, 2), JOIN_INIT);
    assert_int_equal(join(&r, 1, 11, 2), JOIN_WELCOME);
    assert_int_equal(join(&r, -1, 12, 0), JOIN_RETRY); /* neither of the two has sent a piece yet */
    assert_string_equal(r.reply.why,
                        "the job has 2 workers, and accepts no more: --max_workers=2 of "
                        "ps:0; worker 0 is missing and can be removed");
    teardown(&r);
    cfg.max_workers = 3;
    setup(&r, &cfg);
    assert_int_equal(join(&r, 0, 10, 2), JOIN_INIT);
    for (int i = 0; i < 2; i++) { /* worker 2 asks again */
        assert_int_equal(join(&r, -1, 12, 0), JOIN_RETRY);
        assert_non_null(strstr(r.reply.why, "has no place for this worker yet"));
    }
    assert_int_equal(join(&r, -1, 13, 0), JOIN_RETRY);
    assert_non_null(strstr(r.reply.why, "--max_workers=3"));
    teardown(&r);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_WARN);
    return RUN_TESTS(
        worker_0_begins_the_job, slowest_link_decides_the_format,
        format_from_flags_or_checkpoint_has_precedence, format_of_another_mode_is_ignored,
        checkpoint_format_of_another_mode_is_adapted, format_of_an_ended_process_expires,
        joined_member_need_only_send_a_piece, worker_of_an_earlier_life_waits,
        absent_worker_0_is_awaited_for_a_limited_time, refusal_for_other_flags_names_both,
        full_job_refuses_workers, repeated_refusals_make_few_lines,
        refusals_stay_until_the_worker_joins, refusals_are_bounded,
        member_of_another_ps0_is_reported, first_process_wins_between_generations);
}
