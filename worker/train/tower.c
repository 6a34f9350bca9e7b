/* worker/train/tower.c - creates a tower, and loads its batches, directly or from its reader's
 * thread. */
#include "worker/train/tower.h"
#include "base/aligned.h"
#include "base/log.h"
#include "base/trace.h"
#include "kernels/parts.h"
#include "worker/data/dataset_targets.h"
#include "worker/train/largest_grad.h"
#include <stdlib.h>

static enum status no_memory(const struct tower *t, const char *what)
{
    LOG_E("out of memory for %s of tower %d", what, t->index);
    return ST_NOMEM;
}

static bool is_rounded(const struct tower *t)
{
    const struct trainer_config *cfg = t->cfg;
    int is_16 = cfg->push_dtype == DTYPE_BF16 || cfg->push_dtype == DTYPE_F16;
    return is_16 && cfg->n_towers == 1 && t->spec.n_others == 0 && t->spec.own.backend->grads16 &&
           cfg->updates && cfg->updates->ops->push_encoded && cfg->clip_norm == 0;
}

/* Allocates memory for the gradients of all parameters in this dtype, in the exchange's segment if
 * there is one. */
static void *allocate_grads(struct tower *t, enum dtype dtype)
{
    const struct updates *x = t->cfg->updates;
    size_t bytes = dtype_bytes(dtype, (size_t)t->cfg->chunks->n_elems);
    if (t->index == 0 && x && x->ops->gradients)
        t->segment = x->ops->gradients(x->ctx, dtype);
    if (t->segment)
        return segment_data(t->segment);
    t->own_grads = aligned_take(bytes);
    return t->own_grads;
}

static enum status alloc_rounded(struct tower *t)
{
    const struct trainer_config *cfg = t->cfg;
    const struct chunks *c = cfg->chunks;
    t->grads16 = allocate_grads(t, cfg->push_dtype);
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
    t->grads = of ? of->grads : allocate_grads(t, DTYPE_F32);
    t->grad_of = calloc((size_t)c->n_params, sizeof *t->grad_of);
    if (!t->grads || !t->grad_of)
        return no_memory(t, "the gradients");
    for (int i = 0; i < c->n_params; i++)
        t->grad_of[i] = t->grads + c->params[i].first;
    return ST_OK;
}

/* Creates the stages. member: see tower_create; NULL for inference. */
static enum status make_stages(struct tower *t, const struct tower_member *member, int inference)
{
    enum status st = ST_OK;
    const struct trainer_config *cfg = t->cfg;
    const struct tower_spec *spec = &t->spec;
    struct parts_config parts = {.elems = tower_part_elems(cfg),
                                 .largest_grad = largest_grad_in_any_case(cfg)};
    bool in_parts = !inference && cfg->n_towers == 1 && !(member && member->group);
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
                .rounded = cfg->rounded,
                .inference_only = inference,
                .group = member ? member->group : NULL,
                .rank = member ? member->rank : 0,
                .parts = in_parts ? &parts : NULL,
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

static enum status create_tower(const struct trainer_config *cfg, const struct tower_spec *spec,
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
        t->now.augment = t->ahead.augment = cfg->augment;
        t->now.seed = t->ahead.seed = cfg->seed;
    }
    TRY(tower_batch_create(inference ? cfg->test : cfg->train, t->spec.n, &t->now));
    TRY(make_stages(t, member, inference));
    if (inference)
        TRY(tower_tables_create(cfg, 1, true, &t->tables));
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
    return create_tower(cfg, spec, index, member, 0, out);
}

enum status tower_create_inference(const struct trainer_config *cfg, const struct tower_spec *spec,
                                   struct tower **out)
{
    return create_tower(cfg, spec, 0, NULL, 1, out);
}

void tower_destroy(struct tower *t)
{
    if (!t)
        return;
    read_ahead_destroy(t->reader);
    split_tower_destroy(t->stages);
    tower_tables_free(t->tables, t->cfg->model->n_layers);
    dataset_order_destroy(t->order);
    free(t->own_grads);
    segment_unref(t->segment);
    free(t->grad_of);
    free(t->grad16_of);
    free(t->param_of);
    tower_batch_free(&t->now);
    tower_batch_free(&t->ahead);
    free(t);
}

void tower_set_place(struct tower *t, const struct net_place *place)
{
    if (t->reader)
        read_ahead_wait(t->reader); /* ends any read in the reader's thread, which reads t->place */
    t->place = *place;
}

struct member_steps tower_steps(const struct tower *t, const struct updates *x, int own_pace)
{
    int64_t n = t->cfg->local_steps;
    return (struct member_steps){x, &t->place, own_pace, n > 1 ? n : 1, t->cfg->batch};
}

/* The position does not depend on the division into towers: two towers of one worker read the same
 * samples as two workers. */
uint64_t tower_position(const struct tower *t, int64_t local_step)
{
    const struct member_steps m = tower_steps(t, NULL, 0);
    return member_steps_position(&m, local_step) + (uint64_t)t->spec.first;
}

/* Reads the first n samples of the batch, and their keys. Samples that are on the device need no
 * read. */
static enum status read_samples(const struct tower *t, struct tower_batch *b,
                                const struct dataset *d, int n)
{
    enum status st = t->data ? ST_OK : tower_batch_read(b, d, n);
    return st == ST_OK ? batch_keys_read(&b->keys, d, b->item, n) : st;
}

/* Reads the tower's next samples, beginning with the sample at the global position `at`. */
static enum status read_batch(struct tower *t, struct tower_batch *b, uint64_t at)
{
    for (int i = 0; i < t->spec.n; i++) {
        b->position[i] = net_place_sample(&t->place, at + (uint64_t)i);
        b->item[i] = (uint32_t)dataset_order_item(t->order, b->position[i]);
    }
    return read_samples(t, b, t->cfg->train, t->spec.n);
}

/* Sends the first n samples of t->now, which were read from `d`, to the stages. */
static enum status put_batch(struct tower *t, const struct dataset *d, int n)
{
    const struct tower_batch *b = &t->now;
    bool targets = dataset_by_targets(d, t->cfg->model->classes);
    if (t->data)
        return split_tower_set_items(t->stages, t->data, b->item, b->position, n);
    enum status st = dataset_is_bytes(d)
                         ? split_tower_set_input(t->stages, b->images, targets ? NULL : b->labels,
                                                 b->position, n)
                         : split_tower_set_floats(t->stages, (const float *const *)b->rows,
                                                  targets ? NULL : b->classes, b->position, n);
    return st == ST_OK && targets ? split_tower_set_targets(t->stages, b->targets, n) : st;
}

/* Runs in the reader's thread. Until the call ends, only this thread uses t->ahead, t->ahead_at and
 * t->order. */
static enum status read_in_thread(void *ctx)
{
    struct tower *t = ctx;
    int64_t begin = trace_begin();
    enum status st = read_batch(t, &t->ahead, t->ahead_at);
    trace_end(begin, TRACE_READ, "read batch", NULL, -1, t->ahead_step);
    return st;
}

enum status tower_make_reader(struct tower *t)
{
    enum status st = ST_OK;
    const struct dataset *d = t->cfg->train;
    if (t->cfg->own_pace) /* nothing is read ahead, because the servers assign the next samples only
                             in their answers to this step */
        return ST_OK;
    bool is_ready = dataset_is_bytes(d) && !d->in_file && !job_input_augments(&t->now.augment);
    if (t->now.keys.n == 0 && (t->data || is_ready))
        return ST_OK;
    TRY(tower_batch_create(d, t->spec.n, &t->ahead));
    TRY(read_ahead_create(read_in_thread, t, t->index, &t->reader));
done:
    return st;
}

void tower_read_ahead(struct tower *t, uint64_t at, int64_t step)
{
    if (!t->reader)
        return;
    read_ahead_wait(t->reader);
    t->ahead_at = at;
    t->ahead_step = step;
    t->is_ahead = true;
    read_ahead_start(t->reader);
}

const struct bags *tower_ahead_bags(struct tower *t)
{
    if (!t->reader || read_ahead_wait(t->reader) != ST_OK || !t->is_ahead)
        return NULL;
    return t->ahead.keys.bags;
}

enum status tower_load_batch(struct tower *t, uint64_t at)
{
    enum status st = t->reader ? read_ahead_wait(t->reader) : ST_OK;
    if (t->is_ahead && t->ahead_at == at) {
        struct tower_batch swap = t->now;
        TRY(st);
        t->now = t->ahead;
        t->ahead = swap;
        t->n_ahead++;
    } else {
        TRY(read_batch(t, &t->now, at));
    }
    st = put_batch(t, t->cfg->train, t->spec.n);
done:
    t->is_ahead = false;
    return st;
}

enum status tower_load_test(struct tower *t, int64_t first, int n)
{
    enum status st = ST_OK;
    for (int i = 0; i < n; i++) {
        t->now.position[i] = (uint64_t)(first + i);
        t->now.item[i] = (uint32_t)(first + i);
    }
    TRY(read_samples(t, &t->now, t->cfg->test, n));
    st = put_batch(t, t->cfg->test, n);
done:
    return st;
}
