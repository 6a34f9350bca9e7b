/* worker/train/trainer_rows.c - see trainer_rows.h. The order of all keys and sums is that of the
 * towers, however they arrive. */
#include "worker/train/trainer_rows.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "worker/train/trainer_impl.h"
#include <stdlib.h>

enum { WAIT_SLICE_MS = 1000 };

enum status trainer_rows_create(struct trainer *t)
{
    enum status st = ST_OK;
    size_t n_layers = (size_t)t->cfg.model->n_layers;
    TRY(tower_tables_create(&t->cfg, t->cfg.n_towers, false, &t->rows.tables));
    t->rows.met = calloc(n_layers, sizeof *t->rows.met);
    t->rows.n_read = calloc(n_layers, sizeof *t->rows.n_read);
    if (t->rows.met && t->rows.n_read)
        return ST_OK;
    LOG_E("out of memory for the lists of %zu layers", n_layers);
    st = ST_NOMEM;
done:
    return st;
}

void trainer_rows_free(struct trainer *t)
{
    tower_tables_free(t->rows.tables, t->cfg.model->n_layers);
    free(t->rows.met);
    free(t->rows.n_read);
}

void trainer_rows_start(struct trainer *t)
{
    for (int i = 0; i < t->cfg.model->n_layers; i++) {
        t->rows.met[i] = 0;
        t->rows.n_read[i] = t->first_step;
    }
}

/* Waits for all towers, and reads the rows in the last one. Returns without the rows if the step is
 * invalid and some tower has abandoned it. */
static enum status meet(struct trainer *t, int layer, int64_t step)
{
    struct trainer_rows *r = &t->rows;
    pthread_mutex_lock(&t->lock);
    bool is_last = ++r->met[layer] == t->cfg.n_towers;
    if (is_last)
        r->met[layer] = 0;
    while (!is_last && r->n_read[layer] <= step && !trainer_state_is_stopped(t) &&
           (t->group || step < t->invalid_from))
        clock_cond_wait(&t->handed_out, &t->lock, clock_deadline_ns(WAIT_SLICE_MS));
    pthread_mutex_unlock(&t->lock);
    if (!is_last)
        return trainer_state_is_stopped(t) ? ST_CANCELLED : ST_OK;
    int64_t begin = trace_begin(), waits_since_ns = clock_now_ns();
    enum status st = table_step_read(r->tables[layer], step);
    st = trainer_state_note_rebased(t, st, step);
    trace_end(begin, TRACE_WAIT, "rows of", t->cfg.model->layers[layer].name, layer, step);
    t->wait_ns += clock_now_ns() - waits_since_ns; /* the other towers wait for this one */
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&t->lock);
    r->n_read[layer] = step + 1;
    pthread_cond_broadcast(&t->handed_out);
    pthread_mutex_unlock(&t->lock);
    return ST_OK;
}

/* Returns the threads for the tower's bags: those of its device, or the worker's own if no other
 * tower uses them. */
static struct crew crew_of(const struct trainer *t, const struct tower *w)
{
    const struct tower_device *d = &w->spec.own;
    return (struct crew){d->backend->spread, d->n_threads,
                         t->cfg.n_towers == 1 ? t->cfg.threads : NULL};
}

enum status trainer_rows_load(struct trainer *t, struct tower *w, int layer, int64_t step)
{
    enum status st = ST_OK;
    struct table_step *s = t->rows.tables[layer];
    const struct layer *l = &t->cfg.model->layers[layer];
    const struct crew crew = crew_of(t, w);
    const float *out;
    table_step_set(s, w->index, &w->now.keys.bags[l->keys]);
    TRY(meet(t, layer, step));
    if (trainer_state_may_skip(t, step))
        return ST_OK;
    int64_t begin = trace_begin();
    TRY(table_step_output(s, w->index, &crew, &out));
    split_tower_set_host_output(w->stages, layer, out);
    trace_end(begin, TRACE_COMPUTE, "bags of", l->name, layer, step);
done:
    return st;
}

enum status trainer_rows_collect(struct trainer *t, struct tower *w, int layer)
{
    struct table_step *s = t->rows.tables[layer];
    const struct crew crew = crew_of(t, w);
    enum status st = split_tower_read_host_grad(w->stages, layer, table_step_grads(s, w->index));
    if (st != ST_OK)
        return st;
    table_step_spread(s, w->index, &crew, (float)w->spec.n / (float)t->cfg.batch);
    const struct bags *next = tower_ahead_bags(w);
    table_step_set_next(s, w->index, next ? &next[t->cfg.model->layers[layer].keys] : NULL);
    return ST_OK;
}

enum status trainer_rows_sum(struct trainer *t, int layer)
{
    return table_step_sum(t->rows.tables[layer], &t->rows.sums, &t->rows.n_sums);
}

enum status trainer_rows_push(struct trainer *t, int layer, int64_t step, float weight)
{
    enum status st = table_step_push(t->rows.tables[layer], step, t->cfg.train_steps, weight);
    return trainer_state_note_rebased(t, st, INT64_MAX);
}
