/* ps/store/versions.c - see chunk_state.h: contributions, and the versions that they make. The
 * buffers of a new version are allocated before anything changes. All functions run under the
 * chunk's lock.
 * Locks:   (inside buf_unref and ps_pool_take) the pool's. */
#include "ps/store/versions.h"
#include "base/trace.h"
#include "net/wire/fragments.h"
#include "ps/store/chunk_state.h"
#include "ps/store/outer.h"
#include <stdbool.h>
#include <string.h>

const struct chunk_version *version_find(const struct chunk_state *c, int64_t number)
{
    const struct chunk_version *v = NULL;
    if (number == c->version)
        v = &c->present;
    else if (number == c->version - 1)
        v = &c->previous;
    return v && v->value ? v : NULL; /* the first version after a restore has no predecessor */
}

bool version_is_kept(const struct chunk_state *c, int64_t number)
{
    if (c->rows)
        return number >= 0 && chunk_rows_is_readable(c->rows, (uint64_t)number);
    return version_find(c, number) != NULL;
}

bool version_hold(const struct chunk_state *c, int64_t number, struct chunk_version *out)
{
    const struct chunk_version *v = version_find(c, number);
    if (!v)
        return false;
    *out = (struct chunk_version){.value = buf_ref(v->value),
                                  .slots = v->slots ? buf_ref(v->slots) : NULL,
                                  .idle = v->idle ? buf_ref(v->idle) : NULL};
    return true;
}

void version_drop_all(struct chunk_state *c)
{
    chunk_version_drop(&c->present);
    chunk_version_drop(&c->previous);
    chunk_version_drop(&c->next);
    c->pending = CHUNK_PENDING_NONE;
}

/* Provides the buffer of the next version's slots: in lockstep the buffer of the previous version,
 * which ends then; in other modes that of the present version, which is overwritten. If another
 * reader holds that buffer, a new one is allocated. */
static enum status take_slots(struct store *s, const struct chunk_state *c, struct buf **slots)
{
    struct buf *used = s->lockstep ? c->previous.slots : c->present.slots;
    if (c->n_slots == 0)
        return ST_OK;
    if (used && atomic_load(&used->refs) == 1) {
        *slots = buf_ref(used);
        return ST_OK;
    }
    return ps_pool_take(s->pool, 2 * s->n_owned + c->shelf, c->n_slots * c->n * sizeof(float), 0,
                        slots);
}

/* Leaves *v empty if it returns ST_NOMEM. */
enum status version_reserve(struct store *s, const struct chunk_state *c, struct chunk_version *v)
{
    enum dtype dtype = c->version_dtype;
    *v = (struct chunk_version){.dtype = dtype};
    enum status st =
        ps_pool_take(s->pool, c->shelf, c->n * sizeof(float), dtype == DTYPE_F32, &v->value);
    if (st != ST_OK)
        return st;
    if (dtype == DTYPE_F32)
        v->wire = buf_ref(v->value);
    else
        st = ps_pool_take(s->pool, s->n_owned + c->shelf, dtype_bytes(dtype, c->n), 1, &v->wire);
    if (st != ST_OK)
        chunk_version_drop(v);
    return st;
}

void version_encode(const struct chunk_state *c, struct chunk_version *v)
{
    if (dtype_block(v->dtype) > 1) { /* a first version is no change, so it has no wire form */
        buf_unref(v->wire);
        v->wire = NULL;
    } else if (v->wire != v->value) {
        dtype_encode(v->dtype, v->wire->data, v->value->data, c->n);
    }
}

/* Returns true if the next version equals the present one, as the chunk has no turn. Never true in
 * a region's store, which changes the values of versions that wait. */
static bool is_kept(const struct store *s, const struct chunk_state *c)
{
    return !s->cfg.outer && !fragments_turn(&s->job, s->fragment, c->chunk, c->version);
}

/* Provides the buffer of the next version's counts of idle updates: that of the present version, or
 * a copy if the counts may change. */
static enum status take_idle(const struct chunk_state *c, bool may_change, struct buf **idle)
{
    const struct buf *used = c->present.idle;
    size_t bytes = (size_t)c->n_params * sizeof(uint64_t);
    if (!may_change) {
        *idle = c->present.idle ? buf_ref(c->present.idle) : NULL;
        return ST_OK;
    }
    enum status st = buf_create(bytes, idle);
    if (st == ST_OK && used)
        memcpy((*idle)->data, used->data, bytes);
    else if (st == ST_OK)
        memset((*idle)->data, 0, bytes);
    return st;
}

/* Provides the buffers of the next version: those of the present one if it is kept, else new ones.
 * may_lack: the contributions may all lack a gradient. */
static enum status take_next(struct store *s, const struct chunk_state *c, bool may_lack,
                             struct chunk_version *next)
{
    enum status st = ST_OK;
    if (is_kept(s, c)) {
        *next = c->present;
        next->kept = 1;
        next->value = buf_ref(next->value);
        next->wire = next->wire && dtype_block(next->dtype) == 1 ? buf_ref(next->wire) : NULL;
        next->slots = next->slots ? buf_ref(next->slots) : NULL;
        return take_idle(c, false, &next->idle);
    }
    TRY(version_reserve(s, c, next));
    TRY(take_slots(s, c, &next->slots));
    TRY(take_idle(c, may_lack && c->n_slots > 0, &next->idle));
done:
    return st;
}

static bool gives_samples(const struct store *s, const struct chunk_state *c)
{
    return s->samples && c->chunk == 0;
}

static void make_version(struct store *s, struct chunk_state *c, const struct chunk_version *next)
{
    chunk_version_drop(&c->previous);
    c->previous = c->present;
    c->present = *next;
    if (!s->lockstep) {
        buf_unref(c->previous.slots);
        c->previous.slots = NULL;
    }
    c->version++;
    /* the contribution is counted here, before a snapshot lists the samples */
    if (gives_samples(s, c))
        ps_samples_made(s->samples);
    if (c->snapshot)
        snapshot_chunk_changed(c);
    aggregate_reset(&c->sum);
}

/* Makes the chunk wait for the norm, once all contributions have arrived. The previous version ends
 * now (chunk_update_begin). */
static void await_norm(struct chunk_state *c, const struct chunk_version *next)
{
    chunk_version_drop(&c->previous);
    c->next = *next;
    c->squares = c->param->rule == PARAM_AVERAGE ? 0 : aggregate_squares(&c->sum);
    c->pending = CHUNK_PENDING_NORM;
}

bool version_make(struct store *s, struct chunk_state *c, const struct chunk_version *next)
{
    const struct outer_hooks *outer = s->cfg.outer;
    int64_t version = c->version + 1;
    int waits = outer && outer->waits(outer->ctx, version, s->job.train_steps);
    if (waits) {
        chunk_version_drop(&c->previous);
        c->next = *next;
        c->pending = CHUNK_PENDING_OUTER;
    } else {
        make_version(s, c, next);
    }
    if (outer)
        outer->made(outer->ctx, c->chunk, version, waits, next->value);
    return !waits;
}

void version_make_adopted(struct store *s, struct chunk_state *c)
{
    struct chunk_version next = c->next;
    c->next = (struct chunk_version){.value = NULL};
    c->pending = CHUNK_PENDING_NONE;
    version_encode(c, &next);
    next.summed = 0;
    make_version(s, c, &next);
}

void version_set_first(struct chunk_state *c, struct chunk_version *v, int64_t version)
{
    version_encode(c, v);
    v->slots = c->present.slots;
    c->present = *v;
    c->version = version;
    if (c->snapshot)
        snapshot_chunk_changed(c);
}

bool version_begin_clipped(struct store *s, struct chunk_state *c, int64_t step, double factor)
{
    if (c->pending != CHUNK_PENDING_NORM || c->version != step || c->is_stopped)
        return false;
    const struct chunk_version next = c->next;
    chunk_update_begin(s, c, factor, &next, -1, NULL);
    return true;
}

enum status version_contribute(struct store *s, struct chunk_state *c,
                               const struct contribution *from, int *made, size_t *bad)
{
    struct chunk_version next = {.value = NULL};
    const struct aggregate before = c->sum;
    enum status st = ST_OK;
    int64_t begin = trace_begin();
    if (c->sum.n_counted + 1 == c->sum.n_members)
        TRY(take_next(s, c, aggregate_may_lack(&c->sum, from->weight, from->lacking), &next));
    const struct aggregate_term term = {from->slot, from->payload, from->weight, from->lacking};
    TRY(aggregate_add(&c->sum, &term, from->now_ns, bad));
    trace_end(begin, TRACE_AGGREGATE, "aggregate", NULL, c->chunk, c->version);
    *bad = SIZE_MAX;
    if (next.value && s->norm) {
        await_norm(c, &next);
        return ST_OK;
    }
    if (next.value && !next.kept && s->lockstep) {
        chunk_update_begin(s, c, 1, &next, from->member, &before);
        return ST_OK;
    }
    if (next.value && !next.kept)
        *bad = chunk_update_run(s, c, from->base, &next);
    if (*bad != SIZE_MAX) { /* the last contribution is bad: earlier ones were checked on arrival */
        c->sum = before;
        st = ST_INVALID;
        goto done;
    }
    if (gives_samples(s, c))
        ps_samples_counted(s->samples, from->member);
    *made = next.value && version_make(s, c, &next);
    return ST_OK;
done:
    chunk_version_drop(&next);
    return st;
}
