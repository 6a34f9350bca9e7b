/* tests/base_thread_pool_test.c - each part of a loop runs once, on any thread; several threads run
 * loops simultaneously; a pool without threads; sleeping threads are woken; loops that are left to
 * the pool run in their order, and end before the pool does. */
#include "base/clock.h"
#include "base/thread_pool.h"
#include "tests/check.h"
#include <pthread.h>
#include <semaphore.h>
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
    sem_t end;
};

static void meet(void *ctx, int k)
{
    struct meeting *m = ctx;
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < 3 && !atomic_load(&m->late))
        if (clock_now_ns() > m->until)
            atomic_store(&m->late, 1);
}

static void end_meeting(void *ctx)
{
    sem_post(&((struct meeting *)ctx)->end);
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

struct started {
    struct thread_loop loop;
    _Atomic int parts;
    int parts_at_end, n_ended; /* n_ended: calls of `ended` */
};

static void count_part(void *ctx, int k)
{
    atomic_fetch_add(&((struct started *)ctx)->parts, 1);
}

static void note_end(void *ctx)
{
    struct started *s = ctx;
    s->parts_at_end = atomic_load(&s->parts);
    s->n_ended++;
}

static void started_loops_end_once_after_all_parts(void **state)
{
    enum { N_LOOPS = 200 };
    static struct started s[N_LOOPS];
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        struct thread_pool *p;
        memset(s, 0, sizeof s);
        assert_int_equal(thread_pool_create(n_threads, &p), ST_OK);
        for (int i = 0; i < N_LOOPS; i++) {
            s[i].loop = (struct thread_loop){.part = count_part,
                                             .ended = note_end,
                                             .ctx = &s[i],
                                             .n = 1 + i % 9,
                                             .order = i % 7};
            thread_pool_start(p, &s[i].loop);
        }
        thread_pool_destroy(p);
        for (int i = 0; i < N_LOOPS; i++) {
            assert_int_equal(s[i].n_ended, 1);
            assert_int_equal(s[i].parts_at_end, 1 + i % 9);
        }
    }
}

/* Parts wait for each other, so each thread must wake the next one, also after a sleep. */
static void all_threads_run_parts_of_a_started_loop(void **state)
{
    struct thread_pool *p;
    assert_int_equal(thread_pool_create(4, &p), ST_OK);
    for (int i = 0; i < 20; i++) {
        struct meeting m = {.until = clock_now_ns() + 60 * (int64_t)1000000000};
        struct thread_loop loop = {.part = meet, .ended = end_meeting, .ctx = &m, .n = 3};
        sem_init(&m.end, 0, 0);
        thread_pool_start(p, &loop);
        sem_wait(&m.end);
        sem_destroy(&m.end);
        assert_int_equal(m.late, 0);
        clock_sleep_ms(i % 3);
    }
    thread_pool_destroy(p);
}

enum { N_ORDERED = 4 };

/* The only thread of the pool holds `gate` shut until all loops are in the list. */
struct ordered {
    struct thread_loop loop;
    pthread_mutex_t *gate;
    int *n, *seen; /* orders of the parts that have run */
};

static void note_order(void *ctx, int k)
{
    struct ordered *o = ctx;
    pthread_mutex_lock(o->gate);
    o->seen[(*o->n)++] = o->loop.order;
    pthread_mutex_unlock(o->gate);
}

static void end_nothing(void *ctx)
{
}

static void loop_of_lowest_order_begins_first(void **state)
{
    static const int orders[N_ORDERED] = {0, 5, 2, 3}, expect[] = {0, 2, 2, 3, 3, 5, 5};
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    struct ordered o[N_ORDERED];
    struct thread_pool *p;
    int n = 0, seen[2 * N_ORDERED];
    assert_int_equal(thread_pool_create(2, &p), ST_OK);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < N_ORDERED; i++) {
        o[i] = (struct ordered){{.part = note_order,
                                 .ended = end_nothing,
                                 .ctx = &o[i],
                                 .n = i == 0 ? 1 : 2,
                                 .order = orders[i]},
                                &gate,
                                &n,
                                seen};
        thread_pool_start(p, &o[i].loop);
    }
    pthread_mutex_unlock(&gate);
    thread_pool_destroy(p);
    assert_int_equal(n, 2 * N_ORDERED - 1);
    assert_memory_equal(seen, expect, sizeof expect);
}

int main(void)
{
    return RUN_TESTS(each_part_runs_once, test_several_at_once, all_threads_run_parts,
                     started_loops_end_once_after_all_parts,
                     all_threads_run_parts_of_a_started_loop, loop_of_lowest_order_begins_first);
}
