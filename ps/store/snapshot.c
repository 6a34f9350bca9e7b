/* ps/store/snapshot.c - see snapshot.h. A chunk that has not reached the snapshot's version points
 * to the snapshot; the code that handles pieces reads only this pointer.
 * Locks:   a chunk's alone. */
#include "ps/store/snapshot.h"
#include "base/log.h"
#include "ps/store/chunk_state.h"
#include "ps/store/versions.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

struct snapshot {
    struct store *store;
    void (*done)(void *ctx);
    void *ctx;
    int64_t step;
    _Atomic int n_left;           /* chunks that are not held yet */
    struct snapshot_chunk *chunk; /* [n_owned] entries, each guarded by its chunk's lock */
};

enum status snapshot_create(struct store *store, void (*done)(void *ctx), void *ctx,
                            struct snapshot **out)
{
    struct snapshot *s = calloc(1, sizeof *s);
    uint64_t *samples = NULL;
    if (s)
        s->chunk = calloc((size_t)store->n_owned + 1, sizeof *s->chunk);
    if (s && s->chunk && store->samples)
        samples = calloc(ps_samples_room(store->samples), sizeof *samples);
    if (!s || !s->chunk || (store->samples && !samples)) {
        LOG_E("no memory for a table of %d chunks, which checkpoints need", store->n_owned);
        snapshot_destroy(s);
        return ST_NOMEM;
    }
    s->store = store;
    if (samples)
        s->chunk[store->shelf_of[0]].samples = samples;
    s->done = done;
    s->ctx = ctx;
    for (int i = 0; i < store->n_owned; i++)
        s->chunk[i].chunk = store->owned[i].chunk;
    *out = s;
    return ST_OK;
}

void snapshot_destroy(struct snapshot *s)
{
    if (!s)
        return;
    if (s->store)
        snapshot_end(s);
    for (int i = 0; s->store && i < s->store->n_owned; i++)
        free(s->chunk[i].samples);
    free(s->chunk);
    free(s);
}

/* Holds version `number` of a bucket. The store of another generation may have made versions with
 * the same numbers, if they are before this store's first one, or after a version that this store
 * has handed over. */
static bool hold_bucket(struct snapshot_chunk *to, const struct chunk_rows *r, int64_t number)
{
    if (!r->shared || number < r->first || (r->held >= 0 && number != r->held))
        return false;
    pthread_mutex_lock(&r->shared->lock);
    enum status st = bucket_hold(r->shared->bucket, (uint64_t)number);
    pthread_mutex_unlock(&r->shared->lock);
    if (st != ST_OK)
        return false;
    to->version = number;
    to->bucket = shared_bucket_ref(r->shared);
    return true;
}

static void release_bucket(struct shared_bucket *bucket, int64_t version)
{
    if (!bucket)
        return;
    pthread_mutex_lock(&bucket->lock);
    bucket_release(bucket->bucket, (uint64_t)version);
    pthread_mutex_unlock(&bucket->lock);
    shared_bucket_unref(bucket);
}

/* Holds version `number` of the chunk. Returns false if the chunk does not keep that version. The
 * caller holds the chunk's lock. */
static bool hold(struct snapshot *s, const struct chunk_state *c, int64_t number)
{
    struct snapshot_chunk *to = &s->chunk[c->shelf];
    struct chunk_version held;
    if (c->rows)
        return hold_bucket(to, c->rows, number);
    if (!version_hold(c, number, &held))
        return false;
    to->version = number;
    to->value = held.value;
    to->slots = held.slots;
    to->idle = held.idle;
    if (to->samples)
        to->n_samples = ps_samples_list(s->store->samples, to->samples);
    return true;
}

static void count_down(struct snapshot *s)
{
    if (atomic_fetch_sub(&s->n_left, 1) == 1)
        s->done(s->ctx);
}

void snapshot_chunk_changed(struct chunk_state *c)
{
    struct snapshot *s = c->snapshot;
    if (c->version < s->step)
        return;
    c->snapshot = NULL;
    hold(s, c, c->version);
    count_down(s);
}

/* Holds the chunk's version at once, or when it is made. Returns false if the version is no longer
 * kept, or will never be made. */
static bool take_or_await(struct snapshot *s, struct chunk_state *c)
{
    int64_t number = s->store->lockstep || c->version < s->step ? s->step : c->version;
    bool held = hold(s, c, number);
    int comes = c->version < s->step && !c->is_stopped && s->step <= s->store->job.train_steps;
    if (held)
        count_down(s);
    else if (comes)
        c->snapshot = s;
    return held || comes;
}

enum status snapshot_begin(struct snapshot *s, int64_t step)
{
    struct store *store = s->store;
    int ok = 1;
    s->step = step;
    atomic_store(&s->n_left, store->n_owned + 1); /* plus 1 until this function ends */
    for (int i = 0; i < store->n_owned && ok; i++) {
        struct chunk_state *c = &store->owned[i];
        pthread_mutex_lock(&c->lock);
        ok = take_or_await(s, c);
        int64_t version = c->version;
        pthread_mutex_unlock(&c->lock);
        if (!ok)
            LOG_D("no snapshot at step %" PRId64 ": chunk %d is at version %" PRId64
                  ", so that step is past or will never be reached",
                  step, c->chunk, version);
    }
    if (!ok) {
        snapshot_end(s);
        return ST_RANGE;
    }
    count_down(s);
    return ST_OK;
}

void snapshot_release_bucket(struct snapshot *s, int i)
{
    release_bucket(s->chunk[i].bucket, s->chunk[i].version);
    s->chunk[i].bucket = NULL;
}

void snapshot_end(struct snapshot *s)
{
    for (int i = 0; i < s->store->n_owned; i++) {
        struct chunk_state *c = &s->store->owned[i];
        pthread_mutex_lock(&c->lock);
        c->snapshot = NULL;
        struct buf *value = s->chunk[i].value, *slots = s->chunk[i].slots;
        struct buf *idle = s->chunk[i].idle;
        struct shared_bucket *bucket = s->chunk[i].bucket;
        s->chunk[i].value = s->chunk[i].slots = s->chunk[i].idle = NULL;
        s->chunk[i].bucket = NULL;
        pthread_mutex_unlock(&c->lock);
        release_bucket(bucket, s->chunk[i].version);
        buf_unref(value);
        buf_unref(slots);
        buf_unref(idle);
    }
}

const struct snapshot_chunk *snapshot_chunks(const struct snapshot *s, int *n)
{
    *n = s->store->n_owned;
    return s->chunk;
}
