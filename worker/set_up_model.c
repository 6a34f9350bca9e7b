/* worker/set_up_model.c - finds and reads the model, and cuts its parameters into chunks. See
 * worker.h. */
#include "worker/input_keys.h"
#include "worker/weights/weights_source.h"
#include "worker/worker.h"
#include <string.h>

static enum status cut_model(struct worker *w)
{
    const struct options *o = &w->opt;
    int64_t n_elems = 0;
    for (int i = 0; i < w->model->n_params; i++)
        n_elems += shape_elems(&w->model->params[i].shape);
    int n_servers = o->ps_hosts.n > 0 ? o->ps_hosts.n : 1;
    int64_t bytes = o->chunk_bytes > 0 ? o->chunk_bytes : chunks_default_bytes(n_elems, n_servers);
    return chunks_create(w->model->params, w->model->n_params, bytes, &w->chunks);
}

/* Applies --freeze. A worker that joins without the flag applies the job's setting. */
static enum status freeze_params(struct worker *w)
{
    const struct chunks *job = w->joined.chunks;
    struct model *m = w->model;
    if (w->opt.freeze)
        return weights_freeze(w->opt.freeze, m->params, m->n_params);
    for (int i = 0; job && i < m->n_params && i < job->n_params; i++)
        if (net_param_is_frozen(&job->params[i]) &&
            strcmp(job->params[i].name, m->params[i].name) == 0) {
            m->params[i].rule = PARAM_AVERAGE;
            m->params[i].keep = 1;
        }
    return ST_OK;
}

/* Applies --label_smoothing, which only training uses. */
static enum status smooth_labels(struct worker *w)
{
    struct layer *loss = &w->model->layers[w->model->n_layers - 1];
    if (w->opt.label_smoothing <= 0 || !w->train)
        return ST_OK;
    if (loss->kind != LAYER_SOFTMAX_XENT) {
        LOG_E(
            "--label_smoothing is for models that end with softmax_cross_entropy, but the model %s ends with %s; remove the flag",
            w->model->name, model_type_name(loss->kind));
        return ST_INVALID;
    }
    loss->smoothing = (float)w->opt.label_smoothing;
    return ST_OK;
}

struct weights_request set_up_weights(const struct worker *w)
{
    const struct options *o = &w->opt;
    struct weights_request q = {.flag = "init",
                                .path = o->init,
                                .checkpoint = w->begins_with,
                                .map = o->init_map,
                                .chunks = w->chunks,
                                .whole = !o->init};
    if (o->evaluate || o->predict) {
        q.flag = o->predict ? "predict" : "evaluate";
        q.path = o->predict ? o->predict : o->evaluate;
    }
    return q;
}

enum status set_up_weights_open(struct worker *w)
{
    const struct weights_request q = set_up_weights(w);
    if (!q.path || !weights_source_is_checkpoint(q.path))
        return ST_OK;
    return weights_source_find_checkpoint(q.flag, q.path, &w->begins_with);
}

static enum status parse_model(struct worker *w, const struct model_data *data)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    TRY(o->model_text
            ? model_parse_for(o->model_text, strlen(o->model_text),
                              o->join ? "of the job" : set_up_weights(w).path, (int)o->hidden_units,
                              data, &w->model)
            : model_read_for(o->model, o->models_dir, (int)o->hidden_units, data, &w->model));
    TRY(smooth_labels(w));
    TRY(set_up_tables_check(w));
    TRY(freeze_params(w));
    TRY(cut_model(w));
done:
    return st;
}

/* Sets the number of classes from the evaluated file, which has a row of weights for each class,
 * because the test set may not contain all classes. */
static enum status add_classes(struct worker *w, struct model_data *data)
{
    enum status st = ST_OK;
    const struct weights_request q = set_up_weights(w);
    int64_t n;
    if (!data->may_lack || w->model->classes_param < 0)
        return ST_OK;
    TRY(weights_extent(&q, w->model->classes_param, &n));
    int64_t least = dataset_has_labels(w->test) ? w->model->classes + 1 : 1;
    if (n < least || n > DATASET_MAX_CLASSES)
        return ST_OK;
    chunks_destroy(w->chunks);
    w->chunks = NULL;
    model_destroy(w->model);
    w->model = NULL;
    data->classes = (int)n;
    data->may_lack = 0;
    TRY(parse_model(w, data));
done:
    return st;
}

enum status set_up_model_choose(struct worker *w)
{
    enum status st = ST_OK;
    struct options *o = &w->opt;
    const struct weights_request q = set_up_weights(w);
    struct weights_source *file = NULL;
    if (o->model_given) {
        if (w->trained_on.model)
            LOG_I("--%s: the worker uses --model=%s, not the model in %s", q.flag, o->model,
                  q.path);
        return ST_OK;
    }
    if (!w->trained_on.model) {
        /* the call logs if the file is of another kind */
        TRY(weights_source_open(q.flag, q.path, q.checkpoint, &file));
        LOG_E(
            "--%s: %s does not contain its model; name the model of the training with --model=FILE or --model=NAME",
            q.flag, q.path);
        TRY(ST_INVALID);
    }
    o->model_text = w->trained_on.model;
    if (o->hidden_units == 0)
        o->hidden_units = w->trained_on.hidden_units;
    LOG_I("--%s: the worker uses the model in %s, because --model is not set", q.flag, q.path);
done:
    weights_source_close(file);
    return st;
}

enum status set_up_model_read(struct worker *w)
{
    enum status st = ST_OK;
    const struct dataset *d = w->test ? w->test : w->train;
    struct model_data data = {.sample = d->sample,
                              .classes = d->classes,
                              .has_targets = d->targets != NULL,
                              .may_lack = !w->train && !d->targets};
    /* a single output, until add_classes finds the number of classes */
    if (!dataset_has_labels(d)) {
        data.has_targets = 1;
        data.classes = 1;
    }
    if (w->train && w->train->classes > data.classes)
        data.classes = w->train->classes;
    if (w->validation && w->validation->classes > data.classes)
        data.classes = w->validation->classes;
    input_keys_describe(d, &data);
    TRY(parse_model(w, &data));
    TRY(add_classes(w, &data));
done:
    return st;
}
