/* worker/results/validation.c - keeps the best evaluation of a worker without servers, and decides
 * when training ends early. A worker with servers forwards evaluations to ps 0. */
#include "worker/results/validation.h"
#include "base/log.h"
#include "worker/train/evaluate.h"
#include <inttypes.h>
#include <math.h>

enum status validation_resume(struct validation *v)
{
    struct checkpoint_best best;
    enum status st = v->saver ? alone_writer_found_best(v->saver, &best) : ST_NOT_FOUND;
    if (st != ST_OK)
        return st == ST_NOT_FOUND ? ST_OK : st;
    if (!job_validation_same(&best.data, &v->data)) {
        LOG_W("the best checkpoint so far, of step %" PRId64
              ", was chosen with other validation data (%" PRId64 " samples; now there are %" PRId64
              "): the next evaluation replaces this checkpoint without a comparison",
              best.id.step, best.data.n, v->data.n);
        return ST_OK;
    }
    v->best = (struct validation_best){1, best.id.step, best.loss, best.accuracy};
    char text[EVALUATE_TEXT_BYTES];
    LOG_I("best so far: step %" PRId64 ", %s", v->best.step,
          evaluate_text(text, "validation", v->best.accuracy, v->best.loss, (double)NAN));
    return ST_OK;
}

void validation_settle(struct validation *v)
{
    if (!v->unsettled)
        return;
    v->unsettled = 0;
    if (alone_writer_best_is_kept(v->saver))
        return;
    LOG_W("the evaluation at step %" PRId64
          " does not count as the best: its checkpoint could not be kept",
          v->best.step);
    v->best = v->before;
}

static enum status note_best(struct validation *v)
{
    const struct checkpoint_best best = {.loss = v->loss, .accuracy = v->accuracy, .data = v->data};
    v->before = v->best;
    v->best = (struct validation_best){1, v->step, v->loss, v->accuracy};
    v->unsettled = v->saver != NULL;
    return v->saver ? alone_writer_best(v->saver, v->step, &best) : ST_OK;
}

static void note_figures(struct validation *v, const struct trainer_evaluation *e)
{
    v->known = 1;
    v->step = e->step;
    v->loss = e->loss / (double)e->n;
    v->accuracy = e->no_accuracy ? (double)NAN : (double)e->right / (double)e->n;
}

enum status validation_note(void *ctx, struct trainer_evaluation *e, int *ends)
{
    struct validation *v = ctx;
    enum status st = ST_OK;
    int is_first = e->part == 0;
    if (v->ps0)
        st = validation_report(v, e);
    else
        validation_settle(v);
    if (is_first && e->n > 0)
        note_figures(v, e);
    if (v->ps0)
        return st;
    if (isfinite(v->loss) && (!v->best.known || v->loss < v->best.loss))
        st = note_best(v);
    int64_t since = job_evaluations(v->best.step, v->step, v->eval_every);
    if (v->early_stopping == 0 || since < v->early_stopping || v->step >= v->train_steps)
        return st;
    v->stopped_early = 1;
    *ends = 1;
    LOG_I("--early_stopping: no better validation loss in %" PRId64
          " evaluations since step %" PRId64 " (%.4f): training ends at step %" PRId64,
          since, v->best.step, v->best.loss, v->step);
    return st;
}
