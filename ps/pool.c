/* ps/pool.c - see pool.h. The pool counts its owner and every buffer that is out. */
#include "ps/pool.h"
#include <pthread.h>
#include <stdlib.h>

struct shelf {
    struct ps_pool *pool;
    pthread_mutex_t lock;
    struct buf *idle[PS_POOL_MAX_KEEP]; /* guarded by lock, as n_idle */
    int n_idle;
};

struct ps_pool {
    _Atomic int refs;
    int keep, n_shelves;
    _Atomic int closed; /* the owner has gone: nothing is kept any more */
    struct shelf *shelves;
};

static void pool_unref(struct ps_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < pool->n_shelves; i++) {
        struct shelf *s = &pool->shelves[i];
        for (int k = 0; k < s->n_idle; k++)
            buf_free(s->idle[k]);
        pthread_mutex_destroy(&s->lock);
    }
    free(pool->shelves);
    free(pool);
}

static void put_back(struct buf *b, void *ctx)
{
    struct shelf *s = ctx;
    struct ps_pool *pool = s->pool;
    pthread_mutex_lock(&s->lock);
    int kept = s->n_idle < pool->keep && !atomic_load(&pool->closed);
    if (kept)
        s->idle[s->n_idle++] = b;
    pthread_mutex_unlock(&s->lock);
    if (!kept)
        buf_free(b);
    pool_unref(pool);
}

enum status ps_pool_create(int n_shelves, int keep, struct ps_pool **out)
{
    struct ps_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return ST_NOMEM;
    pool->shelves = calloc((size_t)n_shelves + 1, sizeof *pool->shelves);
    if (!pool->shelves) {
        free(pool);
        return ST_NOMEM;
    }
    atomic_init(&pool->refs, 1);
    pool->keep = keep < PS_POOL_MAX_KEEP ? keep : PS_POOL_MAX_KEEP;
    for (; pool->n_shelves < n_shelves; pool->n_shelves++) {
        pool->shelves[pool->n_shelves].pool = pool;
        pthread_mutex_init(&pool->shelves[pool->n_shelves].lock, NULL);
    }
    *out = pool;
    return ST_OK;
}

enum status ps_pool_take(struct ps_pool *pool, int shelf, size_t bytes, struct buf **out)
{
    struct shelf *s = &pool->shelves[shelf];
    struct buf *b = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->n_idle > 0)
        b = s->idle[--s->n_idle];
    pthread_mutex_unlock(&s->lock);
    if (!b) {
        enum status st = buf_create(bytes, &b);
        if (st != ST_OK)
            return st;
        b->recycle = put_back;
        b->recycle_ctx = s;
    }
    atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
    *out = b;
    return ST_OK;
}

void ps_pool_destroy(struct ps_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->closed, 1);
    pool_unref(pool);
}
