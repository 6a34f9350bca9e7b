/* ps/store/handover.c - see store.h: ends a store, and fills the next one from it.
 *
 * A stop is final: each chunk keeps the version that it has, or that an update is just making, and
 * sends REBASE to every piece that waits there or arrives later. After REBASE for any chunk, a
 * member may overwrite all its contributions in shared memory. So REBASE is sent only when no
 * update reads a contribution any more. The versions of two chunks may then differ by a step; the
 * next generation begins at the last step that is complete on every server.
 * Locks:   a chunk's, the store's lock of n_updates; never both. */
#include "ps/store/handover.h"
#include "ps/store/answers.h"
#include "ps/store/chunk_state.h"
#include "ps/store/handover_rows.h"
#include "ps/store/versions.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Two threads may stop a store at the same time: when either returns, all chunks are stopped and
 * no update is under way. */
void handover_stop(struct store *s)
{
    for (int i = 0; i < s->n_owned; i++) {
        struct chunk_state *c = &s->owned[i];
        pthread_mutex_lock(&c->lock);
        c->is_stopped = true;
        pthread_mutex_unlock(&c->lock);
    }
    chunk_update_await_all(s);
    atomic_store(&s->sends_rebase, true);
    for (int i = 0; i < s->n_owned; i++)
        answer_owed(s, &s->owned[i]);
    if (!atomic_exchange(&s->is_stopped, true) && s->cfg.stopped)
        s->cfg.stopped(s->cfg.ctx);
}

bool handover_is_stopped(const struct store *s)
{
    return atomic_load(&s->is_stopped);
}

void handover_hold_last(struct store *s, int on)
{
    atomic_store(&s->hold_last, on);
    for (int i = 0; i < s->n_owned && !on; i++)
        answer_owed(s, &s->owned[i]);
}

void handover_empty(struct store *s)
{
    for (int i = 0; i < s->n_owned; i++) {
        struct chunk_state *c = &s->owned[i];
        pthread_mutex_lock(&c->lock);
        store_empty_chunk(s, c);
        pthread_mutex_unlock(&c->lock);
    }
    ps_pool_destroy(s->pool); /* stopped chunks need no further buffers */
    s->pool = NULL;
}

static enum status take_samples(const struct store *s, struct handover_chunk *out)
{
    if (!s->samples)
        return ST_OK;
    out->samples = malloc(ps_samples_room(s->samples) * sizeof *out->samples);
    if (!out->samples)
        return ST_NOMEM;
    out->n_samples = ps_samples_list(s->samples, out->samples);
    return ST_OK;
}

enum status handover_set_samples(struct store *s, const uint64_t *list, size_t n)
{
    return s->samples && n > 0 ? ps_samples_set(s->samples, list, n) : ST_OK;
}

enum status handover_take(struct store *s, int chunk, int64_t step, struct handover_chunk *out)
{
    if (chunk < 0 || chunk >= s->cfg.chunks->n_chunks || s->shelf_of[chunk] < 0)
        return ST_NOT_FOUND;
    struct chunk_state *c = &s->owned[s->shelf_of[chunk]];
    if (c->rows)
        return handover_take_rows(s, c, step, out);
    struct handover_chunk t = {.version = -1};
    struct chunk_version held;
    enum status st = ST_RANGE;
    pthread_mutex_lock(&c->lock);
    int64_t number = s->lockstep && step >= 0 ? step : c->version;
    if (version_is_kept(c, number))
        st = chunk == 0 ? take_samples(s, &t) : ST_OK;
    if (st == ST_OK && version_hold(c, number, &held)) {
        t.version = number;
        t.value = held.value;
        t.slots = held.slots;
        t.idle = held.idle;
        *out = t;
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

void handover_drop(struct handover_chunk *t)
{
    buf_unref(t->value);
    buf_unref(t->slots);
    buf_unref(t->idle);
    shared_bucket_unref(t->bucket);
    free(t->samples);
    *t = (struct handover_chunk){.version = -1};
}

/* Sets the chunk's first version, and replaces any version that it had. */
static void set_first(struct chunk_state *c, struct chunk_version *v, int64_t version)
{
    pthread_mutex_lock(&c->lock);
    chunk_version_drop(&c->present);
    c->present = *v;
    c->version = version;
    pthread_mutex_unlock(&c->lock);
}

/* Uses the value by reference, unless it is in a shared-memory segment: the members of this
 * store have a different segment open. */
static enum status adopt_value(struct store *s, struct chunk_state *c, struct buf *value,
                               struct chunk_version *v)
{
    enum dtype dtype = c->version_dtype;
    enum status st = ST_OK;
    if (value->shared) {
        st = version_reserve(s, c, v);
        if (st == ST_OK)
            memcpy(v->value->data, value->data, value->bytes);
        return st;
    }
    *v = (struct chunk_version){.value = buf_ref(value), .dtype = dtype};
    if (dtype == DTYPE_F32)
        v->wire = buf_ref(value);
    else
        st = ps_pool_take(s->pool, s->n_owned + c->shelf, dtype_bytes(dtype, c->n), 1, &v->wire);
    if (st != ST_OK)
        chunk_version_drop(v);
    return st;
}

enum status handover_give(struct store *s, int chunk, const struct handover_chunk *t)
{
    struct chunk_version v;
    struct chunk_state *c = &s->owned[s->shelf_of[chunk]];
    enum status st = ST_OK;
    if (c->rows)
        return handover_give_rows(s, c, t);
    if (chunk == 0)
        st = handover_set_samples(s, t->samples, t->n_samples);
    if (st == ST_OK)
        st = adopt_value(s, c, t->value, &v);
    if (st != ST_OK)
        return st;
    version_encode(c, &v);
    v.slots = t->slots ? buf_ref(t->slots) : NULL;
    v.idle = t->idle ? buf_ref(t->idle) : NULL;
    set_first(c, &v, t->version);
    return ST_OK;
}

/* Makes the buffer of the counts of idle updates. Each count is at most the chunk's version. */
static enum status copy_idle(const struct chunk_state *c, const uint64_t *idle, size_t n,
                             int64_t version, struct buf **out)
{
    *out = NULL;
    for (size_t k = 0; k < n; k++)
        if (n != (size_t)c->n_params || idle[k] > (uint64_t)version)
            return ST_PROTOCOL;
    if (n == 0 || c->n_slots == 0)
        return ST_OK;
    enum status st = buf_create(n * sizeof *idle, out);
    if (st == ST_OK)
        memcpy((*out)->data, idle, n * sizeof *idle);
    return st;
}

enum status handover_set_idle(struct store *s, int chunk, const uint64_t *idle, size_t n)
{
    struct chunk_state *c = &s->owned[s->shelf_of[chunk]];
    pthread_mutex_lock(&c->lock);
    buf_unref(c->present.idle);
    enum status st = copy_idle(c, idle, n, c->version, &c->present.idle);
    pthread_mutex_unlock(&c->lock);
    return st;
}

enum status handover_copy(struct store *s, int chunk, const struct handover_copied *from)
{
    struct chunk_version v;
    struct chunk_state *c = &s->owned[s->shelf_of[chunk]];
    if (from->n_value != c->n || from->n_slots != c->n * c->n_slots || from->version < 0)
        return ST_PROTOCOL;
    enum status st = ST_OK;
    if (chunk == 0)
        st = handover_set_samples(s, from->samples, from->n_samples);
    struct buf *counts = NULL;
    if (st == ST_OK)
        st = copy_idle(c, from->idle, from->n_idle, from->version, &counts);
    if (st == ST_OK)
        st = version_reserve(s, c, &v);
    if (st != ST_OK) {
        buf_unref(counts);
        return st;
    }
    v.idle = counts;
    memcpy(v.value->data, from->value, c->n * sizeof(float));
    if (c->n_slots > 0) {
        memcpy(c->present.slots->data, from->slots, from->n_slots * sizeof(float));
        v.slots = buf_ref(c->present.slots);
    }
    version_encode(c, &v);
    set_first(c, &v, from->version);
    return ST_OK;
}

enum status handover_load(struct store *s,
                          enum status (*load)(void *ctx, int chunk, float *value, float *slots,
                                              int64_t *version),
                          void *ctx)
{
    enum status st = ST_OK;
    for (int i = 0; i < s->n_owned && st == ST_OK; i++) {
        struct chunk_state *c = &s->owned[i];
        struct chunk_version v;
        int64_t version;
        if (c->rows)
            continue; /* handover_add fills it */
        TRY(version_reserve(s, c, &v));
        v.slots = c->present.slots ? buf_ref(c->present.slots) : NULL;
        st = load(ctx, c->chunk, v.value->data, v.slots ? v.slots->data : NULL, &version);
        if (st == ST_OK) {
            version_encode(c, &v);
            set_first(c, &v, version);
        } else {
            chunk_version_drop(&v);
        }
    }
done:
    return st;
}
