/* worker/input_range.c - compares the ranges of two sets, and warns if they probably have different
 * units. */
#include "worker/input_range.h"
#include "base/float_text.h"
#include "base/log.h"
#include <math.h>

/* Returns advice on how to bring two sets to the same scale. */
static const char *same_scale(bool of_one_type)
{
    return of_one_type
               ? "use the same unit in both; whole numbers are divided by 255, floats are not"
               : "save both as the same type, or divide the floats by 255, too";
}

enum status input_range_compare(struct worker *w)
{
    enum status st = ST_OK;
    const struct dataset *sets[] = {w->test, w->validation};
    char here[DATASET_RANGE_TEXT_BYTES], there[DATASET_RANGE_TEXT_BYTES];
    if (w->test || w->validation || w->opt.export_file)
        TRY(dataset_range_measure(w->train, &w->range));
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct dataset_range r;
        if (!sets[i])
            continue;
        TRY(dataset_range_measure(sets[i], &r));
        if (!dataset_range_fits(&w->range, &r))
            LOG_W(
                "%s: its samples are %s, but those of the training set, %s, are %s: their scales differ; %s",
                sets[i]->path, dataset_range_text(&r, here), w->train->path,
                dataset_range_text(&w->range, there),
                same_scale(sets[i]->floats == w->train->floats));
    }
done:
    return st;
}

enum status input_range_compare_file(const struct worker *w, const char *flag, const char *file)
{
    enum status st = ST_OK;
    const struct dataset_range *was = &w->trained_on.range;
    char here[DATASET_RANGE_TEXT_BYTES], there[DATASET_RANGE_TEXT_BYTES];
    struct dataset_range r;
    if (!was->enough)
        return ST_OK;
    TRY(dataset_range_measure(w->test, &r));
    if (!dataset_range_fits(was, &r))
        LOG_W(
            "--%s: %s was trained on samples that are %s, but those of %s are %s: their scales differ; %s",
            flag, file, dataset_range_text(was, there), w->test->path, dataset_range_text(&r, here),
            same_scale(was->floats == w->test->floats));
done:
    return st;
}

/* Returns true if the layer is LAYER_INPUT_IMAGE, or a layer whose output is the samples
 * unchanged. */
static bool outputs_samples(const struct model *m, int layer)
{
    while (layer != LAYER_INPUT_IMAGE && m->layers[layer].kind == LAYER_FLATTEN)
        layer = m->layers[layer].input[0];
    return layer == LAYER_INPUT_IMAGE;
}

/* Returns true if each layer that reads the samples normalises every feature. */
static bool normalises(const struct model *m)
{
    for (int i = 0; i < m->n_layers; i++) {
        const struct layer *l = &m->layers[i];
        for (int k = 0; k < l->n_inputs; k++)
            if (l->kind != LAYER_BATCH_NORM && l->kind != LAYER_FLATTEN &&
                outputs_samples(m, l->input[k]))
                return false;
    }
    return true;
}

void input_range_check_columns(const struct worker *w)
{
    const struct data_csv_scale *s = &w->train->scale;
    if (s->column == 0 || w->normal.n > 0 || w->train->standard.n > 0 || normalises(w->model))
        return;
    LOG_W(
        "%s: column %lld%s%s%s has numbers up to %g, all other features up to %g: it outweighs them; --standardize scales each column to mean 0 and deviation 1, and --ignore_columns=%lld excludes this column",
        w->train->path, (long long)s->column, *s->name ? ", '" : "", s->name, *s->name ? "'," : "",
        (double)s->largest, (double)s->others, (long long)s->column);
}

enum status input_range_check_flags(const struct options *o, const struct dataset *d)
{
    enum status st = ST_OK;
    const struct options_list *lists[] = {&o->mean, &o->std};
    char given[FLOAT_TEXT_BYTES], divided[FLOAT_TEXT_BYTES], range[DATASET_RANGE_TEXT_BYTES];
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !d->floats; i++) {
        float most = 0;
        for (int k = 0; k < lists[i]->n; k++)
            most = fmaxf(most, fabsf(lists[i]->value[k]));
        struct dataset_range r = {.most = most};
        if (most > 1)
            TRY(dataset_range_measure(d, &r));
        if (most <= 1 || most <= r.most)
            continue;
        LOG_W(
            "--%s: %s is above 1, but samples of %s are %s, and the flag is in the unit after the division; for bytes this would be %s",
            i ? "std" : "mean", float_text(most, given), d->path, dataset_range_text(&r, range),
            float_text(most / 255, divided));
    }
done:
    return st;
}
