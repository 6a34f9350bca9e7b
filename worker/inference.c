/* worker/inference.c - reads the parameters, runs the network over the test set, and writes figures
 * and predictions. See inference.h. */
#include "worker/inference.h"
#include "net/wire/tables.h"
#include "worker/input.h"
#include "worker/results/predictions.h"
#include "worker/results/summary.h"
#include "worker/train/evaluate.h"
#include "worker/weights/weights_rows.h"
#include <inttypes.h>
#include <stdlib.h>

struct inference {
    struct worker *w;
    struct weights_rows *rows;       /* rows of the model's tables; NULL: it has none */
    struct predictions *predictions; /* NULL: none */
    float *output;                   /* [EVALUATE_BATCH][classes] */
};

static enum status add_batch(void *ctx, struct tower *e, int64_t first, int n)
{
    enum status st = ST_OK;
    const struct inference *r = ctx;
    int classes = r->w->model->classes;
    (void)first; /* batches arrive in order, so `first` is not needed */
    if (shutdown_received(r->w, false))
        return ST_CANCELLED;
    if (!r->predictions)
        return ST_OK;
    TRY(split_tower_output(e->stages, r->output));
    for (int i = 0; i < n; i++)
        TRY(predictions_add(r->predictions, r->output + (int64_t)i * classes));
done:
    return st;
}

/* Returns true if the outputs are scores of classes. If the test set has no labels, the labels of
 * training decide. */
static bool has_classes(const struct worker *w)
{
    const struct dataset *d = w->test;
    if (dataset_has_labels(d))
        return d->labels != NULL;
    if (w->trained_on.labels != JOB_LABELS_UNSAID)
        return w->trained_on.labels == JOB_LABELS_CLASSES;
    return !layer_takes_targets(w->model->layers[w->model->n_layers - 1].kind);
}

/* Returns the names of the classes in the file of parameters. If the file has no names, returns the
 * class names of the test set, provided that there is one for each class of the model. */
static const char *names_of_classes(const struct worker *w)
{
    const char *names = w->trained_on.class_names;
    int n = 1;
    if (names || !w->test->class_names)
        return names;
    for (const char *c = w->test->class_names; *c; c++)
        n += *c == '\n';
    return n == (w->model->classes == 1 ? 2 : w->model->classes) ? w->test->class_names : NULL;
}

static enum status begin_predictions(struct inference *r)
{
    const struct model *m = r->w->model;
    const struct predictions_config cfg = {
        .path = r->w->opt.output,
        .n = r->w->test->n,
        .classes = m->classes,
        .are_scores = m->layers[m->n_layers - 1].kind == LAYER_SQUARED,
        .no_classes = !has_classes(r->w),
        .files = r->w->test->names,
        .class_names = names_of_classes(r->w),
    };
    if (!cfg.path)
        return ST_OK;
    r->output = malloc((size_t)EVALUATE_BATCH * (size_t)m->classes * sizeof *r->output);
    if (!r->output) {
        LOG_E("--predict: out of memory for %d outputs of %d classes", EVALUATE_BATCH, m->classes);
        return ST_NOMEM;
    }
    return predictions_create(&cfg, &r->predictions);
}

/* Logs the name of the data, so that a user notices that the figures are for the wrong data. */
static void log_data(const struct worker *w)
{
    const struct options *o = &w->opt;
    const struct dataset *d = w->test;
    const int64_t *is = d->sample.dim;
    LOG_I("--%s: the data are %s: %" PRId64 " samples of %" PRId64 "x%" PRId64 "x%" PRId64 "%s",
          o->predict ? "predict" : "evaluate", d->path, d->n, is[0], is[1], is[2],
          o->data_named ? "" : "; no flag names them, so these are the data of the training");
}

/* Warns if training was interrupted, because the figures do not show that. */
static void warn_of_interrupted(const struct worker *w, int64_t step)
{
    const struct options *o = &w->opt;
    if (w->trained_on.interrupted)
        LOG_W("--%s: the training that wrote %s was interrupted at step %" PRId64
              ": its parameters are those of that step, not of a complete training",
              o->predict ? "predict" : "evaluate", o->predict ? o->predict : o->evaluate, step);
}

static enum status report(const struct worker *w, const struct evaluate_sums *sums, int64_t step)
{
    enum status st = ST_OK;
    char text[EVALUATE_TEXT_BYTES];
    struct summary_inference s = {
        .model = w->model->name,
        .file = w->opt.predict ? w->opt.predict : w->opt.evaluate,
        .output = w->opt.output,
        .step = step,
        .images = sums->n,
        .test_accuracy = evaluate_accuracy(w->test, sums),
        .test_loss = sums->loss / (double)sums->n,
        .test_auc = sums->auc,
        .has_figures = dataset_has_labels(w->test),
        .n_params = w->chunks->n_elems,
    };
    if (s.has_figures)
        LOG_I("%s (%" PRId64 " samples)",
              evaluate_text(text, "test", s.test_accuracy, s.test_loss, s.test_auc), s.images);
    else
        LOG_I("%s has no labels: there is no accuracy and no loss", w->test->path);
    TRY(summary_digest(w->params, w->chunks->n_elems, s.parameters_sha256));
    if (w->opt.summary_json)
        TRY(summary_write_inference(w->opt.summary_json, &s));
done:
    return st;
}

/* Refuses parameters that --init_map does not read from the file ("-") if their initial values are
 * random, because random values are useless for inference. Constant initial values are accepted:
 * for example, the file may have a convolution without biases. */
static enum status check_kept(const struct worker *w, const struct weights_request *q)
{
    for (int i = 0; i < w->chunks->n_params; i++) {
        if (w->given[i] || model_init_is_constant(w->model, i))
            continue;
        LOG_E(
            "--%s=%s: '%s' would keep its random initial values (- in --init_map); name its tensor in --init_map",
            q->flag, q->path, w->chunks->params[i].name);
        return ST_INVALID;
    }
    return ST_OK;
}

/* Reads the rows of the samples' keys from the checkpoint, for each table of the model. */
static enum status read_rows(struct inference *r, const struct weights_request *q,
                             const struct weights_source *source)
{
    const struct model *m = r->w->model;
    int input[TABLES_MAX];
    if (m->n_tables == 0)
        return ST_OK;
    CHECK(q->chunks->n_tables == m->n_tables);
    for (int i = 0; i < m->n_tables; i++)
        input[i] = m->layers[m->tables[i].layer].keys;
    return weights_rows_read(q, source, r->w->test, input, &r->rows);
}

static enum status read_params(struct inference *r, struct weights_origin *origin)
{
    enum status st = ST_OK;
    struct worker *w = r->w;
    const struct weights_request q = set_up_weights(w);
    struct weights_source *source = NULL;
    struct weights_result result;
    w->given = calloc((size_t)w->chunks->n_params, sizeof *w->given);
    if (!w->given) {
        LOG_E("--%s: out of memory for %d parameters", q.flag, w->chunks->n_params);
        return ST_NOMEM;
    }
    model_init_params(w->model, (uint64_t)w->opt.seed, w->params);
    TRY(weights_source_open(q.flag, q.path, q.checkpoint, &source));
    TRY(read_rows(r, &q, source));
    TRY(weights_read_from(&q, source, w->params, w->given, &result));
    TRY(check_kept(w, &q));
    TRY(input_normalise_as(w, q.flag, q.path, &result.origin));
    LOG_I(
        "model '%s': %d of %d parameters from %s; %d stay as initialised, %d tensors are not used",
        w->model->name, result.n_given, w->chunks->n_params, q.path, result.n_kept,
        result.n_unused);
    if (result.origin.averages)
        LOG_I("--%s: these are the averages of the parameters that the job keeps (--ema_decay)",
              q.flag);
    *origin = result.origin;
done:
    weights_source_close(source);
    return st;
}

enum status inference_run(struct worker *w)
{
    enum status st = ST_OK;
    struct inference r = {.w = w};
    struct tower *e = NULL;
    struct evaluate_sums sums;
    struct weights_origin origin;
    TRY(set_up_inference(w));
    TRY(read_params(&r, &origin));
    const struct table_reader reader = weights_rows_reader(r.rows);
    const struct trainer_config cfg = {
        .model = w->model,
        .chunks = w->chunks,
        .test = w->test,
        .params = w->params,
        .reader = r.rows ? &reader : NULL,
        .towers = w->towers.tower,
        .n_towers = 1,
        .batch = (int)w->opt.batch_size,
        .seed = (uint64_t)w->opt.seed,
    };
    const struct evaluate_visitor visitor = {add_batch, &r};
    log_data(w);
    warn_of_interrupted(w, origin.step);
    TRY(evaluate_tower_create(&cfg, &e));
    TRY(begin_predictions(&r));
    TRY(evaluate_run(e, &visitor, &sums));
    if (r.predictions) {
        TRY(predictions_commit(r.predictions));
        LOG_I("predictions for %" PRId64 " samples: %s", sums.n, w->opt.output);
    }
    TRY(report(w, &sums, origin.step));
done:
    predictions_destroy(r.predictions);
    tower_destroy(e);
    weights_rows_free(r.rows);
    free(r.output);
    return st;
}
