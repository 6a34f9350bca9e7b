/* ps/ending.c - see store.h: how a store ends, and how the next goes on from what it held.
 *
 * A chunk's `end` is the highest version that it makes. An announced end (lockstep) holds pushes'
 * answers that carry its version: so every member goes on until it has pushed that step's last
 * chunk, here and at the other servers, and nobody computes what would not count. When all servers
 * are there the stop is made final, and whoever waits is answered REBASE. Pulls are answered all
 * along: a member that comes back in the middle has to read what it redoes. Where chunks go each at
 * its own pace a member that waits at one would never bring another to its end: there every stop is
 * final.
 * Locks: a chunk's alone. */
#include "ps/cell.h"
#include <string.h>

int ps_cell_end(struct ps_store *s, struct cell *c)
{
    if (c->ended)
        return 0;
    c->ended = 1;
    return atomic_fetch_add(&s->n_ended, 1) + 1 == s->n_cells;
}

void ps_store_stop(struct ps_store *s, int64_t step)
{
    int now = step < 0 || !s->lockstep, last = s->n_cells == 0;
    if (now)
        atomic_store(&s->over, 1);
    for (int i = 0; i < s->n_cells; i++) {
        struct cell *c = &s->cells[i];
        pthread_mutex_lock(&c->lock);
        int64_t end = now ? c->version : step;
        if (end < c->end)
            c->end = end;
        if (c->version >= c->end)
            last |= ps_cell_end(s, c);
        int owes = now && c->ended;
        pthread_mutex_unlock(&c->lock);
        if (owes)
            ps_cell_answer_owed(s, c);
    }
    atomic_store(&s->stopping, 1);
    if (last && s->cfg.stopped)
        s->cfg.stopped(s->cfg.ctx);
}

int ps_store_stopped(const struct ps_store *s)
{
    return atomic_load(&s->stopping) && atomic_load(&s->n_ended) == s->n_cells;
}

void ps_store_hold_last(struct ps_store *s, int on)
{
    atomic_store(&s->hold_last, on);
    for (int i = 0; i < s->n_cells && !on; i++)
        ps_cell_answer_owed(s, &s->cells[i]);
}

enum status ps_store_take(struct ps_store *s, int chunk, int64_t step, struct ps_taken *out)
{
    const struct ps_version *v = NULL;
    if (chunk < 0 || chunk >= s->cfg.chunks->n_chunks || s->cell_of[chunk] < 0)
        return ST_NOT_FOUND;
    struct cell *c = &s->cells[s->cell_of[chunk]];
    pthread_mutex_lock(&c->lock);
    int exact = s->lockstep && step >= 0;
    if (!exact || step == c->version)
        v = &c->now;
    else if (step == c->version - 1)
        v = &c->before;
    if (v && v->value) {
        out->version = v == &c->now ? c->version : c->version - 1;
        out->value = buf_ref(v->value);
        out->slots = v->slots ? buf_ref(v->slots) : NULL;
    } else {
        v = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    return v ? ST_OK : ST_RANGE;
}

void ps_taken_drop(struct ps_taken *t)
{
    buf_unref(t->value);
    buf_unref(t->slots);
    t->value = t->slots = NULL;
}

/* The chunk's first version, whatever it had before. */
static void set_first(struct cell *c, struct ps_version *v, int64_t version)
{
    pthread_mutex_lock(&c->lock);
    ps_version_drop(&c->now);
    c->now = *v;
    c->version = version;
    pthread_mutex_unlock(&c->lock);
}

/* What lies in a segment stays out: members here have another one open. */
static enum status adopt_value(struct ps_store *s, struct cell *c, struct buf *value,
                               struct ps_version *v)
{
    enum dtype dtype = s->job.version_dtype;
    enum status st = ST_OK;
    if (value->shared) {
        st = ps_cell_take_version(s, c, v);
        if (st == ST_OK)
            memcpy(v->value->data, value->data, value->bytes);
        return st;
    }
    *v = (struct ps_version){.value = buf_ref(value), .dtype = dtype};
    if (dtype == DTYPE_F32)
        v->wire = buf_ref(value);
    else
        st = ps_pool_take(s->pool, s->n_cells + c->shelf, c->n * dtype_size(dtype), 1, &v->wire);
    if (st != ST_OK)
        ps_version_drop(v);
    return st;
}

enum status ps_store_give(struct ps_store *s, int chunk, const struct ps_taken *t)
{
    struct ps_version v;
    struct cell *c = &s->cells[s->cell_of[chunk]];
    enum status st = adopt_value(s, c, t->value, &v);
    if (st != ST_OK)
        return st;
    ps_cell_encode(c, &v);
    v.slots = t->slots ? buf_ref(t->slots) : NULL;
    set_first(c, &v, t->version);
    return ST_OK;
}

enum status ps_store_copy(struct ps_store *s, int chunk, const struct ps_copied *from)
{
    struct ps_version v;
    struct cell *c = &s->cells[s->cell_of[chunk]];
    if (from->n_value != c->n || from->n_slots != c->n * c->n_slots || from->version < 0)
        return ST_PROTOCOL;
    enum status st = ps_cell_take_version(s, c, &v);
    if (st != ST_OK)
        return st;
    memcpy(v.value->data, from->value, c->n * sizeof(float));
    if (c->n_slots > 0) {
        memcpy(c->now.slots->data, from->slots, from->n_slots * sizeof(float));
        v.slots = buf_ref(c->now.slots);
    }
    ps_cell_encode(c, &v);
    set_first(c, &v, from->version);
    return ST_OK;
}

enum status ps_store_load(struct ps_store *s,
                          enum status (*load)(void *ctx, int chunk, float *value, float *slots,
                                              int64_t *version),
                          void *ctx)
{
    enum status st = ST_OK;
    for (int i = 0; i < s->n_cells && st == ST_OK; i++) {
        struct cell *c = &s->cells[i];
        struct ps_version v;
        int64_t version;
        TRY(ps_cell_take_version(s, c, &v));
        v.slots = c->now.slots ? buf_ref(c->now.slots) : NULL;
        st = load(ctx, c->chunk, v.value->data, v.slots ? v.slots->data : NULL, &version);
        if (st == ST_OK) {
            ps_cell_encode(c, &v);
            set_first(c, &v, version);
        } else {
            ps_version_drop(&v);
        }
    }
done:
    return st;
}
