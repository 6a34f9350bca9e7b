/* ps/capture.c - see capture.h. A chunk that waits for its version points to the capture; that is
 * all that the way of a piece sees of it. */
#include "ps/capture.h"
#include "base/log.h"
#include "ps/cell.h"
#include <inttypes.h>
#include <stdlib.h>

struct ps_capture {
    struct ps_store *store;
    void (*done)(void *ctx);
    void *ctx;
    int64_t step;
    _Atomic int n_left;        /* chunks that are still to come */
    struct ps_captured *chunk; /* as the store's cells; each guarded by its cell's lock */
};

enum status ps_capture_create(struct ps_store *store, void (*done)(void *ctx), void *ctx,
                              struct ps_capture **out)
{
    struct ps_capture *c = calloc(1, sizeof *c);
    if (c)
        c->chunk = calloc((size_t)store->n_cells + 1, sizeof *c->chunk);
    if (!c || !c->chunk) {
        LOG_E("no memory for a table of %d chunks, which checkpoints need", store->n_cells);
        ps_capture_destroy(c);
        return ST_NOMEM;
    }
    c->store = store;
    c->done = done;
    c->ctx = ctx;
    for (int i = 0; i < store->n_cells; i++)
        c->chunk[i].chunk = store->cells[i].chunk;
    *out = c;
    return ST_OK;
}

void ps_capture_destroy(struct ps_capture *c)
{
    if (!c)
        return;
    if (c->store)
        ps_capture_end(c);
    free(c->chunk);
    free(c);
}

void ps_cell_capture(struct cell *cell)
{
    struct ps_capture *c = cell->capture;
    struct ps_captured *to = &c->chunk[cell->shelf];
    if (cell->version < c->step)
        return;
    cell->capture = NULL;
    to->version = cell->version;
    to->value = buf_ref(cell->now.value);
    to->slots = cell->now.slots ? buf_ref(cell->now.slots) : NULL;
    if (atomic_fetch_sub(&c->n_left, 1) == 1)
        c->done(c->ctx);
}

enum status ps_capture_begin(struct ps_capture *c, int64_t step)
{
    struct ps_store *s = c->store;
    int64_t past = -1;
    c->step = step;
    atomic_store(&c->n_left, s->n_cells + 1); /* one of them is this function */
    for (int i = 0; i < s->n_cells && past < 0; i++) {
        struct cell *cell = &s->cells[i];
        pthread_mutex_lock(&cell->lock);
        if (cell->version > step && s->lockstep)
            past = cell->version;
        cell->capture = c;
        if (past < 0 && cell->version >= step)
            ps_cell_capture(cell);
        pthread_mutex_unlock(&cell->lock);
    }
    if (past >= 0) {
        ps_capture_end(c);
        LOG_D("no checkpoint at step %" PRId64 ": a chunk is at step %" PRId64 " already", step,
              past);
        return ST_RANGE;
    }
    if (atomic_fetch_sub(&c->n_left, 1) == 1)
        c->done(c->ctx);
    return ST_OK;
}

void ps_capture_end(struct ps_capture *c)
{
    for (int i = 0; i < c->store->n_cells; i++) {
        struct cell *cell = &c->store->cells[i];
        pthread_mutex_lock(&cell->lock);
        cell->capture = NULL;
        struct buf *value = c->chunk[i].value, *slots = c->chunk[i].slots;
        c->chunk[i].value = c->chunk[i].slots = NULL;
        pthread_mutex_unlock(&cell->lock);
        buf_unref(value);
        buf_unref(slots);
    }
}

const struct ps_captured *ps_capture_chunks(const struct ps_capture *c, int *n)
{
    *n = c->store->n_cells;
    return c->chunk;
}
