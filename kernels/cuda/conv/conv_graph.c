/* kernels/cuda/conv/conv_graph.c - builds the graph of one product for cuDNN's backend API, asks
 * for engine configurations, and finalizes the first usable one. If a call returns NOT_SUPPORTED,
 * cuDNN does not offer the product. Some engines are compiled when they are finalized, which may
 * fail for other reasons; then the next engine is tried. Every other failure is an error. */
#include "kernels/cuda/conv/conv_graph.h"
#include "base/log.h"
#include "kernels/cuda/conv/conv_algo.h"
#include "kernels/cuda/plan/layers.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

/* Ids of the tensors; the tensors that are in memory are first. */
enum { ID_X = 1, ID_W, ID_Y, ID_BIAS, ID_PRODUCT, ID_SUM };

static const char *const way_name[GPU_CONV_N_WAYS] = {"forward", "weights' gradient",
                                                      "input's gradient"};

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    const void *at; /* n values of `type` */
};
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static int is_absent(cudnnStatus_t code)
{
    return CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_NOT_SUPPORTED;
}

/* Creates and finalizes a descriptor with these attributes. Sets *out to NULL if cuDNN supports
 * neither this descriptor nor what it consists of. */
static enum status make_desc(struct gpu_conv_graph *g, cudnnBackendDescriptorType_t type,
                             const struct attribute *a, int n, cudnnBackendDescriptor_t *out)
{
    enum status st = ST_OK;
    cudnnBackendDescriptor_t d;
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    *out = NULL;
    if (g->absent != CUDNN_STATUS_SUCCESS)
        return ST_OK;
    TRY(gpu_pass_backend_desc(g->pass, g->op, type, &d));
    for (int k = 0; k < n && code == CUDNN_STATUS_SUCCESS; k++) {
        code = cudnnBackendSetAttribute(d, a[k].name, a[k].type, a[k].n, a[k].at);
        if (!is_absent(code))
            TRY(gpu_check_dnn(g->op, "cudnnBackendSetAttribute", code));
    }
    if (code == CUDNN_STATUS_SUCCESS) {
        code = cudnnBackendFinalize(d);
        if (!is_absent(code))
            TRY(gpu_check_dnn(g->op, "cudnnBackendFinalize", code));
    }
    g->absent = code;
    if (code == CUDNN_STATUS_SUCCESS)
        *out = d;
done:
    return st;
}

/* ---- the graph ---- */

/* Creates a tensor. All tensors in memory have the type of `precision`; this includes the bias,
 * because cuDNN has no engine for a bias of another type. Tensors between operations are floats. */
static enum status make_tensor(struct gpu_conv_graph *g, const int d[4], int64_t id,
                               cudnnBackendDescriptor_t *out)
{
    bool is_virtual = id >= ID_PRODUCT;
    int is_bf16 = g->pass->plan->cfg.precision == BACKEND_BF16 && !is_virtual;
    cudnnDataType_t type = is_bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    int64_t dim[4] = {d[0], d[1], d[2], d[3]}, alignment = 16;
    int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]};
    const struct attribute a[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual},
    };
    return make_desc(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, a, COUNT(a), out);
}

static enum status make_convolution(struct gpu_conv_graph *g, cudnnBackendDescriptor_t *out)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t n_dims = 2, dilation[2] = {1, 1};
    int64_t pad[2] = {g->shape.pad[0], g->shape.pad[1]};
    int64_t stride[2] = {g->shape.stride[0], g->shape.stride[1]};
    const struct attribute a[] = {
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n_dims},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride},
    };
    return make_desc(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, a, COUNT(a), out);
}

/* Creates the convolution. *y: the tensor of its result, which the next operation may read. */
static enum status make_product(struct gpu_conv_graph *g, int64_t y_id, cudnnBackendDescriptor_t *y,
                                cudnnBackendDescriptor_t *out)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
    } of[GPU_CONV_N_WAYS] = {
        [GPU_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [GPU_CONV_BACKWARD_W] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
        [GPU_CONV_BACKWARD_X] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    };
    enum status st = ST_OK;
    cudnnBackendDescriptor_t x, w, conv;
    float one = 1.0f, zero = 0.0f;
    TRY(make_tensor(g, g->shape.x, ID_X, &x));
    TRY(make_tensor(g, g->shape.w, ID_W, &w));
    TRY(make_tensor(g, g->shape.y, y_id, y));
    TRY(make_convolution(g, &conv));
    const struct attribute a[] = {
        {of[g->way].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {of[g->way].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w},
        {of[g->way].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, y},
        {of[g->way].convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv},
        {of[g->way].alpha, CUDNN_TYPE_FLOAT, 1, &one},
        {of[g->way].beta, CUDNN_TYPE_FLOAT, 1, &zero},
    };
    TRY(make_desc(g, of[g->way].type, a, COUNT(a), out));
done:
    return st;
}

/* Creates a pointwise operation that computes y from x and b; b NULL: from x only. */
static enum status make_pointwise(struct gpu_conv_graph *g, cudnnPointwiseMode_t mode,
                                  const cudnnBackendDescriptor_t tensors[3],
                                  cudnnBackendDescriptor_t *out)
{
    enum status st = ST_OK;
    cudnnBackendDescriptor_t what;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const struct attribute of_what[] = {
        {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type},
    };
    TRY(make_desc(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, of_what, COUNT(of_what), &what));
    const struct attribute a[] = {
        {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &what},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[0]},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[2]},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[1]},
    };
    TRY(make_desc(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, a,
                  tensors[1] == NULL ? COUNT(a) - 1 : COUNT(a), out));
done:
    return st;
}

/* Creates the graph: the product, the addition of the bias, and the relu of the sum. */
static enum status make_graph(struct gpu_conv_graph *g, int relu, cudnnBackendDescriptor_t *out)
{
    enum status st = ST_OK;
    const int *y = g->shape.y, bias_dims[4] = {1, y[1], 1, 1};
    cudnnBackendDescriptor_t ops[3], bias, made, sum, result;
    int n = 1;
    TRY(make_product(g, g->with_bias ? ID_PRODUCT : ID_Y, &made, &ops[0]));
    if (g->with_bias) {
        TRY(make_tensor(g, bias_dims, ID_BIAS, &bias));
        TRY(make_tensor(g, y, relu ? ID_SUM : ID_Y, &sum));
        TRY(make_pointwise(g, CUDNN_POINTWISE_ADD, (cudnnBackendDescriptor_t[]){made, bias, sum},
                           &ops[n++]));
    }
    if (g->with_bias && relu) {
        TRY(make_tensor(g, y, ID_Y, &result));
        TRY(make_pointwise(g, CUDNN_POINTWISE_RELU_FWD,
                           (cudnnBackendDescriptor_t[]){sum, NULL, result}, &ops[n++]));
    }
    const struct attribute a[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->pass->plan->cudnn},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops},
    };
    TRY(make_desc(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, a, COUNT(a), out));
done:
    return st;
}

/* ---- engines ---- */

static enum status get_attribute(const struct gpu_conv_graph *g, cudnnBackendDescriptor_t d,
                                 const struct attribute *a, int64_t *n, void *to)
{
    return gpu_check_dnn(g->op, "cudnnBackendGetAttribute",
                         cudnnBackendGetAttribute(d, a->name, a->type, a->n, n, to));
}

/* Appends the configurations that a mode of cuDNN's heuristics proposes, best first. */
static enum status propose_configs(struct gpu_conv_graph *g, cudnnBackendDescriptor_t graph,
                                   cudnnBackendHeurMode_t mode)
{
    enum status st = ST_OK;
    cudnnBackendDescriptor_t heuristics;
    int64_t n = 0;
    struct attribute results = {CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 0};
    const struct attribute a[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
    };
    g->absent = CUDNN_STATUS_SUCCESS;
    TRY(make_desc(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, a, COUNT(a), &heuristics));
    if (heuristics == NULL)
        return ST_OK;
    TRY(get_attribute(g, heuristics, &results, &n, NULL));
    results.n = n < GPU_CONV_GRAPH_MOST_PROPOSED ? n : GPU_CONV_GRAPH_MOST_PROPOSED;
    if (results.n <= 0)
        return ST_OK;
    for (int64_t k = 0; k < results.n; k++)
        TRY(gpu_pass_backend_desc(g->pass, g->op, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                  &g->config[g->n + k]));
    TRY(get_attribute(g, heuristics, &results, &n, g->config + g->n));
    g->n += (int)(n < results.n ? n : results.n);
done:
    return st;
}

/* Sets *out to true if the engine's numerical properties comply with `precision` and
 * `deterministic`. Factors must not be rounded to a type with a smaller range, and sums must be
 * floats. */
static enum status is_allowed(const struct gpu_conv_graph *g, cudnnBackendDescriptor_t config,
                              int *out)
{
    enum { MOST = 32 };
    enum status st = ST_OK;
    const struct backend_plan_config *cfg = &g->pass->plan->cfg;
    cudnnBackendDescriptor_t engine;
    cudnnBackendNumericalNote_t note[MOST];
    int64_t n = 0;
    const struct attribute of_engine = {CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        1, 0};
    const struct attribute notes = {CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    MOST, 0};
    TRY(gpu_pass_backend_desc(g->pass, g->op, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    TRY(get_attribute(g, config, &of_engine, &n, &engine));
    TRY(get_attribute(g, engine, &notes, &n, note));
    *out = n <= MOST;
    for (int64_t k = 0; k < n && k < MOST; k++)
        if (note[k] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
            note[k] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
            (note[k] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && cfg->precision == BACKEND_FP32) ||
            (note[k] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && cfg->deterministic))
            *out = 0;
done:
    return st;
}

/* Sets g->plan to an execution plan of this configuration, if it can be finalized and its workspace
 * fits. */
static enum status try_config(struct gpu_conv_graph *g, cudnnBackendDescriptor_t config)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = g->pass->plan;
    cudnnBackendDescriptor_t d;
    int64_t n = 0, bytes = 0;
    const struct attribute workspace = {CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                        1, 0};
    TRY(gpu_pass_backend_desc(g->pass, g->op, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d));
    TRY(gpu_check_dnn(g->op, "cudnnBackendSetAttribute",
                      cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                               CUDNN_TYPE_HANDLE, 1, &g->handle)));
    TRY(gpu_check_dnn(g->op, "cudnnBackendSetAttribute",
                      cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config)));
    cudnnStatus_t code = cudnnBackendFinalize(d);
    if (code != CUDNN_STATUS_SUCCESS) {
        (void)cudaGetLastError();
        g->absent = code;
        return ST_OK;
    }
    TRY(get_attribute(g, d, &workspace, &n, &bytes));
    if (bytes < 0 || (uint64_t)bytes > gpu_conv_algo_workspace_limit(plan))
        return ST_OK;
    gpu_conv_algo_workspace_reserve(plan, (uint64_t)bytes);
    g->plan = d;
done:
    return st;
}

static enum status choose_config(struct gpu_conv_graph *g)
{
    enum status st = ST_OK;
    g->plan = NULL;
    while (g->plan == NULL && g->next < g->n) {
        cudnnBackendDescriptor_t config = g->config[g->next++];
        int allowed;
        TRY(is_allowed(g, config, &allowed));
        if (allowed)
            TRY(try_config(g, config));
    }
done:
    return st;
}

/* Logs once, for the first such convolution, that cuDNN does not offer the product (if g->with_bias
 * is set, the product together with the bias). */
static void say_absent(const struct gpu_conv_graph *g)
{
    static atomic_flag said[GPU_CONV_N_WAYS + 1] = {ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT,
                                                    ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT};
    if (atomic_flag_test_and_set(&said[g->with_bias ? GPU_CONV_N_WAYS : g->way]))
        return;
    const char *why = g->absent == CUDNN_STATUS_SUCCESS ? "cuDNN can run no engine here"
                                                        : cudnnGetErrorString(g->absent);
    LOG_W(
        "layer '%s': cuDNN has no engine for this convolution's %s with channels last%s (%s). %s; this is not logged again for other layers",
        g->op->layer->name, way_name[g->way], g->with_bias ? " together with the bias" : "", why,
        g->with_bias ? "A separate CUDA kernel adds the bias"
                     : "The layer is computed as without --gpu_tuning=nhwc");
}

enum status gpu_conv_graph_prepare(struct gpu_pass *pass, const struct gpu_op *op,
                                   const struct gpu_conv_graph_shape *shape, int way, int relu,
                                   struct gpu_conv_graph *out)
{
    enum status st = ST_OK;
    int has_bias = way == GPU_CONV_FORWARD && layer_has_bias(op->layer);
    for (int bias = has_bias; bias >= 0; bias--) {
        cudnnBackendDescriptor_t described;
        *out = (struct gpu_conv_graph){.pass = pass,
                                       .op = op,
                                       .shape = *shape,
                                       .way = way,
                                       .with_bias = bias,
                                       .handle = pass->plan->cudnn};
        TRY(make_graph(out, relu, &described));
        if (described != NULL)
            TRY(propose_configs(out, described, CUDNN_HEUR_MODE_A));
        if (described != NULL)
            TRY(propose_configs(out, described, CUDNN_HEUR_MODE_FALLBACK));
        TRY(choose_config(out));
        if (out->plan != NULL)
            return ST_OK;
        say_absent(out);
    }
done:
    return st;
}

/* Finalizes the chosen engine again for the handle of the lane. When g->plan was finalized, the
 * second lane did not exist. According to cuDNN's manual, an execution plan that was finalized for
 * one handle must not run on another handle while the first handle has work. */
static enum status move_to(struct gpu_conv_graph *g, cudnnHandle_t handle)
{
    if (g->handle == handle)
        return ST_OK;
    g->handle = handle;
    g->next--;
    return choose_config(g);
}

static enum status make_pack(struct gpu_conv_graph *g, const struct gpu_lane *lane,
                             const void *const pointer[GPU_CONV_GRAPH_MOST_TENSORS])
{
    enum status st = ST_OK;
    int64_t ids[GPU_CONV_GRAPH_MOST_TENSORS] = {ID_X, ID_W, ID_Y, ID_BIAS};
    int n = g->with_bias ? 4 : 3;
    const struct attribute a[] = {
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointer},
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &lane->workspace},
    };
    if (g->pack != NULL && memcmp(g->pointer, pointer, sizeof g->pointer) == 0)
        return ST_OK;
    g->absent = CUDNN_STATUS_SUCCESS;
    TRY(make_desc(g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, a, COUNT(a), &g->pack));
    TRY(gpu_check_dnn(g->op, "cudnnBackendFinalize", g->absent));
    memcpy(g->pointer, pointer, sizeof g->pointer);
done:
    return st;
}

static int may_fail(cudnnStatus_t code)
{
    return is_absent(code) || CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_INTERNAL_ERROR;
}

enum status gpu_conv_graph_run(struct gpu_conv_graph *g, const struct gpu_lane *lane,
                               const void *const in[3], void *to, int *done)
{
    enum status st = ST_OK;
    const void *const pointer[GPU_CONV_N_WAYS][GPU_CONV_GRAPH_MOST_TENSORS] = {
        [GPU_CONV_FORWARD] = {in[0], in[1], to, in[2]},
        [GPU_CONV_BACKWARD_W] = {in[0], to, in[1]},
        [GPU_CONV_BACKWARD_X] = {to, in[0], in[1]}};
    *done = 0;
    TRY(move_to(g, lane->cudnn));
    while (g->plan != NULL) {
        TRY(make_pack(g, lane, pointer[g->way]));
        cudnnStatus_t code = cudnnBackendExecute(lane->cudnn, g->plan, g->pack);
        if (!may_fail(code)) {
            TRY(gpu_check_dnn(g->op, "cudnnBackendExecute", code));
            *done = 1;
            return ST_OK;
        }
        (void)cudaGetLastError();
        gpu_layer_capture_invalidate(g->pass->plan);
        TRY(choose_config(g));
        LOG_W(
            "layer '%s': cuDNN proposed an engine for this convolution's %s with channels last, but cannot run it (%s). %s",
            g->op->layer->name, way_name[g->way], cudnnGetErrorString(code),
            g->plan != NULL
                ? "The next proposed engine is used"
                : "No engine is left: the layer is computed as without --gpu_tuning=nhwc");
    }
done:
    return st;
}
