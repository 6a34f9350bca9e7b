/* kernels/cuda/plan/diffs.c - visits the layers in the order of the backward, and records the
 * contents of each buffer. A buffer has the size of the largest gradient that it ever holds. */
#include "kernels/cuda/plan/diffs.h"
#include "base/log.h"
#include <stdlib.h>

/* Returns a bound on the number of buffers: for each layer one gradient of its own and one from
 * other plans, and for one layer the gradients with respect to all its inputs. */
static int most_buffers(int n_layers)
{
    return 2 * n_layers + LAYER_MAX_INPUTS;
}

enum status gpu_diffs_create(int n_layers, struct gpu_diffs *d)
{
    *d = (struct gpu_diffs){.n_buffers = 0};
    d->buffers = calloc((size_t)most_buffers(n_layers), sizeof *d->buffers);
    d->ops = calloc((size_t)n_layers, sizeof *d->ops);
    d->value = calloc((size_t)n_layers, sizeof *d->value);
    if (d->buffers != NULL && d->ops != NULL && d->value != NULL)
        return ST_OK;
    gpu_diffs_destroy(d);
    LOG_E("CUDA backend: no memory left on the host for a plan of %d layers", n_layers);
    return ST_NOMEM;
}

void gpu_diffs_destroy(struct gpu_diffs *d)
{
    free(d->buffers);
    free(d->ops);
    free(d->value);
    *d = (struct gpu_diffs){.n_buffers = 0};
}

static int take_new(struct gpu_diffs *d, int64_t elems)
{
    d->buffers[d->n_buffers] = (struct gpu_diff_buffer){.elems = elems, .users = 1};
    return d->n_buffers++;
}

/* Returns the smallest free buffer that is large enough; otherwise the largest free buffer, which
 * is enlarged; if no buffer is free, a new one. */
static int take(struct gpu_diffs *d, int64_t elems)
{
    int best = -1;
    for (int b = 0; b < d->n_buffers; b++) {
        const struct gpu_diff_buffer *at = &d->buffers[b];
        if (at->users > 0)
            continue;
        int64_t have = best < 0 ? -1 : d->buffers[best].elems;
        if (best < 0 || (have < elems ? at->elems > have : at->elems >= elems && at->elems < have))
            best = b;
    }
    if (best < 0)
        return take_new(d, elems);
    struct gpu_diff_buffer *buffer = &d->buffers[best];
    buffer->users = 1;
    buffer->elems = buffer->elems > elems ? buffer->elems : elems;
    return best;
}

static void give_back(struct gpu_diffs *d, int buffer)
{
    if (buffer >= 0)
        d->buffers[buffer].users--;
}

/* Sets dy of a layer: the gradient from its readers, from other plans, or the sum of both. */
static void dy_plan(struct gpu_diffs *d, int i, int exported, int64_t elems)
{
    struct gpu_diff_op *op = &d->ops[i];
    op->dy = d->value[i];
    if (!exported)
        return;
    /* a separate buffer, because other plans may write to it at any time */
    op->given = take_new(d, elems);
    op->own = op->dy;
    if (op->own >= 0 && d->buffers[op->own].users == 1)
        return;
    give_back(d, op->own);
    op->dy = op->given;
}

/* Adds a reader's gradient to the gradient with respect to the output of layer `from`; the first
 * reader's gradient becomes that gradient. Returns the buffer that is not needed any more; -1:
 * none. */
static int part_plan(struct gpu_diffs *d, const struct gpu_diff_op *op, struct gpu_diff_edge *e,
                     int from, int64_t elems)
{
    int apart = e->dx != op->dy;
    e->other = d->value[from];
    if (e->other < 0) {
        d->value[from] = e->dx;
        d->buffers[e->dx].users += !apart;
        return -1;
    }
    if (d->buffers[e->other].users == 1) {
        e->sum = e->other;
        return apart ? e->dx : -1;
    }
    e->sum = apart ? e->dx : take(d, elems);
    give_back(d, e->other);
    d->value[from] = e->sum;
    return -1;
}

static void op_plan(const struct backend_plan_config *cfg, const struct graph_node *node,
                    struct gpu_diffs *d, int i)
{
    const struct layer *l = &cfg->layers[i];
    struct gpu_diff_op *op = &d->ops[i];
    int over[LAYER_MAX_INPUTS], n_over = 0;
    dy_plan(d, i, graph_exported(&node[i]), cfg->batch * shape_elems(&l->out));
    for (int k = 0; k < l->n_inputs; k++) {
        struct gpu_diff_edge *e = &op->edge[k];
        int from = l->input[k], wanted = graph_input_trained(node, l, k);
        if (!wanted && (k > 0 || !op->wants_dx))
            continue;
        int64_t elems = cfg->batch * shape_elems(from < 0 ? &l->in : &cfg->layers[from].out);
        int here = op->way == GPU_DIFF_SAME ||
                   (op->way == GPU_DIFF_IN_PLACE && d->buffers[op->dy].users == 1);
        e->dx = here ? op->dy : take(d, elems);
        int done = wanted ? part_plan(d, op, e, from, elems) : here ? -1 : e->dx;
        if (done >= 0)
            over[n_over++] = done;
    }
    /* buffers are released only at this point, because a layer computes the gradients with respect
     * to all its inputs before any of them is added to a sum */
    for (int k = 0; k < n_over; k++)
        give_back(d, over[k]);
    give_back(d, op->dy);
}

void gpu_diffs_plan(const struct backend_plan_config *cfg, const struct graph_node *node,
                    struct gpu_diffs *d)
{
    for (int i = 0; i < cfg->n_layers; i++) {
        d->value[i] = d->ops[i].dy = d->ops[i].own = d->ops[i].given = -1;
        for (int k = 0; k < LAYER_MAX_INPUTS; k++)
            d->ops[i].edge[k] = (struct gpu_diff_edge){-1, -1, -1};
    }
    for (int i = cfg->n_layers - 1; i >= 0; i--)
        if (node[i].mine && node[i].trained)
            op_plan(cfg, node, d, i);
}
