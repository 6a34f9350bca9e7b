/* ps/store/pool.c - see pool.h. The pool has a reference for its owner and one for every buffer in
 * use. Buffers in the segment are created when first needed and then kept until the end; a shelf
 * has room for them. */
#include "ps/store/pool.h"
#include "base/log.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct shelf {
    struct ps_pool *pool;
    pthread_mutex_t lock;
    struct buf *idle[PS_POOL_MAX_KEEP]; /* idle buffers; lock guards them and n_idle */
    int n_idle;
    /* offset of the first buffer in the segment; bytes from one buffer to the next */
    size_t offset, stride;
    /* number of places in the segment; number of places that were ever used; lock guards n_made */
    int n_places, n_made;
};

struct ps_pool {
    _Atomic int refs;
    int keep, n_shelves;
    _Atomic bool closed;    /* the owner has ended, and nothing is kept */
    _Atomic bool is_logged; /* a log line reported that the segment has no memory */
    struct shelf *shelves;
    struct segment *segment; /* NULL: none */
    /* number of users: the owner, and each buffer of the segment in use */
    _Atomic int segment_users;
};

static void pool_unref(struct ps_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < pool->n_shelves; i++)
        pthread_mutex_destroy(&pool->shelves[i].lock);
    free(pool->shelves);
    free(pool);
}

static void release_segment(struct ps_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->segment_users, 1, memory_order_acq_rel) == 1)
        segment_unref(pool->segment);
}

/* Removes an idle buffer that lies in the segment (or outside, if in_segment is zero): the one that
 * returned last. Returns NULL if there is no such buffer. The caller holds the lock. */
static struct buf *take_idle(struct shelf *s, int in_segment)
{
    int k = s->n_idle - 1;
    while (k >= 0 && !s->idle[k]->shared != !in_segment)
        k--;
    if (k < 0)
        return NULL;
    struct buf *b = s->idle[k];
    s->idle[k] = s->idle[--s->n_idle];
    return b;
}

static void put_back(struct buf *b, void *ctx)
{
    struct shelf *s = ctx;
    struct ps_pool *pool = s->pool;
    struct buf *surplus = b;
    bool is_shared =
        /* shared is read before the unlock: after it, another thread may use or free b */
        b->shared != 0;
    pthread_mutex_lock(&s->lock);
    int open = !atomic_load(&pool->closed);
    if (open && b->shared && s->n_idle == pool->keep)
        surplus = take_idle(s, 0);
    else if (open && s->n_idle < pool->keep)
        surplus = NULL;
    if (surplus != b)
        s->idle[s->n_idle++] = b;
    pthread_mutex_unlock(&s->lock);
    if (surplus)
        buf_free(surplus);
    if (is_shared)
        release_segment(pool);
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
    atomic_init(&pool->segment_users, 1);
    pool->keep = keep < PS_POOL_MAX_KEEP ? keep : PS_POOL_MAX_KEEP;
    for (; pool->n_shelves < n_shelves; pool->n_shelves++) {
        pool->shelves[pool->n_shelves].pool = pool;
        pthread_mutex_init(&pool->shelves[pool->n_shelves].lock, NULL);
    }
    *out = pool;
    return ST_OK;
}

void ps_pool_share(struct ps_pool *pool, int shelf, struct segment *segment, size_t offset,
                   size_t stride, int n)
{
    struct shelf *s = &pool->shelves[shelf];
    if (!pool->segment)
        pool->segment = segment_ref(segment);
    s->offset = offset;
    s->stride = stride;
    s->n_places = n < pool->keep ? n : pool->keep;
}

/* Returns the number of the shelf's next new place in the segment, or -1. The caller holds the
 * lock. */
static int next_place(struct shelf *s)
{
    return s->n_made < s->n_places ? s->n_made++ : -1;
}

/* Reserves the memory of a place. Returns false if the memory is lacking; the place is not tried
 * again. */
static bool reserve_place(struct ps_pool *pool, const struct shelf *s, int place)
{
    char why[SEGMENT_WHY_BYTES];
    size_t at = s->offset + (size_t)place * s->stride;
    if (segment_reserve(pool->segment, at, s->stride, why) == ST_OK)
        return true;
    if (!atomic_exchange(&pool->is_logged, 1))
        LOG_W("shared memory: %s; versions that do not fit there are sent by TCP", why);
    return false;
}

static enum status make_buf(struct ps_pool *pool, const struct shelf *s, int place, size_t bytes,
                            struct buf **out)
{
    if (place < 0 || !reserve_place(pool, s, place))
        return buf_create(bytes, out);
    size_t at = s->offset + (size_t)place * s->stride + SEGMENT_STAMP_BYTES;
    char *data = segment_data(pool->segment);
    return buf_create_shared(data + at, bytes, at + 1, out);
}

enum status ps_pool_take(struct ps_pool *pool, int shelf, size_t bytes, int to_lend,
                         struct buf **out)
{
    struct shelf *s = &pool->shelves[shelf];
    int place = -1;
    pthread_mutex_lock(&s->lock);
    struct buf *b = take_idle(s, to_lend);
    if (!b && to_lend) {
        place = next_place(s);
        if (place < 0)
            b = take_idle(s, 0);
    }
    pthread_mutex_unlock(&s->lock);
    if (!b) {
        enum status st = make_buf(pool, s, place, bytes, &b);
        if (st != ST_OK)
            return st;
        b->recycle = put_back;
        b->recycle_ctx = s;
    }
    if (b->shared) {
        atomic_fetch_add_explicit(&pool->segment_users, 1, memory_order_relaxed);
        segment_restamp(b->data);
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
    for (int i = 0; i < pool->n_shelves; i++) {
        struct shelf *s = &pool->shelves[i];
        pthread_mutex_lock(&s->lock);
        while (s->n_idle > 0)
            buf_free(s->idle[--s->n_idle]);
        pthread_mutex_unlock(&s->lock);
    }
    release_segment(pool);
    pool_unref(pool);
}
