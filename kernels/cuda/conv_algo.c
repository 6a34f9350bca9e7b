/* kernels/cuda/conv_algo.c - see the header. */
#include "kernels/cuda/conv_algo.h"
#include "base/log.h"
#include "kernels/cuda/layers.h"
#include <inttypes.h>

/* A pass of other size, made later, must find an algorithm within the plan's workspace, too. */
static const uint64_t workspace_most = (uint64_t)1 << 30, workspace_least = (uint64_t)8 << 20;

static const char *const way_name[CUDA_CONV_N_WAYS] = {"forward", "weights' gradient",
                                                       "input's gradient"};

static const float one = 1.0f, zero = 0.0f;

/* Workspace that one algorithm may use. */
static uint64_t workspace_limit(const struct cuda_plan *plan)
{
    if (!plan->planning)
        return plan->workspace_bytes;
    uint64_t left = cuda_arena_left(&plan->arena) / CUDA_ARENA_ALIGN * CUDA_ARENA_ALIGN;
    return left < workspace_most ? left : workspace_most;
}

/* In fp32 the descriptor stays at FMA math whatever a proposal says, as cuDNN's default math may
 * round to TF32; else the proposal's own math is taken. */
static enum status math_set(const struct cuda_conv_algos *c, cudnnConvolutionDescriptor_t d,
                            cudnnMathType_t math)
{
    if (c->plan->cfg.precision == BACKEND_FP32)
        return ST_OK;
    return cuda_check_dnn(c->op, "cudnnSetConvolutionMathType",
                          cudnnSetConvolutionMathType(d, math));
}

/* Takes the first of the list that can be. */
static enum status choose(struct cuda_conv_algos *c, int which)
{
    struct cuda_plan *plan = c->plan;
    struct cuda_conv_way *w = &c->way[which];
    struct cuda_algo_wish wish = {workspace_limit(plan), plan->cfg.deterministic,
                                  plan->cfg.precision != BACKEND_FP32};
    int k = cuda_algo_choose(w->list, w->n, &wish);
    if (k < 0) {
        LOG_E("layer '%s': cuDNN has no %salgorithm for this convolution's %s within %" PRIu64
              " bytes of workspace; give the GPU more memory%s",
              c->op->layer->name, wish.deterministic ? "deterministic " : "", way_name[which],
              wish.workspace_limit, wish.deterministic ? " or do not ask for determinism" : "");
        return wish.workspace_limit < workspace_most ? plan->arena.full : ST_UNSUPPORTED;
    }
    uint64_t least =
        wish.workspace_limit < workspace_least ? wish.workspace_limit : workspace_least;
    uint64_t want = w->list[k].workspace_bytes > least ? w->list[k].workspace_bytes : least;
    if (plan->planning && want > plan->workspace_bytes)
        plan->workspace_bytes = want;
    w->now = k;
    return math_set(c, w->d, w->proposal[k].math);
}

/* cuDNN's three kinds of proposals have the same members in three types. */
#define PROPOSALS_TAKE(way, perf, n_perf)                                                          \
    do {                                                                                           \
        (way)->n = (n_perf);                                                                       \
        for (int k = 0; k < (way)->n; k++) {                                                       \
            (way)->proposal[k].algo = (int)(perf)[k].algo;                                         \
            (way)->proposal[k].math = (perf)[k].mathType;                                          \
            (way)->list[k].usable = (perf)[k].status == CUDNN_STATUS_SUCCESS;                      \
            (way)->list[k].deterministic = (perf)[k].determinism == CUDNN_DETERMINISTIC;           \
        }                                                                                          \
    } while (0)

static enum status propose(struct cuda_conv_algos *c, int which)
{
    enum status st = ST_OK;
    cudnnHandle_t h = c->plan->cudnn;
    struct cuda_conv_way *w = &c->way[which];
    int n;
    if (which == CUDA_CONV_FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t perf[CUDA_CONV_MAX_ALGOS];
        TRY(cuda_check_dnn(c->op, "cudnnGetConvolutionForwardAlgorithm_v7",
                           cudnnGetConvolutionForwardAlgorithm_v7(h, c->x, c->w, w->d, c->y,
                                                                  CUDA_CONV_MAX_ALGOS, &n, perf)));
        PROPOSALS_TAKE(w, perf, n);
    } else if (which == CUDA_CONV_BACKWARD_W) {
        cudnnConvolutionBwdFilterAlgoPerf_t perf[CUDA_CONV_MAX_ALGOS];
        TRY(cuda_check_dnn(c->op, "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
                           cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                               h, c->x, c->y, w->d, c->w, CUDA_CONV_MAX_ALGOS, &n, perf)));
        PROPOSALS_TAKE(w, perf, n);
    } else {
        cudnnConvolutionBwdDataAlgoPerf_t perf[CUDA_CONV_MAX_ALGOS];
        TRY(cuda_check_dnn(c->op, "cudnnGetConvolutionBackwardDataAlgorithm_v7",
                           cudnnGetConvolutionBackwardDataAlgorithm_v7(
                               h, c->w, c->y, w->d, c->x, CUDA_CONV_MAX_ALGOS, &n, perf)));
        PROPOSALS_TAKE(w, perf, n);
    }
done:
    return st;
}

static cudnnStatus_t workspace_ask(const struct cuda_conv_algos *c, int which, int algo,
                                   size_t *bytes)
{
    cudnnHandle_t h = c->plan->cudnn;
    cudnnConvolutionDescriptor_t d = c->way[which].d;
    switch (which) {
    case CUDA_CONV_FORWARD:
        return cudnnGetConvolutionForwardWorkspaceSize(h, c->x, c->w, d, c->y,
                                                       (cudnnConvolutionFwdAlgo_t)algo, bytes);
    case CUDA_CONV_BACKWARD_W:
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(
            h, c->x, c->y, d, c->w, (cudnnConvolutionBwdFilterAlgo_t)algo, bytes);
    default:
        return cudnnGetConvolutionBackwardDataWorkspaceSize(
            h, c->w, c->y, d, c->x, (cudnnConvolutionBwdDataAlgo_t)algo, bytes);
    }
}

/* The workspace is asked for anew: what a proposal says is for its own math. One that rounds floats
 * to half precision, with its small range, is never taken. */
enum status cuda_conv_prepare(struct cuda_pass *pass, struct cuda_conv_algos *c, const int pad[2],
                              int which)
{
    enum status st = ST_OK;
    struct cuda_conv_way *w = &c->way[which];
    TRY(cuda_desc_conv(pass, c->op, pad, &w->d));
    TRY(propose(c, which));
    for (int k = 0; k < w->n; k++) {
        cudnnMathType_t math = w->proposal[k].math;
        size_t bytes = 0;
        TRY(math_set(c, w->d, math));
        if (math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ||
            workspace_ask(c, which, w->proposal[k].algo, &bytes) != CUDNN_STATUS_SUCCESS)
            w->list[k].usable = 0;
        w->list[k].tf32 = math != CUDNN_FMA_MATH && math != CUDNN_DEFAULT_MATH;
        w->list[k].workspace_bytes = bytes;
    }
    TRY(choose(c, which));
done:
    return st;
}

/* Runs one of the three: from a and b to `to`, in cuDNN's order. */
static cudnnStatus_t call(const struct cuda_conv_algos *c, int which, const void *a, const void *b,
                          void *to)
{
    const struct cuda_plan *plan = c->plan;
    const struct cuda_conv_way *w = &c->way[which];
    int algo = w->proposal[w->now].algo;
    size_t bytes = (size_t)w->list[w->now].workspace_bytes;
    switch (which) {
    case CUDA_CONV_FORWARD:
        return cudnnConvolutionForward(plan->cudnn, &one, c->x, a, c->w, b, w->d,
                                       (cudnnConvolutionFwdAlgo_t)algo, plan->workspace, bytes,
                                       &zero, c->y, to);
    case CUDA_CONV_BACKWARD_W:
        return cudnnConvolutionBackwardFilter(plan->cudnn, &one, c->x, a, c->y, b, w->d,
                                              (cudnnConvolutionBwdFilterAlgo_t)algo,
                                              plan->workspace, bytes, &zero, c->w, to);
    default:
        return cudnnConvolutionBackwardData(plan->cudnn, &one, c->w, a, c->y, b, w->d,
                                            (cudnnConvolutionBwdDataAlgo_t)algo, plan->workspace,
                                            bytes, &zero, c->x, to);
    }
}

/* Some algorithms are proposed for shapes that they cannot do: the next one is taken then. */
enum status cuda_conv_run(struct cuda_conv_algos *c, int which, const void *a, const void *b,
                          void *to)
{
    static const char *const call_name[CUDA_CONV_N_WAYS] = {"cudnnConvolutionForward",
                                                            "cudnnConvolutionBackwardFilter",
                                                            "cudnnConvolutionBackwardData"};
    struct cuda_conv_way *w = &c->way[which];
    cudnnStatus_t code = call(c, which, a, b, to);
    while (CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_NOT_SUPPORTED) {
        LOG_W(
            "layer '%s': cuDNN's algorithm %d for this convolution's %s is proposed and cannot be "
            "run (%s): the next one is taken",
            c->op->layer->name, w->proposal[w->now].algo, way_name[which],
            cudnnGetErrorString(code));
        (void)cudaGetLastError();
        w->list[w->now].usable = 0;
        cuda_capture_outdate(c->plan);
        enum status st = choose(c, which);
        if (st != ST_OK)
            return st;
        code = call(c, which, a, b, to);
    }
    return cuda_check_dnn(c->op, call_name[which], code);
}
