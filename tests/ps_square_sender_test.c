/* tests/ps_square_sender_test.c - a server sends its parts of a norm to the other servers, step by
 * step. It repeats a step until the receiver accepts it, and sends none after the receiver's
 * generation has ended. A sender ends even if a server is away. */
#include "net/rpc/server.h"
#include "ps/service/square_sender.h"
#include "tests/check.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHUNKS = 3, MAX_CALLS = 16 };

static const struct net_param model[] = {{.name = "w", .shape = {1, {3000}}}};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t called;
    int n_calls, n_later; /* the first n_later calls are answered LATER */
    enum squares_answer answer;
    int64_t step[MAX_CALLS];
    double first[MAX_CALLS];
} f = {.lock = PTHREAD_MUTEX_INITIALIZER, .called = PTHREAD_COND_INITIALIZER};

static void on_squares(void *ctx, const struct net_squares *m, struct net_squares_reply *reply)
{
    pthread_mutex_lock(&f.lock);
    assert_true(f.n_calls < MAX_CALLS);
    assert_true(m->generation == 9 && m->ps0 == 77 && m->server == 0 && m->n == 2);
    assert_true(m->square[1] == m->square[0] + 1);
    f.step[f.n_calls] = m->step;
    f.first[f.n_calls++] = m->square[0];
    reply->answer = f.n_later > 0 ? SQUARES_LATER : f.answer;
    if (f.n_later > 0) {
        f.n_later--;
        snprintf(reply->why, sizeof reply->why, "not yet");
    }
    pthread_cond_broadcast(&f.called);
    pthread_mutex_unlock(&f.lock);
}

static void wait_calls(int n)
{
    pthread_mutex_lock(&f.lock);
    while (f.n_calls < n)
        pthread_cond_wait(&f.called, &f.lock);
    pthread_mutex_unlock(&f.lock);
}

/* Makes a plan. Server 0 has chunks 0 and 2, and the server at this port has chunk 1. */
static struct net_plan *make_plan(int port, float clip_norm)
{
    char other[32];
    struct net_plan *p = calloc(1, sizeof *p);
    assert_non_null(p);
    snprintf(other, sizeof other, "127.0.0.1:%d", port);
    const char *const addr[] = {"127.0.0.1:1", other};
    p->generation = 9;
    p->ps0 = 77;
    p->step = 5;
    p->job = (struct net_job){.n_workers = 2};
    p->job.optim.clip_norm = clip_norm;
    assert_int_equal(chunks_create(model, 1, 4096, &p->chunks), ST_OK);
    assert_int_equal(p->chunks->n_chunks, N_CHUNKS);
    p->shard = calloc(N_CHUNKS, sizeof *p->shard);
    assert_non_null(p->shard);
    p->shard[1] = 1;
    assert_int_equal(hosts_copy(addr, 2, &p->servers), ST_OK);
    return p;
}

static struct net_server *serve(void)
{
    struct net_server *server = NULL;
    struct net_server_config cfg = {.addr = "127.0.0.1:0", .handler.squares = on_squares};
    f.n_calls = f.n_later = 0;
    f.answer = SQUARES_TAKEN;
    assert_int_equal(net_server_create(&cfg, &server), ST_OK);
    return server;
}

static void put(struct square_sender *s, int64_t step, double first)
{
    const double square[] = {first, first + 1};
    square_sender_put(s, step, square, 2);
}

static void step_is_sent_until_accepted(void **state)
{
    struct square_sender *s = NULL;
    struct net_server *server = serve();
    struct net_plan *plan = make_plan(net_server_port(server), 1);
    f.n_later = 2;
    assert_int_equal(square_sender_create(plan, 0, &s), ST_OK);
    net_plan_free(plan);
    put(s, 5, 0.5);
    put(s, 6, 0.25);
    wait_calls(4);
    put(s, 7, 8);
    wait_calls(5);
    square_sender_destroy(s);
    static const int64_t steps[] = {5, 5, 5, 6, 7};
    static const double first[] = {0.5, 0.5, 0.5, 0.25, 8};
    assert_int_equal(f.n_calls, 5);
    assert_memory_equal(f.step, steps, sizeof steps);
    assert_memory_equal(f.first, first, sizeof first);
    net_server_destroy(server);
}

static void nothing_is_sent_after_the_generation(void **state)
{
    struct square_sender *s = NULL;
    struct net_server *server = serve();
    struct net_plan *plan = make_plan(net_server_port(server), 1);
    f.answer = SQUARES_OVER;
    assert_int_equal(square_sender_create(plan, 0, &s), ST_OK);
    put(s, 5, 1);
    wait_calls(1);
    put(s, 6, 1);
    square_sender_destroy(s);
    assert_int_equal(f.n_calls, 1);
    net_server_destroy(server);
    net_plan_free(plan);
}

static void sender_ends_while_a_server_is_away(void **state)
{
    struct square_sender *s = NULL;
    struct net_server *server = serve();
    int port = net_server_port(server);
    net_server_destroy(server);
    struct net_plan *plan = make_plan(port, 1);
    assert_int_equal(square_sender_create(plan, 0, &s), ST_OK);
    put(s, 5, 1);
    square_sender_destroy(s);
    net_plan_free(plan);
}

static void no_sender_without_receivers(void **state)
{
    struct square_sender *s = NULL;
    struct net_plan *plan = make_plan(2, 0);
    assert_int_equal(square_sender_create(plan, 0, &s), ST_OK); /* nothing is clipped */
    assert_null(s);
    plan->job.optim.clip_norm = 1;
    plan->shard[1] = 0;
    assert_int_equal(square_sender_create(plan, 0, &s), ST_OK); /* the other server has no chunk */
    assert_null(s);
    assert_int_equal(square_sender_create(plan, 1, &s), ST_OK); /* this server has no chunk */
    assert_null(s);
    net_plan_free(plan);
}

int main(void)
{
    return RUN_TESTS(step_is_sent_until_accepted, nothing_is_sent_after_the_generation,
                     sender_ends_while_a_server_is_away, no_sender_without_receivers);
}
