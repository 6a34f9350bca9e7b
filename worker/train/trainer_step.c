/* worker/train/trainer_step.c - a tower's thread, step by step: load the batch, wait for and load
 * each layer's version, forward, backward, push. See trainer_impl.h. Locks: the trainer's. */
#include "base/clock.h"
#include "base/trace.h"
#include "worker/train/trainer_observe.h"

enum { WAIT_SLICE_MS = 1000 };

/* Returns true if the worker leaves, and its generation has ended. */
static bool is_out(const struct updates *x)
{
    return x->ops->is_leaving && x->ops->is_leaving(x->ctx) &&
           x->ops->wait(x->ctx, 0, 0, 0, INT64_MAX) == ST_REBASED;
}

/* Waits, in an invalid step, until each of these chunks has no request under way. Until then a
 * server may still read the chunk's last contribution, which this step's backward overwrites. If
 * the worker is out, its requests have been dropped without an answer, for example because it has
 * lost ps 0. Then this function returns ST_CANCELLED. */
static enum status await_answers(struct trainer *t, int first, int n)
{
    struct updates *x = t->cfg.updates;
    enum status st = ST_OK;
    for (int c = first; c < first + n && (st == ST_OK || st == ST_REBASED); c++)
        if (x->ops->is_busy && x->ops->is_busy(x->ctx, c))
            st = x->ops->wait(x->ctx, c, 1, 0, INT64_MAX);
    if (is_out(x))
        return ST_CANCELLED;
    return st == ST_REBASED ? ST_OK : st;
}

/* Waits until params hold the layer's version that local step `step` computes on. If parameters are
 * copied in parts, also queues their copies to the device. */
static enum status layer_wait(struct trainer *t, const struct tower *w, int layer, int64_t step)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    if (l->n_params == 0 && !trainer_rows_has(&t->rows, layer))
        return ST_OK;
    int64_t begin = trace_begin(), waits_since_ns = clock_now_ns();
    pthread_mutex_lock(&t->lock);
    while (t->pushed[layer] < step && !trainer_state_is_stopped(t) &&
           (t->group || step < t->invalid_from))
        clock_cond_wait(&t->handed_out, &t->lock, clock_deadline_ns(WAIT_SLICE_MS));
    int invalid = step >= t->invalid_from;
    pthread_mutex_unlock(&t->lock);
    if (trainer_state_is_stopped(t))
        return ST_CANCELLED;
    int first, n;
    trainer_push_layer_chunks(t, layer, &first, &n);
    if (invalid)
        return await_answers(t, first, n);
    struct updates *x = t->cfg.updates;
    enum status st = t->parts.loads && !trainer_ahead_has(t, step)
                         ? trainer_parts_load(t, first, n, step)
                         : x->ops->wait(x->ctx, first, n, t->cfg.own_pace ? 0 : step, INT64_MAX);
    bool is_rebased = st == ST_REBASED;
    st = trainer_state_note_rebased(t, st, step);
    if (is_rebased)
        st = await_answers(t, first, n);
    trace_end(begin, TRACE_WAIT, "parameters of", l->name, layer, step);
    if (w->index == 0)
        t->wait_ns += clock_now_ns() - waits_since_ns;
    return st;
}

/* Waits for the layer's version, and loads it into the tower, unless the card has made it. */
static enum status layer_load(struct trainer *t, struct tower *w, int layer, int64_t step)
{
    const struct layer *l = &t->cfg.model->layers[layer];
    bool has = trainer_ahead_has(t, step);
    if (has && !trainer_observe_is_due(t, step))
        return ST_OK;
    enum status st = layer_wait(t, w, layer, step);
    if (st == ST_OK && trainer_rows_has(&t->rows, layer) && !trainer_state_may_skip(t, step))
        st = trainer_rows_load(t, w, layer, step);
    if (trainer_state_is_invalid(t, step)) /* the results of this step do not count any more */
        return st;
    for (int i = 0; st == ST_OK && !t->parts.loads && !has && i < l->n_params; i++)
        st = split_tower_load_param(w->stages, l->param[i]);
    if (st == ST_OK)
        trainer_observe_layer(t, w, layer, step);
    return st;
}

/* Returns the position of this tower's first sample of the step. If own_pace is set, the servers
 * assign the position of the worker's batch. All towers read the same assignment, because nothing
 * is pushed until all towers have loaded their samples. */
static uint64_t first_sample(const struct trainer *t, const struct tower *w, int64_t step)
{
    const struct member_steps m = tower_steps(w, t->cfg.updates, t->cfg.own_pace);
    return member_steps_position_now(&m, step) + (uint64_t)w->spec.first;
}

static enum status tower_step(struct trainer *t, struct tower *w, int64_t step)
{
    enum status st = ST_OK;
    int n_layers = t->cfg.model->n_layers;
    int64_t begin = trace_begin();
    uint64_t position = first_sample(t, w, step);
    t->share[w->index][step & 1].position = position;
    TRY(tower_load_batch(w, position));
    trace_end(begin, TRACE_COMPUTE, "load batch", NULL, -1, step);
    /* otherwise the position of the next step's samples is not known yet */
    if (!t->cfg.own_pace && step + 1 < t->cfg.train_steps)
        tower_read_ahead(w, tower_position(w, step + 1), step + 1);
    for (int i = 0; i < n_layers; i++) {
        TRY(layer_load(t, w, i, step));
        if ((i <= t->lowest || trainer_rows_has(&t->rows, i)) && trainer_state_may_skip(t, step))
            return ST_OK;
        TRY(split_tower_forward(w->stages, i, step));
    }
    bool ahead = trainer_ahead_has(t, step);
    if (!ahead && !trainer_state_is_invalid(t, step)) /* all parameters of the step have arrived */
        TRY(sample_log_step(t->cfg.sample_log, t->generation, step, w->now.position[0], w->spec.n));
    struct step_share *share = &t->share[w->index][step & 1];
    /* If backward only queues its work, gradients are copied and pushed while the layers below
     * compute. */
    int lead = split_tower_backward_lead(w->stages);
    for (int i = n_layers - 1; i >= -lead; i--) {
        if (i >= 0)
            TRY(split_tower_backward(w->stages, i, step));
        if (i == 0)
            TRY(trainer_ahead_update(t, step));
        if (i == t->lowest)
            TRY(split_tower_result(w->stages, &share->loss, &share->n_correct));
        if (i + lead < n_layers)
            TRY(trainer_push_layer(t, w, i + lead, step));
    }
    if (ahead &&
        !trainer_state_is_invalid(t, step)) /* the step's parameters have arrived only now */
        TRY(sample_log_step(t->cfg.sample_log, t->generation, step, w->now.position[0], w->spec.n));
done:
    return st;
}

/* Returns true if the job already has all its updates before step `step`. The first tower decides
 * for all of them: with own_pace, an evaluation by the first tower may read later versions of rows.
 * Each step advances every chunk that does not have all updates yet, so training ends. */
static bool job_done(struct trainer *t, int64_t step)
{
    bool is_over = trainer_push_global_step(t, step) >= t->cfg.train_steps;
    pthread_mutex_lock(&t->lock);
    if (t->judged_step != step)
        t->is_over = is_over;
    t->judged_step = step;
    is_over = t->is_over;
    pthread_mutex_unlock(&t->lock);
    return is_over;
}

/* Returns true if an evaluation is due before this step. Validation data are evaluated at each
 * multiple of eval_every, also at the step of the checkpoint from which training continues: the
 * process that wrote the checkpoint may have been killed before it evaluated. The test set is
 * evaluated once for each eval_every steps of the job: not a second time after a roll back, and not
 * for steps before this process joined. */
static bool evaluation_is_due(struct trainer *t, int64_t step)
{
    if (t->cfg.eval_every <= 0)
        return false;
    if (t->cfg.validation)
        return step > 0 && step % t->cfg.eval_every == 0;
    int64_t n = trainer_push_global_step(t, step) / t->cfg.eval_every;
    if (n <= t->n_evaluated)
        return false;
    t->n_evaluated = n;
    return true;
}

enum status trainer_step_run(struct trainer *t, struct tower *w)
{
    enum status st = ST_OK;
    for (int64_t step = t->first_step; !trainer_state_is_stopped(t); step++) {
        if (!trainer_state_begin_step(t, step))
            return ST_OK;
        if (!trainer_ahead_has(t, step))
            TRY(layer_wait(t, w, t->lowest, step));
        if (t->cfg.own_pace) {
            for (int i = 1; i < t->cfg.model->n_layers; i++)
                TRY(layer_wait(t, w, i, step));
        }
        if (trainer_state_may_skip(t, step))
            return ST_OK;
        if (job_done(t, step))
            return ST_OK;
        if (w->index == 0 && evaluation_is_due(t, step))
            TRY(trainer_log_accuracy(t, step));
        if (w->index == 0 && t->cfg.at_step && !trainer_state_is_invalid(t, step))
            TRY(t->cfg.at_step(t->cfg.at_step_ctx, step));
        TRY(w->index == 0 && atomic_load(&t->stops_soon) ? ST_CANCELLED : ST_OK);
        if (trainer_state_may_skip(t, step))
            return ST_OK;
        if (w->index == 0)
            trainer_observe_begin(t, step);
        TRY(tower_step(t, w, step));
    }
    st = ST_CANCELLED;
done:
    return st;
}
