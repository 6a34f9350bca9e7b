/* tests/net_placed_test.c - versions that a server writes to a member's parameters. The member uses
 * only what the server has answered, and replaces memory that servers of an earlier generation
 * can write. */
#include "net/exchange/exchange_impl.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/net_tiny.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct rig {
    struct tiny_member m;
    struct tiny tiny;
    char addr[32], *addrs[1];
    struct hosts hosts;
    struct segment *gradients, *values;
};

/* lends: the parameters lie in memory that the server may write. */
static void rig_open(struct rig *r, int writes, bool lends)
{
    char why[SEGMENT_WHY_BYTES];
    memset(r, 0, sizeof *r);
    tiny_member_init(&r->m);
    tiny_init(&r->tiny, r->m.chunks, 0, 1);
    tiny_share(&r->tiny);
    r->tiny.writes = writes;
    tiny_start(&r->tiny);
    snprintf(r->addr, sizeof r->addr, "127.0.0.1:%d", r->tiny.port);
    r->addrs[0] = r->addr;
    r->hosts = (struct hosts){1, r->addrs};
    assert_int_equal(segment_create_lent(MODEL_ELEMS * sizeof(float), &r->values, why), ST_OK);
    float *params = segment_data(r->values);
    memcpy(params, r->m.params, MODEL_ELEMS * sizeof *params);
    free(r->m.params);
    r->m.params = params;
    struct net_exchange_config cfg = {.ps_hosts = &r->hosts,
                                      .join = {.incarnation = 99, .chunks = r->m.chunks},
                                      .params = params,
                                      .wait_line_ms = 200,
                                      .shared_memory = true,
                                      .values = lends ? r->values : NULL};
    cfg.join.job = (struct net_job){.n_workers = 1, .train_steps = 10};
    optim_defaults(OPTIM_SGD, &cfg.join.job.optim);
    assert_int_equal(net_exchange_create(&cfg, &r->m.x), ST_OK);
    r->gradients = net_exchange_gradients(r->m.x, DTYPE_F32);
    float *gradient = segment_data(r->gradients);
    memcpy(gradient, r->m.gradient, MODEL_ELEMS * sizeof *gradient);
    free(r->m.gradient);
    r->m.gradient = gradient;
}

static void rig_close(struct rig *r)
{
    net_exchange_destroy(r->m.x);
    r->m.params = r->m.gradient = NULL;
    segment_unref(r->gradients);
    segment_unref(r->values);
    tiny_free(&r->tiny);
    tiny_member_free(&r->m);
}

static int n_placed(struct rig *r)
{
    return tiny_get(&r->tiny, &r->tiny.n_placed);
}

static void server_writes_versions_to_params(void **state)
{
    struct rig r;
    struct net_start start;
    struct net_exchange_stats stats;
    rig_open(&r, 1, true);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 4);
    tiny_assert_params(&r.m, 4);
    assert_int_equal(n_placed(&r), 4 * MODEL_CHUNKS);
    net_exchange_stats(r.m.x, &stats);
    assert_int_equal(stats.applied, 4 * MODEL_CHUNKS);
    assert_int_equal(stats.received_bytes, 5 * MODEL_ELEMS * sizeof(float));
    assert_int_equal(stats.shared_bytes, (4 + 5) * MODEL_ELEMS * sizeof(float));
    rig_close(&r);
}

static enum status push_and_wait(struct rig *r, int64_t step)
{
    (void)net_exchange_push(r->m.x, 0, step, r->m.gradient, 1);
    return net_exchange_wait(r->m.x, 0, 1, step + 1);
}

static void memory_that_is_not_lent_is_not_written(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 1, false);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 2);
    assert_int_equal(n_placed(&r), 0);
    tiny_set(&r.tiny, &r.tiny.writes, 2);
    assert_int_equal(CAPTURE(push_and_wait(&r, 2)), ST_PROTOCOL);
    assert_non_null(strstr(capture_text, "to memory that it may not write to"));
    rig_close(&r);
}

/* A server ends after it has written, before it answers. The member waits, and receives the version
 * from the next process. Memory that one server has opened is not opened by another. */
static void write_without_an_answer_does_not_count(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 1, true);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 2);
    tiny_set(&r.tiny, &r.tiny.hold, 1);
    tiny_set(&r.tiny, &r.tiny.writes, 3);
    int before = n_placed(&r);
    tiny_push_all(&r.m, 2);
    tiny_await(&r.tiny, &r.tiny.n_placed, before + MODEL_CHUNKS);
    assert_int_equal(net_exchange_wait_until(r.m.x, 0, MODEL_CHUNKS, 3, 1), ST_DEADLINE);
    tiny_stop(&r.tiny);
    r.tiny.hold = 0;
    r.tiny.writes = 1;
    tiny_start(&r.tiny);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 3), ST_OK);
    tiny_step_on(&r.m, 3, 5);
    tiny_assert_params(&r.m, 5);
    assert_int_equal(n_placed(&r), before + MODEL_CHUNKS);
    rig_close(&r);
}

/* A server of the previous generation was stopped in the middle of a write, and continues. */
static void late_write_of_an_old_server_is_harmless(void **state)
{
    struct rig r;
    struct net_start start;
    rig_open(&r, 1, true);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    tiny_step_on(&r.m, 0, 3);
    pthread_mutex_lock(&r.tiny.lock);
    struct segment *old = segment_ref(r.tiny.values);
    pthread_mutex_unlock(&r.tiny.lock);
    for (int round = 0; round < 3; round++) {
        tiny_go_back(&r.tiny, 1);
        tiny_push_all(&r.m, round ? 4 : 3);
        assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 9), ST_REBASED);
        assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
        assert_int_equal(start.step, 1);
        memset(segment_data(old), round, MODEL_ELEMS * sizeof(float));
        tiny_assert_params(&r.m, 1);
        int before = n_placed(&r);
        tiny_step_on(&r.m, 1, 4);
        assert_int_equal(n_placed(&r), before + 3 * MODEL_CHUNKS);
        memset(segment_data(old), 1 + round, MODEL_ELEMS * sizeof(float));
        tiny_assert_params(&r.m, 4);
    }
    segment_unref(old);
    rig_close(&r);
}

static void *start_again(void *ctx)
{
    struct rig *r = ctx;
    struct net_start start;
    return (void *)(uintptr_t)(net_exchange_start(r->m.x, &start) != ST_OK);
}

static void await_state(struct rig *r, enum session_state state)
{
    struct net_exchange *x = r->m.x;
    pthread_mutex_lock(&x->lock);
    while (x->session->state != state)
        pthread_cond_wait(&x->changed, &x->lock);
    pthread_mutex_unlock(&x->lock);
}

/* Opens the rig, and lets a generation end while answers are pending; `thread` starts the next one.
 * The server is stopped when the start has replaced the memory. Returns the number of pieces that
 * it had received before those whose answers are pending. */
static int end_with_pending_answers(struct rig *r, pthread_t *thread)
{
    struct net_start start;
    rig_open(r, 1, true);
    assert_int_equal(net_exchange_start(r->m.x, &start), ST_OK);
    tiny_step_on(&r->m, 0, 2);
    tiny_set(&r->tiny, &r->tiny.lose, 1);
    int before = tiny_get(&r->tiny, &r->tiny.n_piece);
    tiny_push_all(&r->m, 2);
    tiny_await(&r->tiny, &r->tiny.n_piece, before + MODEL_CHUNKS);
    tiny_rebase_late(&r->tiny, 0);
    assert_int_equal(net_exchange_wait(r->m.x, 0, 1, 3), ST_REBASED);
    assert_int_equal(pthread_create(thread, NULL, start_again, r), 0);
    await_state(r, SESSION_ASKING);
    tiny_stop(&r->tiny);
    r->tiny.lose = 0;
    return before;
}

/* A generation ends while some answers are pending, the stream breaks, and the server is joined
 * again for these answers. It cannot write to memory that the next generation uses. */
static void server_of_an_ending_generation_does_not_write(void **state)
{
    struct rig r;
    pthread_t thread;
    void *failed;
    int before = end_with_pending_answers(&r, &thread);
    int placed = n_placed(&r), joins = tiny_get(&r.tiny, &r.tiny.n_join);
    tiny_start(&r.tiny);
    tiny_await(&r.tiny, &r.tiny.n_piece, before + 2 * MODEL_CHUNKS - 1);
    tiny_await(&r.tiny, &r.tiny.n_join, joins + 2);
    assert_int_equal(n_placed(&r), placed);
    tiny_go_back(&r.tiny, 1);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    tiny_step_on(&r.m, 1, 4);
    tiny_assert_params(&r.m, 4);
    rig_close(&r);
}

/* A generation ends while answers are pending, and the server has already begun the next one when
 * it is joined again for these answers. It can write to the memory in this next generation. */
static void server_that_is_ahead_writes_again(void **state)
{
    struct rig r;
    pthread_t thread;
    void *failed;
    (void)end_with_pending_answers(&r, &thread);
    tiny_go_back(&r.tiny, 1);
    tiny_start(&r.tiny);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    int placed = n_placed(&r);
    tiny_step_on(&r.m, 1, 4);
    tiny_assert_params(&r.m, 4);
    assert_int_equal(n_placed(&r), placed + 3 * MODEL_CHUNKS);
    rig_close(&r);
}

/* A server has opened the memory, but its answer to the join was lost. */
static void memory_is_replaced_after_a_lost_answer(void **state)
{
    char why[SEGMENT_WHY_BYTES];
    struct rig r;
    struct net_start start;
    struct segment_name name;
    struct segment *lost;
    rig_open(&r, 1, true);
    segment_name_of(r.values, &name);
    assert_int_equal(segment_open_to_write(&name, &lost, why), ST_OK);
    assert_int_equal(net_exchange_start(r.m.x, &start), ST_OK);
    memset(segment_data(lost), 1, MODEL_ELEMS * sizeof(float));
    tiny_step_on(&r.m, 0, 2);
    tiny_assert_params(&r.m, 2);
    assert_int_equal(n_placed(&r), 2 * MODEL_CHUNKS);
    segment_unref(lost);
    rig_close(&r);
}

int main(void)
{
    return RUN_TESTS(server_writes_versions_to_params, memory_that_is_not_lent_is_not_written,
                     write_without_an_answer_does_not_count,
                     late_write_of_an_old_server_is_harmless,
                     server_of_an_ending_generation_does_not_write,
                     server_that_is_ahead_writes_again, memory_is_replaced_after_a_lost_answer);
}
