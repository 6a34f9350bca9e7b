/* base/thread_pool.c - see thread_pool.h. A loop stays in the pool's list, which is sorted by
 * `order`, until its last part has begun. Waking a sleeping thread lasts about as long as running a
 * part. So, if the pool leaves at least two cores to other threads, a thread spins for SPIN_NS
 * before it sleeps. A caller spins until the last part of its loop ends, and up to a quarter of the
 * pool's threads spin until there is a loop. The start of a loop wakes one thread, and each thread
 * wakes another one if further parts wait, so that the caller loses little time. */
#include "base/thread_pool.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/threads.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SPIN_NS = 50000, LOOKS = 64 };

struct thread_pool {
    pthread_mutex_t lock;
    pthread_cond_t work, ended;
    struct thread_loop *first; /* loops with parts that have not begun */
    _Atomic int n_open;        /* number of loops in that list */
    int stop, n;
    /* highest number of threads that may spin at the same time until there is a loop */
    int most_spinning;
    /* n_spinning: threads that spin until there is a loop; n_asleep: threads that wait for
     * `work` */
    int n_spinning, n_asleep;
    pthread_t thread[];
};

/* Spins, for SPIN_NS at most, until *value is zero (until = 0) or not zero (until = 1). Returns 1
 * if this has happened, otherwise 0. */
static int spin(const _Atomic int *value, int until)
{
    int64_t end = clock_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < LOOKS; i++)
            if ((atomic_load_explicit(value, memory_order_acquire) != 0) == until)
                return 1;
    } while (clock_now_ns() < end);
    return 0;
}

/* Returns the next part of the loop that has not begun; -1: all parts have begun. The caller holds
 * the lock. */
static int take(struct thread_pool *p, struct thread_loop *l)
{
    if (l->next == l->n)
        return -1;
    int k = l->next++;
    if (l->next == l->n) {
        struct thread_loop **at = &p->first;
        while (*at != l)
            at = &(*at)->after;
        *at = l->after;
        atomic_fetch_sub(&p->n_open, 1);
    }
    return k;
}

/* Runs part k. The loop's owner may free `l` as soon as its last part has ended. */
static void run_part(struct thread_pool *p, struct thread_loop *l, int k)
{
    void (*ended)(void *ctx) = l->ended;
    void *ctx = l->ctx;
    l->part(ctx, k);
    if (atomic_fetch_sub(&l->left, 1) > 1)
        return;
    if (ended) {
        ended(ctx);
        return;
    }
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->ended);
    pthread_mutex_unlock(&p->lock);
}

/* Wakes threads for n parts, unless spinning threads will run them. The caller holds the lock. */
static void wake(struct thread_pool *p, int n)
{
    for (int i = p->n_spinning; i < n && i - p->n_spinning < p->n_asleep; i++)
        pthread_cond_signal(&p->work);
}

/* Waits for a loop, or for the end. The caller holds the lock. */
static void await_work(struct thread_pool *p) REQUIRES(p->lock)
{
    if (p->n_spinning < p->most_spinning) {
        p->n_spinning++;
        pthread_mutex_unlock(&p->lock);
        int found = spin(&p->n_open, 1);
        pthread_mutex_lock(&p->lock);
        p->n_spinning--;
        if (found || p->first || p->stop)
            return;
    }
    p->n_asleep++;
    pthread_cond_wait(&p->work, &p->lock);
    p->n_asleep--;
}

static void *thread_main(void *arg)
{
    struct thread_pool *p = arg;
    pthread_mutex_lock(&p->lock);
    while (p->first || !p->stop) {
        struct thread_loop *l = p->first;
        if (!l) {
            await_work(p);
            continue;
        }
        int k = take(p, l);
        wake(p, p->first ? 1 : 0);
        pthread_mutex_unlock(&p->lock);
        run_part(p, l, k);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum status thread_pool_create(int n_threads, struct thread_pool **out)
{
    int error;
    *out = NULL;
    if (n_threads <= 1)
        return ST_OK;
    struct thread_pool *p = calloc(1, sizeof *p + (size_t)(n_threads - 1) * sizeof *p->thread);
    if (!p)
        return ST_NOMEM;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->ended, NULL);
    p->most_spinning = n_threads + 1 <= cores_usable().n ? 1 + n_threads / 4 : 0;
    for (; p->n < n_threads - 1; p->n++)
        if ((error = pthread_create(&p->thread[p->n], NULL, thread_main, p)) != 0) {
            LOG_W(
                "%d of %d threads that share large loops could not be started (%s): the other threads do their work",
                n_threads - 1 - p->n, n_threads - 1, threads_error(error));
            break;
        }
    if (p->n > 0) {
        *out = p;
        return ST_OK;
    }
    thread_pool_destroy(p);
    return ST_OK;
}

void thread_pool_destroy(struct thread_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->ended);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Adds the loop to the list after the loops with the same order. The caller holds the lock. */
static void add(struct thread_pool *p, struct thread_loop *l)
{
    struct thread_loop **at = &p->first;
    while (*at && (*at)->order <= l->order)
        at = &(*at)->after;
    l->after = *at;
    *at = l;
    atomic_fetch_add(&p->n_open, 1);
}

void thread_pool_start(struct thread_pool *p, struct thread_loop *loop)
{
    loop->next = 0;
    atomic_store(&loop->left, loop->n);
    pthread_mutex_lock(&p->lock);
    add(p, loop);
    wake(p, 1);
    pthread_mutex_unlock(&p->lock);
}

void thread_pool_run(struct thread_pool *p, int n, void (*part)(void *ctx, int k), void *ctx)
{
    struct thread_loop l = {.part = part, .ctx = ctx, .n = n, .left = n};
    if (!p || n < 2) {
        for (int k = 0; k < n; k++)
            part(ctx, k);
        return;
    }
    pthread_mutex_lock(&p->lock);
    add(p, &l);
    wake(p, n - 1);
    for (int k; (k = take(p, &l)) >= 0;) {
        pthread_mutex_unlock(&p->lock);
        run_part(p, &l, k);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    if (p->most_spinning > 0 && spin(&l.left, 0))
        return;
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&l.left) > 0)
        pthread_cond_wait(&p->ended, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
