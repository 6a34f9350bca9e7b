/* worker/validation.c - see validation.h. */
#include "worker/validation.h"
#include "base/log.h"
#include "worker/train/evaluate.h"
#include <inttypes.h>
#include <math.h>

void validation_resume(struct validation *v)
{
    struct ps_best best;
    if (!v->saver || !alone_saver_found_best(v->saver, &best))
        return;
    v->has_best = 1;
    v->best_step = best.id.step;
    v->best_loss = best.loss;
    v->best_accuracy = best.accuracy;
    char text[EVALUATE_TEXT_BYTES];
    LOG_I("best so far: step %" PRId64 ", %s", v->best_step,
          evaluate_text(text, "validation", v->best_accuracy, v->best_loss));
}

enum status validation_note(void *ctx, int64_t step, double accuracy, double loss, int *ends)
{
    struct validation *v = ctx;
    enum status st = ST_OK;
    v->known = 1;
    v->step = step;
    v->loss = loss;
    v->accuracy = accuracy;
    if (isfinite(loss) && (!v->has_best || loss < v->best_loss)) {
        v->has_best = 1;
        v->best_step = step;
        v->best_loss = loss;
        v->best_accuracy = accuracy;
        if (v->saver)
            st = alone_saver_best(v->saver, step, accuracy, loss);
    }
    int64_t since = v->eval_every > 0 ? (step - v->best_step) / v->eval_every : 0;
    if (v->early_stopping == 0 || since < v->early_stopping)
        return st;
    v->stopped_early = 1;
    *ends = 1;
    LOG_I("--early_stopping: no better validation loss in %" PRId64 " evaluations since step "
          "%" PRId64 " (%.4f): training ends at step %" PRId64,
          since, v->best_step, v->best_loss, step);
    return st;
}
