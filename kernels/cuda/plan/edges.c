/* kernels/cuda/plan/edges.c - sums the gradients of outputs with several readers, and exchanges
 * tensors with other plans. A tensor from another plan is first copied to pinned memory of this
 * plan, from which a copy to the device is queued on `compute`. So the caller may reuse its own
 * memory at once. */
#include "kernels/cuda/plan/edges.h"
#include "base/log.h"
#include "kernels/cuda/conv/channels.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/transfer.h"
#include <stdlib.h>
#include <string.h>

float **gpu_edges_input(struct gpu_plan *plan, int i, int k)
{
    int from = plan->cfg.layers[i].input[k];
    return from < 0 ? &plan->input : plan->ops[from].y;
}

static float **buffer_at(struct gpu_plan *plan, int buffer)
{
    return buffer >= 0 ? &plan->diffs.buffers[buffer].d : NULL;
}

void gpu_edges_plan(struct gpu_plan *plan)
{
    int n = plan->cfg.n_layers;
    for (int i = 0; i < n; i++)
        if (plan->ops[i].kind != NULL) {
            plan->diffs.ops[i].way = plan->ops[i].kind->way;
            plan->diffs.ops[i].wants_dx = plan->ops[i].kind->wants_dx;
        }
    gpu_diffs_plan(&plan->cfg, plan->node, &plan->diffs);
    for (int i = 0; i < n; i++) {
        plan->ops[i].dx = buffer_at(plan, plan->diffs.ops[i].edge[0].dx);
        plan->ops[i].dy = buffer_at(plan, plan->diffs.ops[i].dy);
    }
}

static int64_t elems_of(const struct gpu_plan *plan, int layer, int n)
{
    return n * shape_elems(&plan->cfg.layers[layer].out);
}

/* Returns true if this plan receives a tensor of this layer from another plan. */
static int has_crossing(const struct gpu_plan *plan, int layer)
{
    return graph_imported(&plan->node[layer]) || plan->diffs.ops[layer].given >= 0;
}

enum status gpu_edges_create(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    plan->crossing = calloc((size_t)plan->cfg.n_layers, sizeof *plan->crossing);
    if (plan->crossing == NULL)
        return gpu_check_no_host_memory();
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        struct gpu_edges_crossing *c = &plan->crossing[i];
        if (!has_crossing(plan, i))
            continue;
        size_t bytes = (size_t)elems_of(plan, i, plan->cfg.batch) * sizeof(float);
        TRY(gpu_check_cuda(&plan->ops[i], "cudaHostAlloc",
                           cudaHostAlloc((void **)&c->host, bytes, cudaHostAllocDefault)));
        TRY(gpu_transfer_event_create(&plan->ops[i], &c->read));
    }
done:
    return st;
}

void gpu_edges_destroy(struct gpu_plan *plan)
{
    for (int i = 0; plan->crossing != NULL && i < plan->cfg.n_layers; i++) {
        if (plan->crossing[i].read != NULL)
            cudaEventDestroy(plan->crossing[i].read);
        if (plan->crossing[i].host != NULL)
            cudaFreeHost(plan->crossing[i].host);
    }
    free(plan->crossing);
}

void gpu_edges_begin(struct gpu_plan *plan)
{
    for (int i = 0; i < plan->cfg.n_layers; i++)
        plan->crossing[i].n_given = 0;
}

static enum status add_parts(struct gpu_pass *pass, const struct gpu_op *op, const int abd[3],
                             int64_t elems)
{
    const struct gpu_diff_buffer *b = pass->plan->diffs.buffers;
    return gpu_check_kernel(
        op, "sum kernel",
        gpu_add(pass->plan->compute, b[abd[0]].d, b[abd[1]].d, b[abd[2]].d, elems, 0));
}

enum status gpu_edges_backward(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct gpu_diff_op *diff = &plan->diffs.ops[i];
    if (diff->given >= 0 && plan->crossing[i].n_given == 0) {
        LOG_E("layer '%s': other devices read its output, but none sent its gradient",
              op->layer->name);
        return ST_UNSUPPORTED;
    }
    plan->crossing[i].n_given = 0;
    TRY(gpu_branch_wait(plan, i));
    if (diff->own >= 0)
        TRY(add_parts(pass, op, (int[]){diff->own, diff->given, diff->dy},
                      elems_of(plan, i, pass->n)));
    TRY(op->kind->backward(pass, i));
    for (int k = 0; k < op->layer->n_inputs; k++) {
        const struct gpu_diff_edge *e = &diff->edge[k];
        if (e->sum >= 0)
            TRY(add_parts(pass, op, (int[]){e->other, e->dx, e->sum},
                          elems_of(plan, op->layer->input[k], pass->n)));
    }
done:
    return st;
}

/* Queues the copy of a received tensor from pinned memory to the device. */
static enum status send_crossing(struct gpu_plan *plan, int layer, float *d)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[layer];
    const struct gpu_edges_crossing *c = &plan->crossing[layer];
    size_t bytes = (size_t)elems_of(plan, layer, plan->now->n) * sizeof(float);
    TRY(gpu_check_cuda(op, "cudaMemcpyAsync",
                       cudaMemcpyAsync(d, c->host, bytes, cudaMemcpyHostToDevice, plan->compute)));
    TRY(gpu_check_cuda(op, "cudaEventRecord", cudaEventRecord(c->read, plan->compute)));
done:
    return st;
}

enum status gpu_edges_set_output(struct gpu_plan *plan, int layer, const float *src)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[layer];
    const struct gpu_edges_crossing *c = &plan->crossing[layer];
    TRY(gpu_check_cuda(op, "cudaEventSynchronize", cudaEventSynchronize(c->read)));
    memcpy(c->host, src, (size_t)elems_of(plan, layer, plan->now->n) * sizeof *src);
    TRY(send_crossing(plan, layer, *op->y));
done:
    return st;
}

/* Refuses a layer whose output has no gradient. */
static enum status trained_check(const struct gpu_plan *plan, int layer)
{
    if (!plan->cfg.inference_only && plan->node[layer].trained)
        return ST_OK;
    LOG_E("layer '%s': there is no gradient with respect to its output: %s",
          plan->cfg.layers[layer].name,
          plan->cfg.inference_only ? "the plan is for inference"
                                   : "the output depends on no parameters");
    return ST_UNSUPPORTED;
}

enum status gpu_edges_set_output_grad(struct gpu_plan *plan, int layer, const float *src)
{
    enum status st = ST_OK;
    struct gpu_edges_crossing *c = &plan->crossing[layer];
    int64_t elems = elems_of(plan, layer, plan->now->n);
    TRY(trained_check(plan, layer));
    TRY(gpu_check_cuda(&plan->ops[layer], "cudaEventSynchronize", cudaEventSynchronize(c->read)));
    for (int64_t k = 0; k < elems; k++)
        c->host[k] = c->n_given > 0 ? c->host[k] + src[k] : src[k];
    TRY(send_crossing(plan, layer, plan->diffs.buffers[plan->diffs.ops[layer].given].d));
    c->n_given++;
done:
    return st;
}

/* Copies a layer's output, or the gradient with respect to it, to the host. */
static enum status read_out(struct gpu_plan *plan, int layer, const float *d, float *dst)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[layer];
    size_t bytes = (size_t)elems_of(plan, layer, plan->now->n) * sizeof(float);
    TRY(gpu_check_cuda(op, "cudaMemcpyAsync",
                       cudaMemcpyAsync(dst, d, bytes, cudaMemcpyDeviceToHost, plan->compute)));
    TRY(gpu_check_cuda(op, "cudaStreamSynchronize", cudaStreamSynchronize(plan->compute)));
    if (op->y_last)
        TRY(gpu_channels_first(dst, &op->layer->out, plan->now->n));
done:
    return st;
}

enum status gpu_edges_read_output(struct gpu_plan *plan, int layer, float *dst)
{
    const struct gpu_op *op = &plan->ops[layer];
    if (op->overwritten || op->pooled || op->y == NULL) {
        LOG_E("layer '%s': its output cannot be read: %s", op->layer->name,
              op->pooled ? "the max pool after it keeps only the maxima; read the pool's output"
              : op->overwritten ? "the relu after it overwrites the output; read the relu's output"
                                : "another plan computes it");
        return ST_UNSUPPORTED;
    }
    return read_out(plan, layer, *op->y, dst);
}

enum status gpu_edges_read_output_grad(struct gpu_plan *plan, int layer, float *dst)
{
    enum status st = ST_OK;
    TRY(trained_check(plan, layer));
    TRY(read_out(plan, layer, plan->diffs.buffers[plan->diffs.value[layer]].d, dst));
done:
    return st;
}
