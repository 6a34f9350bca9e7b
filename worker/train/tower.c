/* worker/train/tower.c - see tower.h. */
#include "worker/train/tower.h"
#include "base/aligned.h"
#include "base/log.h"
#include <stdlib.h>

static enum status no_memory(const struct tower *t, const char *what)
{
    LOG_E("out of memory for %s of tower %d", what, t->index);
    return ST_NOMEM;
}

static int is_rounded(const struct tower *t)
{
    const struct trainer_config *cfg = t->cfg;
    return cfg->push_dtype != DTYPE_F32 && cfg->n_towers == 1 && t->spec.n_others == 0 &&
           t->spec.own.backend->grads16 && cfg->updates && cfg->updates->ops->push_encoded &&
           cfg->clip_norm == 0;
}

/* Memory for one value of this dtype per parameter, in the exchange's segment if it has one. */
static void *take_grads(struct tower *t, enum dtype dtype)
{
    const struct updates *x = t->cfg->updates;
    size_t bytes = (size_t)t->cfg->chunks->n_elems * dtype_size(dtype);
    if (t->index == 0 && x && x->ops->gradients)
        t->segment = x->ops->gradients(x->ctx, dtype);
    if (t->segment)
        return net_shared_data(t->segment);
    t->own_grads = aligned_take(bytes);
    return t->own_grads;
}

static enum status alloc_rounded(struct tower *t)
{
    const struct trainer_config *cfg = t->cfg;
    const struct chunks *c = cfg->chunks;
    t->grads16 = take_grads(t, cfg->push_dtype);
    t->grad16_of = calloc((size_t)c->n_params, sizeof *t->grad16_of);
    if (!t->grads16 || !t->grad16_of)
        return no_memory(t, "the gradients");
    for (int i = 0; i < c->n_params; i++)
        t->grad16_of[i] = t->grads16 + c->params[i].first;
    LOG_I("%s:%d rounds gradients to %s", t->spec.own.backend->name, t->spec.own.device,
          dtype_name(cfg->push_dtype));
    return ST_OK;
}

static enum status alloc_grads(struct tower *t, const struct tower *of)
{
    const struct chunks *c = t->cfg->chunks;
    if (is_rounded(t))
        return alloc_rounded(t);
    t->grads = of ? of->grads : take_grads(t, DTYPE_F32);
    t->grad_of = calloc((size_t)c->n_params, sizeof *t->grad_of);
    if (!t->grads || !t->grad_of)
        return no_memory(t, "the gradients");
    for (int i = 0; i < c->n_params; i++)
        t->grad_of[i] = t->grads + c->params[i].first;
    return ST_OK;
}

static enum status alloc_batch(struct tower *t)
{
    size_t n = (size_t)t->spec.n;
    t->item = calloc(n, sizeof *t->item);
    t->images = calloc(n, sizeof *t->images);
    t->labels = calloc(n, sizeof *t->labels);
    t->position = calloc(n, sizeof *t->position);
    t->rows = calloc(n, sizeof *t->rows);
    t->classes = calloc(n, sizeof *t->classes);
    return t->item && t->images && t->labels && t->position && t->rows && t->classes
               ? ST_OK
               : no_memory(t, "the batch");
}

/* Memory for samples that are read as floats. */
static enum status alloc_floats(struct tower *t, const struct dataset *d)
{
    size_t elems = (size_t)shape_elems(&d->sample);
    if (dataset_is_bytes(d))
        return ST_OK;
    t->floats = aligned_take((size_t)t->spec.n * elems * sizeof(float));
    for (int i = 0; t->floats && i < t->spec.n; i++)
        t->rows[i] = t->floats + (size_t)i * elems;
    return t->floats ? ST_OK : no_memory(t, "the samples");
}

/* member: see tower_create; training alone. */
static enum status make_stages(struct tower *t, const struct tower_member *member, int inference)
{
    enum status st = ST_OK;
    const struct trainer_config *cfg = t->cfg;
    const struct tower_spec *spec = &t->spec;
    struct split_tower_config sc = {
        .plan =
            {
                .layers = cfg->model->layers,
                .n_layers = cfg->model->n_layers,
                .batch = spec->n,
                .n_params = cfg->chunks->n_params,
                .params = t->param_of,
                .grads = t->grad_of,
                .grads16 = (uint16_t *const *)t->grad16_of,
                .grads_dtype = cfg->push_dtype,
                .seed = cfg->seed,
                .inference_only = inference,
                .group = member ? member->group : NULL,
                .rank = member ? member->rank : 0,
            },
        .n = 1 + spec->n_others,
        .after = cfg->model->after,
        .n_after = cfg->model->n_after,
        .stage_of = spec->stage_of,
    };
    struct tower_device *devices = calloc((size_t)sc.n, sizeof *devices);
    if (!devices)
        return no_memory(t, "the devices");
    devices[0] = spec->own;
    for (int i = 0; i < spec->n_others; i++)
        devices[1 + i] = spec->others[i];
    sc.device = devices;
    TRY(split_tower_create(&sc, &t->stages));
done:
    free(devices);
    return st;
}

static enum status create(const struct trainer_config *cfg, const struct tower_spec *spec,
                          int index, const struct tower_member *member, int inference,
                          struct tower **out)
{
    enum status st = ST_OK;
    struct tower *t = calloc(1, sizeof *t);
    if (!t) {
        LOG_E("out of memory for tower %d", index);
        return ST_NOMEM;
    }
    t->cfg = cfg;
    t->spec = *spec;
    t->index = index;
    t->param_of = calloc((size_t)cfg->chunks->n_params, sizeof *t->param_of);
    if (!t->param_of) {
        st = no_memory(t, "the parameters");
        goto done;
    }
    for (int i = 0; i < cfg->chunks->n_params; i++)
        t->param_of[i] = cfg->params + cfg->chunks->params[i].first;
    if (!inference) {
        TRY(alloc_grads(t, member ? member->first : NULL));
        TRY(dataset_order_create(cfg->train->n, cfg->seed, &t->order));
    }
    TRY(alloc_batch(t));
    TRY(alloc_floats(t, inference ? cfg->test : cfg->train));
    TRY(make_stages(t, member, inference));
done:
    if (st == ST_OK)
        *out = t;
    else
        tower_destroy(t);
    return st;
}

enum status tower_create(const struct trainer_config *cfg, const struct tower_spec *spec, int index,
                         const struct tower_member *member, struct tower **out)
{
    return create(cfg, spec, index, member, 0, out);
}

enum status tower_create_inference(const struct trainer_config *cfg, const struct tower_spec *spec,
                                   struct tower **out)
{
    return create(cfg, spec, 0, NULL, 1, out);
}

void tower_destroy(struct tower *t)
{
    if (!t)
        return;
    split_tower_destroy(t->stages);
    dataset_order_destroy(t->order);
    free(t->own_grads);
    net_shared_unref(t->segment);
    free(t->grad_of);
    free(t->grad16_of);
    free(t->param_of);
    free(t->item);
    free(t->images);
    free(t->labels);
    free(t->rows);
    free(t->floats);
    free(t->classes);
    free(t->position);
    free(t);
}

void tower_set_place(struct tower *t, const struct net_place *place)
{
    t->place = *place;
}

/* The step's samples of all workers lie side by side, a worker's in one run, so that two towers of
 * one worker and two workers read the same. */
uint64_t tower_position(const struct tower *t, int64_t local_step)
{
    return net_place_position(&t->place, t->cfg->batch, local_step) + (uint64_t)t->spec.first;
}

static enum status load_floats(struct tower *t, const struct dataset *d, int n)
{
    enum status st = ST_OK;
    for (int i = 0; i < n; i++) {
        TRY(dataset_sample(d, t->item[i], t->rows[i]));
        t->classes[i] = d->labels[t->item[i]];
    }
    TRY(split_tower_set_floats(t->stages, (const float *const *)t->rows, t->classes, t->position,
                               n));
done:
    return st;
}

/* The n items and positions that are noted, of this data set. */
static enum status load_items(struct tower *t, const struct dataset *d, int n)
{
    size_t pixels = (size_t)shape_elems(&d->sample);
    if (t->data)
        return split_tower_set_items(t->stages, t->data, t->item, t->position, n);
    if (!dataset_is_bytes(d))
        return load_floats(t, d, n);
    for (int i = 0; i < n; i++) {
        t->images[i] = d->bytes + (size_t)t->item[i] * pixels;
        t->labels[i] = (uint8_t)d->labels[t->item[i]];
    }
    return split_tower_set_input(t->stages, t->images, t->labels, t->position, n);
}

enum status tower_load_batch(struct tower *t, uint64_t at)
{
    for (int i = 0; i < t->spec.n; i++) {
        t->position[i] = at + (uint64_t)i;
        t->item[i] = (uint32_t)dataset_order_item(t->order, t->position[i]);
    }
    return load_items(t, t->cfg->train, t->spec.n);
}

enum status tower_load_test(struct tower *t, int64_t first, int n)
{
    for (int i = 0; i < n; i++) {
        t->position[i] = (uint64_t)(first + i);
        t->item[i] = (uint32_t)(first + i);
    }
    return load_items(t, t->cfg->test, n);
}
