/* worker/train/trainer_evaluate.c - evaluates the test set or the validation data, during training
 * and after it. See trainer.h and trainer_impl.h. Locks: none. */
#include "base/log.h"
#include "base/trace.h"
#include "worker/train/evaluate.h"
#include "worker/train/trainer_impl.h"
#include <inttypes.h>
#include <math.h>

enum status trainer_fetch_averages(struct trainer *t)
{
    const struct updates *x = t->cfg.updates;
    return t->cfg.averages ? x->ops->averages(x->ctx, t->cfg.averages) : ST_OK;
}

/* Returns the observer's visitor, which receives the outputs of evaluations; NULL: none. */
static const struct evaluate_visitor *visitor_of(const struct trainer *t)
{
    return t->cfg.observer ? t->cfg.observer->visitor : NULL;
}

/* Evaluates the test set. step: the step that the servers' rows have. */
static enum status test(struct trainer *t, int64_t step, struct evaluate_sums *sums)
{
    int64_t begin = trace_begin();
    t->eval->rows_step = step;
    enum status st = evaluate_run(t->eval, visitor_of(t), sums);
    if (st == ST_OK)
        trace_end(begin, TRACE_COMPUTE, "evaluate", NULL, -1, -1);
    return st;
}

enum status trainer_evaluate(struct trainer *t, double *accuracy, double *loss, double *auc)
{
    struct evaluate_sums sums;
    enum status st;
    while ((st = test(t, t->result.global_step, &sums)) == ST_REBASED)
        TRY(trainer_run_again(t));
    TRY(st);
    *accuracy = evaluate_accuracy(t->cfg.test, &sums);
    *loss = sums.loss / (double)sums.n;
    *auc = sums.auc;
done:
    return st;
}

static enum status log_test(struct trainer *t, int64_t step)
{
    enum status st = ST_OK;
    struct evaluate_sums sums;
    char text[EVALUATE_TEXT_BYTES];
    const struct trainer_observer *o = t->cfg.observer;
    TRY(test(t, step, &sums));
    double accuracy = evaluate_accuracy(t->cfg.test, &sums), loss = sums.loss / (double)sums.n;
    int64_t global_step = trainer_push_global_step(t, step);
    LOG_I("Worker %d: global step %" PRId64 ": %s", t->result.member, global_step,
          evaluate_text(text, "test", accuracy, loss, sums.auc));
    if (o)
        o->evaluated(o->ctx, global_step, "test", accuracy, loss);
done:
    return st;
}

static int is_stopped(void *ctx)
{
    return trainer_state_is_stopped(ctx);
}

static void log_validation(struct trainer *t, const struct trainer_evaluation *e)
{
    char text[EVALUATE_TEXT_BYTES];
    const struct evaluate_sums sums = {e->n, e->right, e->loss, (double)NAN};
    LOG_I("Worker %d: global step %" PRId64 ": %s", t->result.member,
          trainer_push_global_step(t, e->step),
          evaluate_text(text, "validation", evaluate_accuracy(t->cfg.validation, &sums),
                        e->loss / (double)e->n, (double)NAN));
}

/* Reports an evaluation to the observer. If this worker evaluated the first part, reports the
 * result of all parts, if it is known; otherwise reports NaN. */
static void observe_validation(struct trainer *t, const struct trainer_evaluation *e)
{
    const struct trainer_observer *o = t->cfg.observer;
    const struct evaluate_sums sums = {e->n, e->right, e->loss, (double)NAN};
    int whole = e->part == 0 && e->n > 0;
    if (o)
        o->evaluated(o->ctx, trainer_push_global_step(t, e->step), "validation",
                     whole ? evaluate_accuracy(t->cfg.validation, &sums) : (double)NAN,
                     whole ? e->loss / (double)e->n : (double)NAN);
}

/* Evaluates this worker's part and reports it. *whole becomes 1 if the result of all parts is
 * known. */
static enum status validate_part(struct trainer *t, int64_t step, int part, int n_parts, int *whole)
{
    enum status st = ST_OK;
    struct evaluate_sums sums;
    int ends = 0;
    int64_t begin = trace_begin();
    t->validate->rows_step = step;
    TRY(evaluate_part(t->validate, part, n_parts, visitor_of(t), &sums));
    trace_end(begin, TRACE_COMPUTE, "evaluate", NULL, -1, -1);
    struct trainer_evaluation e = {.step = step,
                                   .generation = t->generation,
                                   .ps0 = t->ps0,
                                   .part = part,
                                   .n_parts = n_parts,
                                   .n = sums.n,
                                   .right = sums.right,
                                   .loss = sums.loss,
                                   .no_accuracy = t->cfg.validation->targets != NULL,
                                   .is_stopped = is_stopped,
                                   .ctx = t};
    if (n_parts == 1)
        log_validation(t, &e);
    if (t->cfg.validated)
        TRY(t->cfg.validated(t->cfg.validated_ctx, &e, &ends));
    *whole = e.n > 0;
    observe_validation(t, &e);
    if (n_parts > 1 && part == 0 && *whole)
        log_validation(t, &e);
    if (ends) {
        atomic_store(&t->ended, 1);
        st = ST_CANCELLED;
    }
done:
    return st;
}

/* Evaluates the validation data, or this worker's part of them. */
static enum status validate(struct trainer *t, int64_t step, int is_last)
{
    const struct net_place *p = &t->towers[0]->place;
    int shared = p->validates && p->n_members > 1 && !t->cfg.own_pace, whole = 1;
    int n_parts = shared ? evaluate_parts(t->validate, p->n_members) : 1;
    if (p->rank >= n_parts)
        return ST_OK;
    enum status st = validate_part(t, step, p->rank, n_parts, &whole);
    /* the other workers have left without evaluating their parts */
    if (st == ST_OK && !whole && is_last && p->rank == 0)
        st = validate_part(t, step, 0, 1, &whole);
    return st;
}

enum status trainer_validate(struct trainer *t, int64_t step)
{
    enum status st = ST_OK;
    if (!t->validate)
        return ST_OK;
    while ((st = validate(t, step, 1)) == ST_REBASED) {
        TRY(trainer_run_again(t));
        step = t->result.global_step;
    }
done:
    return st;
}

enum status trainer_log_accuracy(struct trainer *t, int64_t step)
{
    const struct updates *x = t->cfg.updates;
    enum status st =
        x->ops->wait(x->ctx, 0, t->cfg.chunks->n_chunks, t->cfg.own_pace ? 0 : step, INT64_MAX);
    if (st == ST_OK && (t->validate || t->eval))
        st = trainer_fetch_averages(t);
    if (st == ST_OK && t->validate)
        st = validate(t, step, 0);
    else if (st == ST_OK && t->eval)
        st = log_test(t, step);
    if (st == ST_REBASED) /* the evaluation is still due */
        t->n_evaluated--;
    return trainer_state_note_rebased(t, st, step);
}
