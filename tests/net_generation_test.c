/* tests/net_generation_test.c - an exchange over several generations. The servers, the shard map
 * and the member's rank change, and no line reports a lost connection. */
#include "base/clock.h"
#include "base/log.h"
#include "net/exchange/exchange.h"
#include "net/exchange/waits.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fake_time.h"
#include "tests/net_tiny.h"
#include <semaphore.h>
#include <stdbool.h>

enum {
    N_SERVERS = 3,
    STUCK_MS = 10000,
    QUICK_MS = 20, /* longest pause (ms) of the client while servers change their generation */
};

struct rig {
    struct tiny_member m;
    struct tiny tiny[N_SERVERS];
    char addr[N_SERVERS][32], *addrs[N_SERVERS];
    char *mixed_addrs[2]; /* servers 0 and 2 */
    struct hosts first, mixed;
    int n_renewed; /* number of calls of first_values() */
    int late;      /* nonzero: server 1 answers a held piece during a call of first_values() */
};

static enum status first_values(void *ctx, float *params)
{
    struct rig *r = ctx;
    const struct timespec moment = {0, 200000000};
    r->n_renewed++;
    if (r->late) {
        tiny_rebase_late(&r->tiny[1], 1);
        nanosleep(&moment, NULL); /* the answer arrives while the only reading thread is here */
    }
    for (int i = 0; i < MODEL_ELEMS; i++)
        params[i] = (float)i;
    return ST_OK;
}

/* Opens a rig: servers 0 and 1 belong to the job; server 2 only listens. */
static void rig_open(struct rig *r, int member)
{
    memset(r, 0, sizeof *r);
    tiny_member_init(&r->m);
    for (int i = 0; i < N_SERVERS; i++) {
        tiny_init(&r->tiny[i], r->m.chunks, i, 2);
        tiny_start(&r->tiny[i]);
        snprintf(r->addr[i], sizeof r->addr[i], "127.0.0.1:%d", r->tiny[i].port);
        r->addrs[i] = r->addr[i];
    }
    r->first = (struct hosts){2, r->addrs};
    r->mixed_addrs[0] = r->addr[0];
    r->mixed_addrs[1] = r->addr[2];
    r->mixed = (struct hosts){2, r->mixed_addrs};
    pthread_mutex_lock(&r->tiny[0].lock);
    r->tiny[0].servers = &r->first;
    pthread_mutex_unlock(&r->tiny[0].lock);
    struct net_exchange_config cfg = {
        .ps_hosts = &r->first,
        .join = {.member = member, .incarnation = 99, .chunks = r->m.chunks},
        .params = r->m.params,
        .first_values = first_values,
        .ctx = r,
        .wait_line_ms = 2000};
    cfg.join.job = (struct net_job){.n_workers = member < 0 ? 0 : 5, .train_steps = 10};
    optim_defaults(OPTIM_SGD, &cfg.join.job.optim);
    assert_int_equal(net_exchange_create(&cfg, &r->m.x), ST_OK);
}

static void rig_close(struct rig *r)
{
    net_exchange_destroy(r->m.x);
    for (int i = 0; i < N_SERVERS; i++)
        tiny_free(&r->tiny[i]);
    tiny_member_free(&r->m);
}

static void set_place(struct rig *r, int member, int rank, int n_members)
{
    const struct net_place place = {
        .member = member, .rank = rank, .n_members = n_members, .first_step = 0, .train_steps = 10};
    for (int i = 0; i < N_SERVERS; i++) {
        pthread_mutex_lock(&r->tiny[i].lock);
        r->tiny[i].place = place;
        pthread_mutex_unlock(&r->tiny[i].lock);
    }
}

/* Sets the last version of the generation at server `first` and at all later servers. */
static void set_end(struct rig *r, int first, int64_t end)
{
    for (int i = first; i < N_SERVERS; i++) {
        pthread_mutex_lock(&r->tiny[i].lock);
        r->tiny[i].end = end;
        pthread_mutex_unlock(&r->tiny[i].lock);
    }
}

/* Starts the next generation at `step`, with server 2 instead of server 1. */
static void change_servers(struct rig *r, int64_t step, const struct net_place *place)
{
    tiny_go_on(&r->tiny[2], step, 1, &r->mixed, place);
    tiny_go_on(&r->tiny[0], step, 0, &r->mixed, place);
}

/* The generation ends as planned. The member sends all contributions to the last step, although
 * some chunks reach their last version earlier. It enters the next generation, which has other
 * servers, soon after that generation starts. */
static void planned_change_enters_next_generation(void **state)
{
    struct rig r;
    struct net_start start;
    const struct net_place next = {
        .member = 4, .n_members = 1, .first_step = 3, .position = 77, .train_steps = 10};
    uint8_t skip[MODEL_CHUNKS] = {0}; /* the other chunks have no version of this step, either */
    int chunk;
    rig_open(&r, 4);
    set_place(&r, 4, 3, 5);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    assert_int_equal(start.generation, 1);
    assert_int_equal(start.place.member, 4);
    assert_int_equal(start.place.rank, 3);
    tiny_step_on(&r.m, 0, 2);
    assert_int_equal(tiny_get(&r.tiny[1], &r.tiny[1].last_rank), 3);
    set_end(&r, 0, 3);
    assert_int_equal(net_exchange_push(r.m.x, MODEL_CHUNKS - 1, 2, r.m.gradient, 1), ST_OK);
    assert_int_equal(net_exchange_wait_any(r.m.x, skip, 3, &chunk), ST_REBASED);
    assert_int_equal(net_exchange_wait(r.m.x, MODEL_CHUNKS - 1, 1, 3), ST_REBASED);
    assert_int_equal(net_exchange_push(r.m.x, MODEL_CHUNKS - 1, 3, r.m.gradient, 1), ST_REBASED);
    for (int i = 0; i < MODEL_CHUNKS - 1; i++)
        assert_int_equal(net_exchange_push(r.m.x, i, 2, r.m.gradient, 1), ST_OK);
    net_exchange_flush(r.m.x);
    for (int i = 0; i < 2; i++)
        tiny_await(&r.tiny[i], &r.tiny[i].n_push, 3 * MODEL_CHUNKS / 2);
    tiny_set(&r.tiny[0], &r.tiny[0].retries, 5);
    change_servers(&r, 3, &next);
    fake_time_watch();
    enum status again = CAPTURE(net_exchange_start(r.m.x, &start));
    assert_in_range(fake_time_longest_wait_ms(), 1, QUICK_MS);
    assert_int_equal(again, ST_OK);
    assert_int_equal(start.step, 3);
    assert_int_equal(start.generation, 2);
    assert_int_equal(start.place.rank, 0);
    assert_int_equal(start.place.position, 77);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tiny_get(&r.tiny[i], &r.tiny[i].n_push), 3 * MODEL_CHUNKS / 2);
    assert_string_equal(strstr(capture_text, "generation"),
                        "generation 0.2 from step 3: 1 worker, 2 servers\n");
    assert_int_equal(capture_lines(), 1);
    tiny_step_on(&r.m, 3, 5);
    assert_int_equal(tiny_get(&r.tiny[2], &r.tiny[2].last_rank), 0);
    assert_int_equal(tiny_get(&r.tiny[2], &r.tiny[2].n_push), MODEL_CHUNKS);
    rig_close(&r);
}

/* Keeps server 0 from answering for a moment, and then starts the next generation. */
struct change {
    struct rig *r;
    const struct net_place *place;
    sem_t held;
};

static void *change_late(void *arg)
{
    struct change *c = arg;
    struct tiny *t = &c->r->tiny[0];
    const struct timespec moment = {0, 50000000};
    fake_time_own();
    pthread_mutex_lock(&t->lock);
    sem_post(&c->held);
    nanosleep(&moment, NULL);
    pthread_mutex_unlock(&t->lock);
    tiny_await(t, &t->n_push, MODEL_CHUNKS / 2);
    tiny_await(&c->r->tiny[1], &c->r->tiny[1].n_push, MODEL_CHUNKS / 2);
    change_servers(c->r, 1, c->place);
    int64_t deadline = clock_deadline_ns(STUCK_MS);
    pthread_mutex_lock(&t->lock);
    while (t->n_join < 2 && clock_cond_wait(&t->changed, &t->lock, deadline) == 0)
        ;
    bool stuck = t->n_join < 2;
    pthread_mutex_unlock(&t->lock);
    if (stuck)
        net_exchange_cancel(c->r->m.x);
    return NULL;
}

/* Returns the longest pause (ms; -1: none) that the worker made before it was in the next
 * generation. first: the first server that ends the present generation. */
static int64_t start_in_the_middle(int first)
{
    struct rig r;
    struct net_start start;
    const struct net_place next = {.member = 4, .n_members = 1, .train_steps = 10};
    struct change c = {.r = &r, .place = &next};
    pthread_t thread;
    sem_init(&c.held, 0, 0);
    rig_open(&r, 4);
    set_place(&r, 4, 3, 5);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    set_end(&r, first, 1);
    assert_int_equal(pthread_create(&thread, NULL, change_late, &c), 0);
    sem_wait(&c.held);
    tiny_push_all(&r.m, 0);
    fake_time_watch();
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1), ST_REBASED);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    int64_t pause_ms = fake_time_longest_wait_ms();
    assert_int_equal(start.generation, 2);
    pthread_join(thread, NULL);
    sem_destroy(&c.held);
    rig_close(&r);
    return pause_ms;
}

/* The worker requests the next generation while the answers of the last step are pending, as in
 * each planned change of a job with several workers. It does not pause, unlike after a lost
 * stream. */
static void planned_change_has_no_long_pause(void **state)
{
    for (int i = 0; i < 20; i++)
        assert_true(start_in_the_middle(0) <= QUICK_MS);
}

/* If servers stop at different times, versions may arrive while the worker already requests the
 * next generation. The worker contacts ps 0 after the last of these versions. */
static void late_versions_precede_next_generation(void **state)
{
    start_in_the_middle(1);
}

/* A server that has left the job may exit: the exchange does not contact it any more. */
static void link_to_removed_server_is_closed(void **state)
{
    struct rig r;
    struct net_start start;
    struct net_place place = {.member = 4, .n_members = 1, .train_steps = 10};
    rig_open(&r, 4);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 2);
    set_end(&r, 0, 3);
    tiny_push_all(&r.m, 2);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 3), ST_REBASED);
    for (int i = 0; i < 2; i++)
        tiny_await(&r.tiny[i], &r.tiny[i].n_push, 3 * MODEL_CHUNKS / 2);
    change_servers(&r, 3, &place);
    capture_begin();
    enum status again = net_exchange_start(r.m.x, &start);
    tiny_await(&r.tiny[1], &r.tiny[1].n_closed, 1);
    int joins = tiny_get(&r.tiny[1], &r.tiny[1].n_join);
    tiny_stop(&r.tiny[1]);
    tiny_step_on(&r.m, 3, 8);
    capture_end();
    assert_int_equal(again, ST_OK);
    assert_null(strstr(capture_text, "lost"));
    assert_null(strstr(capture_text, "waiting"));
    assert_int_equal(r.tiny[1].n_join, joins);
    struct net_exchange_stats stats;
    net_exchange_stats(r.m.x, &stats);
    assert_int_equal(stats.reconnects, 0);
    rig_close(&r);
}

/* The member uses the index that ps 0 has assigned, at all servers and after a reconnect. */
static void assigned_index_is_used_everywhere(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, -1);
    set_place(&r, 7, 1, 2);
    tiny_set(&r.tiny[0], &r.tiny[0].retries, 2);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    assert_int_equal(start.place.member, 7);
    assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].last_member), -1);
    assert_int_equal(tiny_get(&r.tiny[1], &r.tiny[1].last_member), 7);
    tiny_step_on(&r.m, 0, 2);
    tiny_stop(&r.tiny[0]);
    tiny_start(&r.tiny[0]);
    tiny_step_on(&r.m, 2, 3);
    assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].last_member), 7);
    assert_int_equal(net_exchange_leave(r.m.x, 1, 5000), ST_OK);
    assert_int_equal(tiny_get(&r.tiny[1], &r.tiny[1].last_member), 7);
    rig_close(&r);
}

/* ps 0 assigns no index to a member without an index, or assigns another index to a member that has
 * one. */
static void wrong_index_ends_start(void **state)
{
    for (int member = -1; member <= 4; member += 5) {
        struct rig r;
        struct net_start start;
        rig_open(&r, member);
        if (member >= 0)
            set_place(&r, member + 1, 0, 1);
        assert_int_equal(CAPTURE(net_exchange_start(r.m.x, &start)), ST_PROTOCOL);
        assert_non_null(strstr(capture_text, "no index, or the index of another worker"));
        assert_int_equal(capture_lines(), 1);
        rig_close(&r);
    }
}

/* The member contributes until the generation ends, and does not request the next one. */
static void leave_soon_ends_after_generation(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 4);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 2);
    assert_int_equal(net_exchange_is_leaving(r.m.x), 0);
    assert_int_equal(net_exchange_leave_soon(r.m.x, 5000), ST_OK);
    assert_int_equal(net_exchange_is_leaving(r.m.x), 1);
    assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].n_soon), 1);
    assert_int_equal(tiny_get(&r.tiny[1], &r.tiny[1].n_soon), 0);
    tiny_step_on(&r.m, 2, 4);
    set_end(&r, 0, 5);
    tiny_push_all(&r.m, 4);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 5), ST_REBASED);
    int joins = tiny_get(&r.tiny[0], &r.tiny[0].n_join);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_CANCELLED);
    assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].n_join), joins);
    assert_int_equal(net_exchange_leave(r.m.x, 0, 5000), ST_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tiny_get(&r.tiny[i], &r.tiny[i].n_leave), 1);
    rig_close(&r);
}

static void *leave_while_stopped(void *arg)
{
    struct rig *r = arg;
    tiny_await(&r->tiny[0], &r->tiny[0].n_join, 3); /* it answers with RETRY */
    enum status st = net_exchange_leave_soon(r->m.x, 5000);
    if (st != ST_OK)
        net_exchange_cancel(r->m.x);
    return (void *)(intptr_t)st;
}

/* The next generation waits for other workers, possibly for ever. A leaving member does not wait
 * for it. */
static void leave_soon_does_not_wait_for_stopped_job(void **state)
{
    struct rig r;
    struct net_start start;
    pthread_t thread;
    void *told;
    rig_open(&r, 4);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 2);
    set_end(&r, 0, 3);
    tiny_push_all(&r.m, 2);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 3), ST_REBASED);
    tiny_set(&r.tiny[0], &r.tiny[0].retries, 1 << 20);
    assert_int_equal(pthread_create(&thread, NULL, leave_while_stopped, &r), 0);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_CANCELLED);
    pthread_join(thread, &told);
    assert_int_equal((intptr_t)told, ST_OK);
    assert_int_equal(net_exchange_is_leaving(r.m.x), 1);
    assert_int_equal(tiny_get(&r.tiny[0], &r.tiny[0].n_soon), 1);
    assert_int_equal(net_exchange_leave(r.m.x, 0, 5000), ST_OK);
    rig_close(&r);
}

/* ps 0 is down when the member asks to leave, and receives the request when it is back. */
static void leave_soon_reaches_ps0_after_its_restart(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 4);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 2);
    tiny_stop(&r.tiny[0]);
    assert_int_equal(net_exchange_leave_soon(r.m.x, 50), ST_DEADLINE);
    tiny_start(&r.tiny[0]);
    tiny_await(&r.tiny[0], &r.tiny[0].n_soon, 1);
    rig_close(&r);
}

/* A member with all versions leaves for good. All servers receive its leave message, although they
 * are in a generation in which this member never was. */
static void leave_reaches_servers_of_newer_generation(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 4);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 4);
    tiny_stop(&r.tiny[1]);
    for (int i = 0; i < 2; i++)
        tiny_go_back(&r.tiny[i], 4);
    tiny_start(&r.tiny[1]);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 5), ST_REBASED);
    assert_int_equal(net_exchange_leave(r.m.x, 1, 5000), ST_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tiny_get(&r.tiny[i], &r.tiny[i].n_leave), 1);
    rig_close(&r);
}

/* A server answers a request of the previous generation when the next generation has begun, in
 * which it has other chunks. The client ignores the answer. */
static void answer_of_previous_generation_is_ignored(void **state)
{
    struct rig r;
    struct net_start start;
    const struct net_place place = {.member = 4, .n_members = 1, .train_steps = 10};
    rig_open(&r, 4);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 2);
    char *addrs[3] = {r.addr[0], r.addr[2], r.addr[1]};
    const struct hosts three = {3, addrs};
    r.late = 1;
    tiny_set(&r.tiny[1], &r.tiny[1].hold, 1);
    set_end(&r, 0, 3);
    tiny_push_all(&r.m, 2);
    assert_int_equal(net_exchange_wait(r.m.x, 0, 1, 3), ST_REBASED);
    for (int i = 0; i < 2; i++)
        tiny_await(&r.tiny[i], &r.tiny[i].n_push, 3 * MODEL_CHUNKS / 2);
    tiny_go_on(&r.tiny[2], 0, 1, &three, &place);
    pthread_mutex_lock(&r.tiny[1].lock);
    r.tiny[1].hold = 0;
    pthread_mutex_unlock(&r.tiny[1].lock);
    tiny_go_on(&r.tiny[1], 0, 2, &three, &place);
    tiny_go_on(&r.tiny[0], 0, 0, &three, &place);
    pthread_mutex_lock(&r.tiny[0].lock);
    for (int i = 0; i < MODEL_CHUNKS; i++)
        r.tiny[0].version[i] = -1; /* the server has no version, so it requests the first values */
    pthread_mutex_unlock(&r.tiny[0].lock);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    assert_int_equal(r.n_renewed, 1);
    assert_int_equal(start.generation, 2);
    rig_close(&r);
}

/* All servers have lost their values, and a new generation begins with the first values. */
static void lost_values_restart_the_job(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 4);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 4);
    for (int k = 0; k < 2; k++) {
        pthread_mutex_lock(&r.tiny[k].lock);
        r.tiny[k].generation = 2;
        for (int i = 0; i < MODEL_CHUNKS; i++)
            r.tiny[k].version[i] = -1;
        pthread_mutex_unlock(&r.tiny[k].lock);
    }
    tiny_push_all(&r.m, 4);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 5), ST_REBASED);
    assert_int_equal(CAPTURE(net_exchange_start(r.m.x, &start)), ST_OK);
    assert_non_null(strstr(capture_text, "going back from step 4 to step 0"));
    assert_int_equal(start.step, 0);
    assert_int_equal(r.n_renewed, 1);
    tiny_assert_params(&r.m, 0);
    tiny_step_on(&r.m, 0, 3);
    rig_close(&r);
}

/* The last process of the member may have ended when it had pushed a part of its step. The start
 * then reports that the caller repeats the step. */
static void start_reports_a_repeated_step(void **state)
{
    for (int n_pushed = 0; n_pushed <= 1; n_pushed++) {
        struct rig r;
        struct net_start start;
        rig_open(&r, 4);
        assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
        assert_false(start.redoes);
        tiny_set(&r.tiny[1], &r.tiny[1].older, 1);
        for (int k = 1; k >= 0; k--)
            tiny_go_back(&r.tiny[k], 2);
        pthread_mutex_lock(&r.tiny[1].lock);
        for (int i = 0; i < MODEL_CHUNKS; i++)
            r.tiny[1].version[i] += n_pushed;
        pthread_mutex_unlock(&r.tiny[1].lock);
        tiny_push_all(&r.m, 0);
        assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1), ST_REBASED);
        assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
        assert_int_equal(start.step, 2);
        assert_int_equal(start.redoes, n_pushed > 0);
        rig_close(&r);
    }
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_INFO);
    fake_time_own();
    return RUN_TESTS(planned_change_enters_next_generation, planned_change_has_no_long_pause,
                     late_versions_precede_next_generation, link_to_removed_server_is_closed,
                     assigned_index_is_used_everywhere, wrong_index_ends_start,
                     leave_soon_ends_after_generation, leave_soon_does_not_wait_for_stopped_job,
                     lost_values_restart_the_job, leave_soon_reaches_ps0_after_its_restart,
                     leave_reaches_servers_of_newer_generation,
                     answer_of_previous_generation_is_ignored, start_reports_a_repeated_step);
}
