/* tests/base_thread_pool_test.c - each part of a loop runs once, on any thread; several threads run
 * loops simultaneously; a pool without threads; sleeping threads are woken. */
#include "base/clock.h"
#include "base/thread_pool.h"
#include "tests/check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST = 1000, N_RUNNERS = 3, LOOPS = 2000 };

struct counts {
    _Atomic int runs[MOST];
    pthread_t self;
    _Atomic int by_others;
};

static void count(void *ctx, int k)
{
    struct counts *c = ctx;
    atomic_fetch_add(&c->runs[k], 1);
    if (!pthread_equal(c->self, pthread_self()))
        atomic_fetch_add(&c->by_others, 1);
}

static void run_loop(struct thread_pool *p, int n)
{
    static _Thread_local struct counts c;
    memset(&c, 0, sizeof c);
    c.self = pthread_self();
    thread_pool_run(p, n, count, &c);
    for (int k = 0; k < n; k++)
        assert_int_equal(c.runs[k], 1);
    if (!p)
        assert_int_equal(c.by_others, 0);
}

static void each_part_runs_once(void **state)
{
    for (int n_threads = 0; n_threads <= 5; n_threads++) {
        struct thread_pool *p;
        assert_int_equal(thread_pool_create(n_threads, &p), ST_OK);
        assert_true((p == NULL) == (n_threads <= 1));
        for (int n = 0; n <= MOST; n = n * 3 + 1)
            run_loop(p, n);
        thread_pool_destroy(p);
    }
}

static void *runner(void *arg)
{
    for (int i = 0; i < LOOPS; i++)
        run_loop(arg, 1 + i % 37);
    return NULL;
}

static void test_several_at_once(void **state)
{
    struct thread_pool *p;
    pthread_t thread[N_RUNNERS];
    assert_int_equal(thread_pool_create(4, &p), ST_OK);
    for (int i = 0; i < N_RUNNERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, runner, p), 0);
    for (int i = 0; i < N_RUNNERS; i++)
        pthread_join(thread[i], NULL);
    thread_pool_destroy(p);
}

struct meeting {
    _Atomic int here;
    int64_t until;
    _Atomic int late;
};

static void meet(void *ctx, int k)
{
    struct meeting *m = ctx;
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < 3 && !atomic_load(&m->late))
        if (clock_now_ns() > m->until)
            atomic_store(&m->late, 1);
}

/* Parts wait for each other, so all three threads must run, also after a sleep. */
static void all_threads_run_parts(void **state)
{
    struct thread_pool *p;
    assert_int_equal(thread_pool_create(3, &p), ST_OK);
    for (int i = 0; i < 20; i++) {
        struct meeting m = {.until = clock_now_ns() + 60 * (int64_t)1000000000};
        thread_pool_run(p, 3, meet, &m);
        assert_int_equal(m.late, 0);
        clock_sleep_ms(i % 3);
    }
    thread_pool_destroy(p);
}

int main(void)
{
    return RUN_TESTS(each_part_runs_once, test_several_at_once, all_threads_run_parts);
}
