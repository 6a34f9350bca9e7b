/* worker/data/dataset_targets.c - reads targets, and checks that labels or targets fit a
 * network. */
#include "worker/data/dataset_targets.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>

static enum status not_finite(const struct data_array *a, const char *path, int64_t k)
{
    int64_t n_targets = data_array_row_elems(a);
    double value = data_array_plain(a, k);
    LOG_E("%s: target %lld of sample %lld is %g, which is %s", path, (long long)(k % n_targets),
          (long long)(k / n_targets), value,
          isfinite(value) ? DATA_BEYOND_FLOAT "; scale the targets"
                          : "not finite; fix it or remove the sample");
    return ST_CORRUPT;
}

enum status dataset_targets_read(const struct data_array *a, const char *path, float **out)
{
    int64_t n = data_array_elems(a);
    if (data_array_row_elems(a) > DATASET_MAX_CLASSES) {
        LOG_E("%s: holds %lld targets for each sample; at most %d are supported", path,
              (long long)data_array_row_elems(a), DATASET_MAX_CLASSES);
        return ST_UNSUPPORTED;
    }
    float *to = malloc((size_t)n * sizeof *to);
    if (!to) {
        LOG_E("%s: no memory for %lld targets", path, (long long)n);
        return ST_NOMEM;
    }
    data_array_floats(a, 0, n, to);
    for (int64_t k = 0; k < n; k++)
        if (!isfinite(to[k])) {
            free(to);
            return not_finite(a, path, k);
        }
    *out = to;
    return ST_OK;
}

const float *dataset_targets_of(const struct dataset *d, int64_t i)
{
    static const float of_label[2] = {0.0f, 1.0f};
    return d->targets ? dataset_targets(d, i) : &of_label[dataset_label(d, i) == 1];
}

enum status dataset_targets_alike(const struct dataset *a, const struct dataset *b)
{
    if (!a || !b || !a->targets == !b->targets)
        return ST_OK;
    LOG_E(
        "%s has %s, but %s has %s; save both as whole numbers, which are classes, or both as floats, which are targets",
        a->labels_path, a->targets ? "targets" : "class labels", b->labels_path,
        b->targets ? "targets" : "class labels");
    return ST_MISMATCH;
}

/* Refuses targets outside [0, 1], because their cross-entropy would have no lower bound. */
static enum status check_shares(const struct dataset *d, const struct layer *loss)
{
    int64_t n = d->n * d->classes;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = k / d->classes;
        float target = dataset_targets(d, i)[k % d->classes];
        if (target >= 0.0f && target <= 1.0f)
            continue;
        LOG_E(
            "%s: target %lld of sample %lld is %g, but layer '%s', a sigmoid_cross_entropy, needs targets from 0 to 1; scale them, or end the model with mean_squared_error",
            d->labels_path, (long long)(k % d->classes), (long long)dataset_row(d, i),
            (double)target, loss->name);
        return ST_MISMATCH;
    }
    return ST_OK;
}

enum status dataset_targets_check_outputs(const struct dataset *d, const struct layer *loss)
{
    int outputs = (int)loss->in.dim[0];
    if (!dataset_has_labels(d))
        return ST_OK;
    if (!d->targets && outputs == 1 && loss->kind != LAYER_SIGMOID_XENT) {
        LOG_E(
            "%s: its labels are classes, but the model has 1 output, which distinguishes no classes; set \"classes\": 2 or more, or end the model with sigmoid_cross_entropy if the labels are 0 and 1; or, if each sample has a number to fit, save the labels as float32 (CSV: --target_columns) and end the model with mean_squared_error or sigmoid_cross_entropy",
            d->labels_path);
        return ST_MISMATCH;
    }
    if (!d->targets)
        return dataset_check_classes(d, outputs == 1 ? 2 : outputs);
    if (!layer_takes_targets(loss->kind)) {
        LOG_E(
            "%s: its labels are floats, which are targets, but layer '%s', a softmax_cross_entropy, needs classes; %s, or end the model with mean_squared_error or sigmoid_cross_entropy",
            d->labels_path, loss->name,
            d->uses & DATASET_USES_COLUMN
                ? "if they are classes, name their column with --label_column instead of --target_columns"
                : "save them as whole numbers, with labels.astype(numpy.int64)");
        return ST_MISMATCH;
    }
    if (d->classes != outputs) {
        LOG_E(
            "%s: has %d %s for each sample, but the model has %d %s; choose a model with \"classes\": %d or \"auto\"",
            d->labels_path, d->classes, d->classes == 1 ? "target" : "targets", outputs,
            outputs == 1 ? "output" : "outputs", d->classes);
        return ST_MISMATCH;
    }
    return loss->kind == LAYER_SIGMOID_XENT ? check_shares(d, loss) : ST_OK;
}

enum status dataset_targets_check_loss(const struct dataset *train, const struct layer *loss)
{
    if (train->targets || loss->kind != LAYER_SQUARED || loss->one_hot)
        return ST_OK;
    LOG_E(
        "%s: its labels are classes, 0 to %d, but layer '%s', a mean_squared_error, fits numbers; if the labels are numbers to fit, %s; if they are classes, set \"one_hot\": true in this layer, or end the model with softmax_cross_entropy",
        train->labels_path, train->classes - 1, loss->name,
        train->uses & DATASET_USES_COLUMN ? "name their columns with --target_columns"
                                          : "save them as float32");
    return ST_MISMATCH;
}
