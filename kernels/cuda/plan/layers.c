/* kernels/cuda/plan/layers.c - queues forward and backward of the layers, directly or as CUDA
 * graphs.
 *
 * DESIGN of `capture`. A layer's parameters arrive just before its forward, and its gradients are
 * copied while the layers below compute, so a step cannot be one graph:
 * - Forward: each layer with parameters begins a graph, which includes the next layers without
 *   parameters. The layers before the first such layer are a graph, too. A graph is launched when
 *   its first layer is called; the calls for its other layers queue nothing.
 * - Backward: between its layers the device needs no data from the host, so the backward is one
 *   graph, which is launched when the topmost layer is called. A layer's gradients are sent when
 *   that layer is called.
 *
 * Events that other streams or the host record or wait for are nodes in the graphs: a launch waits
 * for the work that these events mark at the time of the launch, and records events as
 * cudaEventRecord would at this point of the stream. So the streams `up` and `down` work as without
 * graphs. The second stream of `branches` is captured, too (branch.c). A graph contains pointers to
 * the plan's memory, which does not move, and the algorithms of the plan's first pass. If these
 * change, gpu_layer_capture_invalidate discards the graphs. The first training step with a whole
 * batch runs uncaptured, because libraries initialise themselves in it. Layers are queued one by
 * one in other passes (inference, fewer samples, no labels), in plans with only some of the layers,
 * and after a failed capture. */
#include "kernels/cuda/plan/layers.h"
#include "base/log.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/edges.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/plan/transfer.h"
#include "kernels/tuning.h"
#include <stdlib.h>

struct graph {
    cudaGraphExec_t exec; /* NULL: the graph is empty, or is not captured */
    int is_captured;
};

struct gpu_layer_capture {
    struct graph *forward; /* [n_layers] each graph is stored at its first layer */
    struct graph backward;
    int top, lowest; /* range of the layers with a backward */
    int is_warm;     /* true: a step has already run without a capture */
    int has_failed, is_invalid;
    int has_targets;               /* true: the forwards were captured with targets */
    int forward_next, forward_end; /* range of layers whose forward is queued, but not called yet */
    /* first queued layer whose backward the caller has not called yet; the last queued layer is
     * `lowest`; -1: no layer is queued */
    int backward_next;
};

/* ---- layer by layer; external: flag of CUDA's events during a capture ---- */

static cudaError_t event_record(cudaStream_t stream, cudaEvent_t event, unsigned external)
{
    return external ? cudaEventRecordWithFlags(event, stream, external)
                    : cudaEventRecord(event, stream);
}

/* Queues the copy of the losses and of the results for each sample to the host, after the forward
 * that computes them. */
static enum status result_send(struct gpu_plan *plan, const struct gpu_op *op, unsigned external)
{
    enum status st = ST_OK;
    TRY(gpu_check_cuda(op, "cudaMemcpyAsync",
                       cudaMemcpyAsync(plan->host_result, plan->d_result,
                                       (size_t)plan->now->n * (sizeof(double) + sizeof(int32_t)),
                                       cudaMemcpyDeviceToHost, plan->compute)));
    TRY(gpu_check_cuda(op, "cudaEventRecord",
                       event_record(plan->compute, plan->result_ready, external)));
done:
    return st;
}

static enum status queue_forward(struct gpu_plan *plan, int layer, int train, unsigned external)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[layer];
    TRY(gpu_transfer_wait_params(plan, layer, external));
    TRY(op->kind->forward(plan->now, layer, train));
    if (layer_is_loss(op->layer->kind) && plan->has_labels)
        TRY(result_send(plan, op, external));
    if (op->layer->n_params > 0)
        TRY(gpu_check_cuda(op, "cudaEventRecord",
                           event_record(plan->compute, plan->used[layer], external)));
done:
    return st;
}

static enum status queue_backward(struct gpu_plan *plan, int layer, unsigned external)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[layer];
    int has_params = op->layer->n_params > 0;
    if (has_params)
        TRY(gpu_check_cuda(op, "cudaStreamWaitEvent",
                           cudaStreamWaitEvent(plan->compute, plan->copied[layer], external)));
    TRY(gpu_edges_backward(plan->now, layer));
    if (has_params) {
        TRY(gpu_check_cuda(op, "cudaEventRecord",
                           event_record(plan->compute, plan->used[layer], external)));
        TRY(gpu_transfer_check(plan, layer));
        TRY(gpu_check_cuda(
            op, "cudaEventRecord",
            event_record(gpu_branch_stream(plan, layer), plan->ready[layer], external)));
    }
    TRY(gpu_branch_join(plan, layer));
done:
    return st;
}

/* ---- graphs ---- */

enum status gpu_layer_capture_create(struct gpu_plan *plan)
{
    const struct backend_plan_config *cfg = &plan->cfg;
    if (!(cfg->tuning & TUNING_CAPTURE) || cfg->inference_only || cfg->mine != NULL)
        return ST_OK;
    struct gpu_layer_capture *c = calloc(1, sizeof *c);
    if (c == NULL)
        return gpu_check_no_host_memory();
    plan->capture = c;
    c->forward = calloc((size_t)cfg->n_layers, sizeof *c->forward);
    if (c->forward == NULL)
        return gpu_check_no_host_memory();
    c->top = c->lowest = c->backward_next = -1;
    for (int i = cfg->n_layers - 1; i >= 0; i--)
        if (plan->ops[i].needs_backward) {
            c->top = c->top >= 0 ? c->top : i;
            c->lowest = i;
        }
    return ST_OK;
}

static void graph_drop(struct graph *g)
{
    if (g->exec != NULL)
        cudaGraphExecDestroy(g->exec);
    *g = (struct graph){0};
}

static void graphs_drop(struct gpu_plan *plan)
{
    struct gpu_layer_capture *c = plan->capture;
    for (int i = 0; i < plan->cfg.n_layers; i++)
        graph_drop(&c->forward[i]);
    graph_drop(&c->backward);
    c->is_warm = c->is_invalid = 0;
}

void gpu_layer_capture_destroy(struct gpu_plan *plan)
{
    if (plan->capture == NULL)
        return;
    if (plan->capture->forward != NULL)
        graphs_drop(plan);
    free(plan->capture->forward);
    free(plan->capture);
}

void gpu_layer_capture_invalidate(const struct gpu_plan *plan)
{
    if (plan->capture != NULL)
        plan->capture->is_invalid = 1;
}

/* Sets *out to true if the current pass can use graphs. Drops existing graphs that do not fit this
 * pass. */
static enum status is_for_graphs(struct gpu_plan *plan, int *out)
{
    enum status st = ST_OK;
    struct gpu_layer_capture *c = plan->capture;
    *out = 0;
    if (c == NULL || c->has_failed || !plan->trains || !plan->has_labels ||
        plan->now != plan->pass[0])
        return ST_OK;
    if (c->is_invalid || c->has_targets != plan->has_targets) {
        TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(plan->compute)));
        graphs_drop(plan);
        c->has_targets = plan->has_targets;
    }
    *out = c->is_warm;
done:
    return st;
}

/* Returns the first layer after the graph that begins with this layer. */
static int forward_end(const struct gpu_plan *plan, int layer)
{
    do
        layer++;
    while (layer < plan->cfg.n_layers && plan->cfg.layers[layer].n_params == 0);
    return layer;
}

static enum status forward_queue(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    for (int i = layer; i < forward_end(plan, layer); i++)
        TRY(queue_forward(plan, i, 1, cudaEventRecordExternal));
done:
    return st;
}

static enum status backward_queue(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    for (int i = layer; i >= 0; i--)
        if (plan->ops[i].needs_backward)
            TRY(queue_backward(plan, i, cudaEventRecordExternal));
done:
    return st;
}

/* Captures the work that `queue` queues from this layer on. After a failure no graphs are used. */
static void capture_graph(struct gpu_plan *plan,
                          enum status (*queue)(struct gpu_plan *plan, int layer), int layer,
                          struct graph *out)
{
    cudaGraph_t graph = NULL;
    size_t n_nodes = 0;
    _Static_assert(cudaEventRecordExternal == cudaEventWaitExternal, "one flag for both");
    cudaError_t code = cudaStreamBeginCapture(plan->compute, cudaStreamCaptureModeThreadLocal);
    if (code == cudaSuccess) {
        enum status st = queue(plan, layer);
        code = cudaStreamEndCapture(plan->compute, &graph);
        if (code == cudaSuccess && st != ST_OK)
            code = cudaErrorStreamCaptureInvalidated;
    }
    if (code == cudaSuccess)
        code = cudaGraphGetNodes(graph, NULL, &n_nodes);
    if (code == cudaSuccess && n_nodes > 0)
        code = cudaGraphInstantiate(&out->exec, graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (code == cudaSuccess) {
        out->is_captured = 1;
        return;
    }
    *out = (struct graph){0};
    plan->capture->has_failed = 1;
    (void)cudaGetLastError();
    if (!(plan->cfg.tuning & TUNING_AUTO))
        LOG_W(
            "--gpu_tuning=capture: the computation from layer '%s' on cannot become a CUDA graph (%s): its CUDA kernels are launched one by one",
            plan->cfg.layers[layer].name, cudaGetErrorString(code));
}

static enum status launch_graph(struct gpu_plan *plan, const struct graph *g)
{
    if (g->exec == NULL)
        return ST_OK;
    return gpu_check_cuda(NULL, "cudaGraphLaunch", cudaGraphLaunch(g->exec, plan->compute));
}

/* ---- entry points ---- */

int gpu_layer_forward_is_queued(struct gpu_plan *plan, int layer, int train)
{
    struct gpu_layer_capture *c = plan->capture;
    if (c == NULL || !train || layer != c->forward_next || layer >= c->forward_end)
        return 0;
    c->forward_next++;
    return 1;
}

enum status gpu_layer_forward(struct gpu_plan *plan, int layer, int train)
{
    enum status st = ST_OK;
    struct gpu_layer_capture *c = plan->capture;
    int by_graph, is_first = layer == 0 || plan->cfg.layers[layer].n_params > 0;
    plan->trains = train;
    TRY(is_for_graphs(plan, &by_graph));
    by_graph = by_graph && is_first;
    if (by_graph && !c->forward[layer].is_captured)
        capture_graph(plan, forward_queue, layer, &c->forward[layer]);
    if (by_graph && c->forward[layer].is_captured) {
        TRY(launch_graph(plan, &c->forward[layer]));
        c->forward_next = layer + 1;
        c->forward_end = forward_end(plan, layer);
        return ST_OK;
    }
    if (c != NULL)
        c->forward_end = 0;
    TRY(queue_forward(plan, layer, train, 0));
done:
    return st;
}

static int next_backward(const struct gpu_plan *plan, int layer)
{
    do
        layer--;
    while (layer >= 0 && !plan->ops[layer].needs_backward);
    return layer;
}

int gpu_layer_backward_is_queued(struct gpu_plan *plan, int layer)
{
    struct gpu_layer_capture *c = plan->capture;
    if (c == NULL || layer != c->backward_next)
        return 0;
    c->backward_next = next_backward(plan, layer);
    return 1;
}

enum status gpu_layer_backward(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    struct gpu_layer_capture *c = plan->capture;
    int by_graph;
    TRY(is_for_graphs(plan, &by_graph));
    by_graph = by_graph && layer == c->top;
    if (by_graph && !c->backward.is_captured)
        capture_graph(plan, backward_queue, layer, &c->backward);
    if (by_graph && c->backward.is_captured) {
        TRY(launch_graph(plan, &c->backward));
        c->backward_next = next_backward(plan, layer);
        return ST_OK;
    }
    TRY(queue_backward(plan, layer, 0));
    if (c != NULL) {
        c->backward_next = -1;
        c->is_warm |= layer == c->lowest && plan->now == plan->pass[0] && plan->trains;
    }
done:
    return st;
}
