/* kernels/cuda/plan/plan.c - prepares the network on one device: collects all requests for memory,
 * then allocates one block for them, within the limit of this process on the device (memory.h). */
#include "kernels/cuda/plan/plan.h"
#include "base/log.h"
#include "kernels/cuda/conv/channels.h"
#include "kernels/cuda/conv/conv_first.h"
#include "kernels/cuda/groups/group.h"
#include "kernels/cuda/memory/bind.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/edges.h"
#include "kernels/cuda/plan/layers.h"
#include "kernels/cuda/plan/transfer.h"
#include "kernels/cuda/resident/cards.h"
#include "kernels/cuda/resident/resident.h"
#include "kernels/cuda/resident/updates.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of cuBLAS's workspace: the defaults of cuBLAS on Hopper and on older GPUs. */
static const uint64_t blas_workspace_most = (uint64_t)32 << 20,
                      blas_workspace_least = (uint64_t)4 << 20;

enum status gpu_plan_state_create(struct gpu_op *op, size_t bytes, void *out)
{
    op->state = calloc(1, bytes);
    if (op->state == NULL)
        return gpu_check_no_host_memory();
    memcpy(out, &op->state, sizeof op->state);
    return ST_OK;
}

enum status gpu_plan_reserve_output(struct gpu_plan *plan, struct gpu_op *op)
{
    op->y = &op->own_y;
    return gpu_arena_reserve(&plan->arena, op->layer->name, "output",
                             (uint64_t)plan->cfg.batch * (uint64_t)shape_elems(&op->layer->out) *
                                 sizeof(float),
                             &op->own_y);
}

void gpu_plan_reserve_scratch(struct gpu_plan *plan, struct gpu_planes shape)
{
    int64_t elems = gpu_bias_grad_scratch(shape);
    if (elems > plan->scratch_elems)
        plan->scratch_elems = elems;
}

int gpu_plan_fuse_relu(struct gpu_plan *plan, int i)
{
    int reader = plan->node[i].reader;
    if (reader < 0 || plan->cfg.layers[reader].kind != LAYER_RELU)
        return 0;
    plan->ops[reader].done_before = 1;
    return 1;
}

int gpu_plan_join_pool(struct gpu_plan *plan, int i)
{
    struct gpu_op *op = &plan->ops[i];
    int relu = plan->node[i].reader, pool = relu < 0 ? -1 : plan->node[relu].reader;
    if (pool < 0 || !plan->ops[relu].done_before || plan->cfg.layers[pool].kind != LAYER_MAX_POOL)
        return -1;
    op->y = &plan->unpooled;
    op->pooled = plan->ops[relu].pooled = plan->ops[pool].done_before = 1;
    return pool;
}

int gpu_plan_fuse_pool(struct gpu_plan *plan, int i)
{
    int pool = gpu_plan_join_pool(plan, i);
    int64_t elems = plan->cfg.batch * shape_elems(&plan->ops[i].layer->out);
    if (pool >= 0 && elems > plan->unpooled_elems)
        plan->unpooled_elems = elems;
    return pool;
}

struct gpu_planes gpu_plan_planes(const struct shape *s, int n)
{
    return (struct gpu_planes){n, s->dim[0], shape_elems(s) / s->dim[0]};
}

static const struct gpu_kind *const kinds[LAYER_N_KINDS] = {
    [LAYER_CONV2D] = &gpu_conv,
    [LAYER_MAX_POOL] = &gpu_pool,
    [LAYER_AVG_POOL] = &gpu_pool,
    [LAYER_DENSE] = &gpu_dense,
    [LAYER_RELU] = &gpu_relu,
    [LAYER_DROPOUT] = &gpu_dropout,
    [LAYER_BATCH_NORM] = &gpu_batch_norm,
    [LAYER_FLATTEN] = &gpu_flatten,
    [LAYER_SOFTMAX_XENT] = &gpu_loss,
    [LAYER_ADD] = &gpu_join_add,
    [LAYER_CONCAT] = &gpu_join_concat,
    [LAYER_SIGMOID_XENT] = &gpu_loss,
    [LAYER_SQUARED] = &gpu_loss,
    [LAYER_LAYER_NORM] = &gpu_layer_norm,
    [LAYER_EMBEDDING] = &gpu_embedding,
    [LAYER_SIGMOID] = &gpu_activation,
    [LAYER_TANH] = &gpu_activation,
    [LAYER_GELU] = &gpu_activation,
    [LAYER_SILU] = &gpu_activation,
    [LAYER_LEAKY_RELU] = &gpu_activation,
    [LAYER_MULTIPLY] = &gpu_join_multiply,
    [LAYER_SUM] = &gpu_channel_sum,
    [LAYER_FACTORIZATION_MACHINE] = &gpu_factorization_machine,
};

/* Returns the number of values of parameter k of a layer. */
static int64_t param_elems(const struct layer *l, int k)
{
    if (l->kind == LAYER_BATCH_NORM)
        return l->in.dim[0];
    if (l->kind == LAYER_LAYER_NORM)
        return shape_elems(&l->in);
    if (l->kind == LAYER_EMBEDDING)
        return l->vocabulary * l->out.dim[0];
    if (k == 1)
        return l->out.dim[0];
    if (l->kind == LAYER_DENSE)
        return l->out.dim[0] * l->in.dim[0];
    return l->out.dim[0] * l->in.dim[0] * l->kernel[0] * l->kernel[1];
}

/* Returns true if the layer's `in` is the shape of nothing (kernels/layer.h). */
static bool has_no_input(const struct gpu_plan *plan, int layer)
{
    return layer_is_on_host(plan->cfg.layers[layer].kind) &&
           (layer > 0 || graph_image_readers(&plan->cfg) == 0);
}

static enum status shapes_check(const struct gpu_plan *plan)
{
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        const struct shape *both[] = {&plan->cfg.layers[i].in, &plan->cfg.layers[i].out};
        for (int k = has_no_input(plan, i); k < 2; k++) {
            int64_t elems = shape_elems(both[k]);
            if ((both[k]->n_dims != 3 && both[k]->n_dims != 1) || elems < 1 || elems > INT32_MAX) {
                LOG_E("layer '%s': a tensor of %d dimensions and %" PRId64
                      " values is not supported, only (C,H,W) and (F) of at most 2^31 values",
                      plan->cfg.layers[i].name, both[k]->n_dims, elems);
                return ST_UNSUPPORTED;
            }
        }
    }
    return ST_OK;
}

static enum status params_take(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    const struct gpu_group *group = (const struct gpu_group *)plan->cfg.group;
    static const char *const names[] = {"weights", "bias"}, *const grad_names[] = {
                                                                "weights' gradient",
                                                                "bias' gradient"};
    for (int k = 0; k < plan->cfg.n_params; k++)
        plan->params[k].layer = -1;
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        const struct layer *l = &plan->cfg.layers[i];
        int norm = l->kind == LAYER_BATCH_NORM;
        for (int k = 0; k < l->n_params && plan->node[i].mine; k++) {
            struct gpu_param *p = &plan->params[l->param[k]];
            if (p->layer >= 0) {
                LOG_E(
                    "layer '%s': shares parameter %d with layer '%s', which the CUDA backend does not support",
                    l->name, l->param[k], plan->cfg.layers[p->layer].name);
                return ST_UNSUPPORTED;
            }
            p->layer = i;
            p->elems = param_elems(l, k);
            uint64_t bytes = (uint64_t)p->elems * sizeof(float);
            if (group == NULL || !gpu_group_can_gather(group)) /* otherwise group.c reserves it */
                TRY(gpu_arena_reserve(&plan->arena, l->name, norm ? "statistics" : names[k], bytes,
                                      &p->d));
            if (!plan->cfg.inference_only)
                TRY(gpu_arena_reserve(&plan->arena, l->name,
                                      norm ? "statistics' gradient" : grad_names[k], bytes,
                                      &p->d_grad));
            if (!plan->cfg.inference_only && plan->cfg.grads16 != NULL)
                TRY(gpu_arena_reserve(&plan->arena, l->name, "rounded gradient",
                                      (uint64_t)p->elems * sizeof(uint16_t), &p->d_grad16));
        }
    }
done:
    return st;
}

static void ops_init(struct gpu_plan *plan)
{
    graph_fill(&plan->cfg, plan->node);
    plan->image_readers = graph_image_readers(&plan->cfg);
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        struct gpu_op *op = &plan->ops[i];
        op->layer = &plan->cfg.layers[i];
        op->kind = plan->node[i].mine ? kinds[op->layer->kind] : NULL;
        op->needs_dx = graph_input_trained(plan->node, op->layer, 0);
        op->needs_backward = plan->node[i].trained;
        if (gpu_conv_first_accepts(plan, i))
            op->kind = &gpu_conv_first;
    }
    gpu_channels_plan(plan);
}

static size_t input_bytes(const struct gpu_plan *plan)
{
    size_t sample = sizeof(uint64_t) + sizeof(uint32_t) + sizeof(int32_t);
    return (size_t)plan->cfg.batch * (sample + (size_t)shape_elems(&plan->cfg.layers[0].in));
}

static struct gpu_input input_parts(void *block, int batch)
{
    struct gpu_input in = {.position = block};
    in.item = (uint32_t *)(in.position + batch);
    in.label = (int32_t *)(in.item + batch);
    in.pixels = (uint8_t *)(in.label + batch);
    return in;
}

static size_t result_bytes(const struct gpu_plan *plan)
{
    return (size_t)plan->cfg.batch * (sizeof(double) + sizeof(int32_t));
}

/* Returns a buffer of gradients to which all convolutions with a max pool can write their outputs.
 * This is possible because the backward needs only the maxima and their positions, and the forward
 * uses no gradients. Returns NULL if other plans may send gradients early, or no buffer is large
 * enough. */
static float **unpooled_lender(struct gpu_plan *plan)
{
    for (int k = 0; k < plan->diffs.n_buffers && plan->cfg.mine == NULL; k++)
        if (plan->diffs.buffers[k].elems >= plan->unpooled_elems)
            return &plan->diffs.buffers[k].d;
    return NULL;
}

/* Reserves the memory that all layers share, and creates the first pass, which determines cuDNN's
 * workspace. */
static enum status shared_take(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_arena *a = &plan->arena;
    uint64_t blas = gpu_arena_left(a) / 8 / GPU_ARENA_ALIGN * GPU_ARENA_ALIGN;
    if (blas > blas_workspace_most)
        blas = blas_workspace_most;
    if (blas < blas_workspace_least)
        blas = blas_workspace_least;
    plan->blas_workspace_bytes = blas;
    for (int k = 0; k < plan->diffs.n_buffers; k++)
        TRY(gpu_arena_reserve(a, "(all)", "gradients of activations",
                              (uint64_t)plan->diffs.buffers[k].elems * sizeof(float),
                              &plan->diffs.buffers[k].d));
    if (unpooled_lender(plan) == NULL)
        TRY(gpu_arena_reserve(a, "(all)", "output of a convolution before its pool",
                              (uint64_t)plan->unpooled_elems * sizeof(float), &plan->unpooled));
    TRY(gpu_arena_reserve(a, "(all)", "gradient of a padded image",
                          (uint64_t)plan->padded_diff_elems * sizeof(float), &plan->padded_diff));
    TRY(gpu_arena_reserve(a, "(all)", "sums of bias gradients",
                          (uint64_t)plan->scratch_elems * sizeof(float), &plan->scratch));
    for (int k = 0; k < GPU_N_CASTS; k++)
        TRY(gpu_arena_reserve(a, "(all)", "copies of a convolution's tensors",
                              (uint64_t)plan->cast_elems[k] * sizeof(uint16_t), &plan->cast[k]));
    TRY(gpu_arena_reserve(a, "(all)", "cuBLAS workspace", blas, &plan->blas_workspace));
    plan->planning = 1;
    TRY(gpu_pass_create(plan, plan->cfg.batch, &plan->pass[0]));
    plan->planning = 0;
    plan->now = plan->pass[0];
    TRY(gpu_arena_reserve(a, "(all)", "cuDNN workspace", plan->workspace_bytes, &plan->workspace));
    TRY(gpu_branch_plan(plan));
done:
    return st;
}

/* Allocates the block on the device and the pinned blocks on the host. */
static enum status memory_take(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_arena *a = &plan->arena;
    const char *layer, *what;
    uint64_t bytes;
    st = gpu_bind_arena(plan->cfg.device, a);
    if (st == ST_NOMEM) {
        gpu_arena_largest(a, &layer, &what, &bytes);
        char more[512];
        gpu_memory_advice(plan->cfg.device, 0, more, sizeof more);
        LOG_E("out of GPU memory: this plan needs %" PRIu64
              " contiguous bytes; the largest part is layer '%s': its %s, %" PRIu64 " bytes%s",
              a->bytes, layer, what, bytes, more);
    }
    TRY(st);
    if (unpooled_lender(plan) != NULL)
        plan->unpooled = *unpooled_lender(plan);
    if (plan->member != NULL)
        TRY(gpu_group_bind(plan));
    TRY(gpu_check_blas(
        NULL, "cublasSetWorkspace",
        cublasSetWorkspace(plan->cublas, plan->blas_workspace, plan->blas_workspace_bytes)));
    TRY(gpu_check_cuda(
        NULL, "cudaHostAlloc",
        cudaHostAlloc((void **)&plan->host_in, input_bytes(plan), cudaHostAllocDefault)));
    TRY(gpu_check_cuda(
        NULL, "cudaHostAlloc",
        cudaHostAlloc((void **)&plan->host_result, result_bytes(plan), cudaHostAllocDefault)));
    plan->d = input_parts(plan->d_in, plan->cfg.batch);
    plan->host = input_parts(plan->host_in, plan->cfg.batch);
done:
    return st;
}

/* Plans the output of a layer. Either this plan computes the output, or another
 * plan does, and set_output copies it in. */
static enum status output_plan(struct gpu_plan *plan, int i)
{
    enum status st = ST_OK;
    struct gpu_op *op = &plan->ops[i];
    const struct graph_node *node = &plan->node[i];
    int from = op->layer->input[0];
    if (node->mine) {
        op->x = gpu_edges_input(plan, i, 0);
        TRY(op->kind->plan(plan, i));
        if (op->y == op->x)
            op->shared |= from < 0 ? plan->image_readers > 1 : plan->ops[from].shared;
    } else if (graph_imported(node)) {
        TRY(gpu_plan_reserve_output(plan, op));
    }
    op->shared |= node->n_readers > 1 || graph_exported(node);
done:
    return st;
}

static enum status memory_plan(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    struct gpu_arena *a = &plan->arena;
    const struct layer *first = &plan->cfg.layers[0];
    const struct layer *last = &plan->cfg.layers[plan->cfg.n_layers - 1];
    int64_t pixels = plan->cfg.batch * shape_elems(&first->in);
    TRY(shapes_check(plan));
    TRY(params_take(plan));
    if (plan->cfg.group != NULL)
        TRY(gpu_group_plan(plan));
    TRY(gpu_arena_reserve(a, first->name, "input's bytes", input_bytes(plan), &plan->d_in));
    TRY(gpu_arena_reserve(a, first->name, "input", (uint64_t)pixels * sizeof(float), &plan->input));
    TRY(gpu_arena_reserve(a, "(all)", "losses", result_bytes(plan), &plan->d_result));
    if (layer_takes_targets(last->kind) && plan->node[plan->cfg.n_layers - 1].mine)
        TRY(gpu_arena_reserve(a, last->name, "targets",
                              (uint64_t)(plan->cfg.batch * shape_elems(&last->in)) * sizeof(float),
                              &plan->d_targets));
    for (int i = 0; i < plan->cfg.n_layers; i++)
        TRY(output_plan(plan, i));
    if (!plan->cfg.inference_only)
        gpu_edges_plan(plan);
    TRY(shared_take(plan));
    TRY(memory_take(plan));
done:
    return st;
}

static enum status device_open(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    uint64_t left;
    int is_set;
    TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(plan->cfg.device)));
    TRY(gpu_check_cuda(NULL, "cudaStreamCreateWithFlags",
                       cudaStreamCreateWithFlags(&plan->compute, cudaStreamNonBlocking)));
    TRY(gpu_check_cuda(NULL, "cudaStreamCreateWithFlags",
                       cudaStreamCreateWithFlags(&plan->up, cudaStreamNonBlocking)));
    TRY(gpu_check_cuda(NULL, "cudaStreamCreateWithFlags",
                       cudaStreamCreateWithFlags(&plan->down, cudaStreamNonBlocking)));
    TRY(gpu_check_dnn(NULL, "cudnnCreate", cudnnCreate(&plan->cudnn)));
    TRY(gpu_check_dnn(NULL, "cudnnSetStream", cudnnSetStream(plan->cudnn, plan->compute)));
    TRY(gpu_check_blas(NULL, "cublasCreate", cublasCreate(&plan->cublas)));
    TRY(gpu_check_blas(NULL, "cublasSetStream", cublasSetStream(plan->cublas, plan->compute)));
    TRY(gpu_memory_left(plan->cfg.device, &left, &is_set));
    uint64_t limit = plan->cfg.memory_limit_bytes;
    if (limit == 0 || limit > left)
        gpu_arena_init(&plan->arena, left, is_set);
    else
        gpu_arena_init(&plan->arena, limit, 1);
    plan->arena.more = gpu_memory_advice;
    plan->arena.device = plan->cfg.device;
done:
    return st;
}

static enum status records_create(struct gpu_plan *plan)
{
    size_t n_layers = (size_t)plan->cfg.n_layers, n_params = (size_t)plan->cfg.n_params;
    plan->ops = calloc(n_layers, sizeof *plan->ops);
    plan->used = calloc(n_layers, sizeof(*plan->used));
    plan->ready = calloc(n_layers, sizeof(*plan->ready));
    plan->copied = calloc(n_layers, sizeof(*plan->copied));
    plan->params = calloc(n_params + 1, sizeof *plan->params);
    plan->node = calloc(n_layers, sizeof *plan->node);
    if (!plan->ops || !plan->node || !plan->used || !plan->ready || !plan->copied || !plan->params)
        return gpu_check_no_host_memory();
    return gpu_diffs_create(plan->cfg.n_layers, &plan->diffs);
}

enum status gpu_plan_create(const struct backend_plan_config *cfg, struct gpu_plan **out)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return gpu_check_no_host_memory();
    plan->cfg = *cfg;
    if (cfg->parts != NULL)
        plan->parts = *cfg->parts;
    TRY(records_create(plan));
    TRY(device_open(plan));
    ops_init(plan);
    TRY(memory_plan(plan));
    TRY(gpu_branch_create(plan));
    TRY(gpu_transfer_create(plan));
    TRY(gpu_edges_create(plan));
    TRY(gpu_layer_capture_create(plan));
    for (int k = 0; k < cfg->n_params; k++)
        TRY(gpu_transfer_upload(plan, k));
    TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(plan->up)));
    if (plan->member != NULL)
        TRY(gpu_group_join(plan));
    *out = plan;
done:
    if (st != ST_OK)
        gpu_plan_destroy(plan);
    return st;
}

void gpu_plan_destroy(struct gpu_plan *plan)
{
    if (plan == NULL)
        return;
    gpu_cards_leave(plan);
    (void)cudaSetDevice(plan->cfg.device);
    gpu_group_leave(plan);
    if (plan->compute != NULL)
        cudaStreamSynchronize(plan->compute);
    (void)gpu_branch_finish(plan);
    if (plan->up != NULL)
        cudaStreamSynchronize(plan->up);
    if (plan->down != NULL)
        cudaStreamSynchronize(plan->down);
    gpu_resident_destroy(plan, plan->resident);
    gpu_updates_destroy(plan, plan->updates);
    gpu_layer_capture_destroy(plan);
    gpu_edges_destroy(plan);
    gpu_transfer_destroy(plan);
    gpu_pass_destroy(plan->pass[1]);
    gpu_pass_destroy(plan->pass[0]);
    if (plan->host_result != NULL)
        cudaFreeHost(plan->host_result);
    if (plan->host_targets != NULL)
        cudaFreeHost(plan->host_targets);
    if (plan->host_floats != NULL)
        cudaFreeHost(plan->host_floats);
    if (plan->host_in != NULL)
        cudaFreeHost(plan->host_in);
    gpu_branch_destroy(plan);
    if (plan->cublas != NULL)
        cublasDestroy(plan->cublas);
    if (plan->cudnn != NULL)
        cudnnDestroy(plan->cudnn);
    gpu_bind_undo(plan->cfg.device, &plan->arena);
    gpu_arena_free(&plan->arena);
    if (plan->down != NULL)
        cudaStreamDestroy(plan->down);
    if (plan->up != NULL)
        cudaStreamDestroy(plan->up);
    if (plan->compute != NULL)
        cudaStreamDestroy(plan->compute);
    (void)cudaGetLastError(); /* clears the error, or the next launch would report it */
    for (int i = 0; plan->ops != NULL && i < plan->cfg.n_layers; i++)
        free(plan->ops[i].state);
    gpu_diffs_destroy(&plan->diffs);
    free(plan->node);
    free(plan->params);
    free(plan->copied);
    free(plan->ready);
    free(plan->used);
    free(plan->ops);
    free(plan);
}
