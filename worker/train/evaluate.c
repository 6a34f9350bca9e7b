/* worker/train/evaluate.c - computes a tower's forward for batches, adds up the batches' losses and
 * numbers of correct samples, and collects scores. */
#include "worker/train/evaluate.h"
#include "worker/data/dataset_targets.h"
#include "worker/train/auc.h"
#include "worker/train/progress.h"
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

int evaluate_class(const float *output, int n_outputs)
{
    int best = n_outputs == 1 && output[0] > 0.5f;
    for (int k = 1; k < n_outputs; k++)
        best = output[k] > output[best] ? k : best;
    return best;
}

/* Adds the scores of samples first .. first + n - 1 to `auc`. A sample's score is its output for
 * class 1. auc NULL: no scores are kept. If there is only one output, *right becomes the number of
 * correct samples, which the backend cannot count from targets. */
static enum status add_scores(struct tower *e, int64_t first, int n, struct auc *auc, int *right)
{
    enum status st = ST_OK;
    float output[2 * EVALUATE_BATCH];
    const struct dataset *d = e->cfg->test;
    int classes = e->cfg->model->classes, one = dataset_targets_are_labels(d, classes);
    if (!auc && !one)
        return ST_OK;
    TRY(split_tower_output(e->stages, output));
    *right = one ? 0 : *right;
    for (int i = 0; i < n; i++) {
        const float *of = output + i * classes;
        bool is_positive = dataset_label(d, first + i) == 1;
        if (auc)
            auc_add(auc, of[classes - 1], is_positive);
        *right += one && evaluate_class(of, 1) == is_positive;
    }
done:
    return st;
}

/* Evaluates batches first .. last - 1. auc NULL: no scores are kept. */
static enum status run(struct tower *e, int64_t first, int64_t last,
                       const struct evaluate_visitor *visitor, struct auc *auc,
                       struct evaluate_sums *out)
{
    enum status st = ST_OK;
    struct evaluate_sums sums = {.auc = (double)NAN};
    struct progress_lines lines;
    int64_t end = last * e->spec.n < e->cfg->test->n ? last * e->spec.n : e->cfg->test->n;
    for (int i = 0; i < e->cfg->chunks->n_params; i++)
        TRY(split_tower_load_param(e->stages, i));
    progress_lines_begin(&lines);
    for (int64_t at = first * e->spec.n; at < end; at += e->spec.n) {
        progress_lines_note(&lines, "samples evaluated", sums.n, end - first * e->spec.n);
        int n = end - at < e->spec.n ? (int)(end - at) : e->spec.n, right;
        float loss;
        TRY(tower_load_test(e, at, n));
        TRY(tower_tables_put(e));
        for (int i = 0; i < e->cfg->model->n_layers; i++)
            TRY(split_tower_forward_inference(e->stages, i));
        TRY(split_tower_result(e->stages, &loss, &right));
        TRY(add_scores(e, at, n, auc, &right));
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
                          double loss, double auc)
{
    char more[48] = "";
    if (!isnan(auc))
        snprintf(more, sizeof more, ", %s AUC: %.4f", what, auc);
    if (isnan(accuracy))
        snprintf(dst, EVALUATE_TEXT_BYTES, "%s loss: %.4f", what, loss);
    else
        snprintf(dst, EVALUATE_TEXT_BYTES, "%s accuracy: %.4f, %s loss: %.4f%s", what, accuracy,
                 what, loss, more);
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
    return run(e, n * part / n_parts, n * (part + 1) / n_parts, visitor, NULL, out);
}

enum status evaluate_run(struct tower *e, const struct evaluate_visitor *visitor,
                         struct evaluate_sums *out)
{
    enum status st = ST_OK;
    const struct trainer_config *cfg = e->cfg;
    struct auc *auc = NULL;
    struct evaluate_sums sums;
    if (cfg->test->labels && cfg->model->classes <= 2)
        TRY(auc_create(cfg->test->n, &auc));
    TRY(run(e, 0, n_batches(e), visitor, auc, &sums));
    if (auc)
        sums.auc = auc_value(auc);
    *out = sums;
done:
    auc_destroy(auc);
    return st;
}
