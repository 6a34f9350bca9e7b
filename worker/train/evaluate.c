/* worker/train/evaluate.c - see evaluate.h. */
#include "worker/train/evaluate.h"
#include <math.h>
#include <stdio.h>

enum status evaluate_tower_create(const struct trainer_config *cfg, struct tower **out)
{
    struct tower_spec spec = cfg->towers[0];
    spec.first = 0;
    spec.n = cfg->test->n < EVALUATE_BATCH ? (int)cfg->test->n : EVALUATE_BATCH;
    return tower_create_inference(cfg, &spec, out);
}

static int64_t n_batches(const struct tower *e)
{
    return (e->cfg->test->n + e->spec.n - 1) / e->spec.n;
}

/* Batches first .. last - 1. */
static enum status run(struct tower *e, int64_t first, int64_t last,
                       const struct evaluate_visitor *visitor, struct evaluate_sums *out)
{
    enum status st = ST_OK;
    struct evaluate_sums sums = {0};
    int64_t end = last * e->spec.n < e->cfg->test->n ? last * e->spec.n : e->cfg->test->n;
    for (int i = 0; i < e->cfg->chunks->n_params; i++)
        TRY(split_tower_load_param(e->stages, i));
    for (int64_t at = first * e->spec.n; at < end; at += e->spec.n) {
        int n = end - at < e->spec.n ? (int)(end - at) : e->spec.n, right;
        float loss;
        TRY(tower_load_test(e, at, n));
        for (int i = 0; i < e->cfg->model->n_layers; i++)
            TRY(split_tower_forward_inference(e->stages, i));
        TRY(split_tower_result(e->stages, &loss, &right));
        if (visitor)
            TRY(visitor->batch(visitor->ctx, e, at, n));
        sums.n += n;
        sums.right += right;
        sums.loss += (double)loss * n;
    }
    *out = sums;
done:
    return st;
}

const char *evaluate_text(char dst[EVALUATE_TEXT_BYTES], const char *what, double accuracy,
                          double loss)
{
    if (isnan(accuracy))
        snprintf(dst, EVALUATE_TEXT_BYTES, "%s loss: %.4f", what, loss);
    else
        snprintf(dst, EVALUATE_TEXT_BYTES, "%s accuracy: %.4f, %s loss: %.4f", what, accuracy, what,
                 loss);
    return dst;
}

double evaluate_accuracy(const struct dataset *d, const struct evaluate_sums *sums)
{
    return d->targets ? (double)NAN : (double)sums->right / (double)sums->n;
}

int evaluate_parts(const struct tower *e, int most)
{
    int64_t n = n_batches(e);
    return n < most ? (int)n : most;
}

enum status evaluate_part(struct tower *e, int part, int n_parts,
                          const struct evaluate_visitor *visitor, struct evaluate_sums *out)
{
    int64_t n = n_batches(e);
    return run(e, n * part / n_parts, n * (part + 1) / n_parts, visitor, out);
}

enum status evaluate_run(struct tower *e, const struct evaluate_visitor *visitor,
                         struct evaluate_sums *out)
{
    return run(e, 0, n_batches(e), visitor, out);
}
