/* kernels/cuda/conv/conv_algo.c - lists, checks and runs cuDNN's algorithms for one convolution, in
 * the order of expected or measured speed. See conv_algo.h. */
#include "kernels/cuda/conv/conv_algo.h"
#include "base/log.h"
#include "kernels/cuda/plan/layers.h"
#include "kernels/tuning.h"
#include <inttypes.h>
#include <stdatomic.h>

/* Bounds of the plan's workspace. A pass for another number of samples is created later, and there
 * must also be an algorithm for it whose workspace fits. */
static const uint64_t workspace_most = (uint64_t)1 << 30, workspace_least = (uint64_t)8 << 20;

static const char *const way_name[GPU_CONV_N_WAYS] = {"forward", "weights' gradient",
                                                      "input's gradient"};

static const float one = 1.0f, zero = 0.0f;

/* The three tensors of a product, in cuDNN's order. */
struct tensors {
    const void *a, *b;
    void *to;
};

static int is_measured(const struct gpu_plan *plan)
{
    return (plan->cfg.tuning & TUNING_MEASURE) != 0 && !plan->cfg.deterministic;
}

uint64_t gpu_conv_algo_workspace_limit(const struct gpu_plan *plan)
{
    if (!plan->planning)
        return plan->workspace_bytes;
    uint64_t left = gpu_arena_left(&plan->arena) / GPU_ARENA_ALIGN * GPU_ARENA_ALIGN;
    return left < workspace_most ? left : workspace_most;
}

void gpu_conv_algo_workspace_reserve(struct gpu_plan *plan, uint64_t bytes)
{
    if (plan->planning && bytes > plan->workspace_bytes)
        plan->workspace_bytes = bytes;
}

/* Sets the math type of a descriptor before the algorithms are queried. cuDNN's default math may
 * round to TF32, FMA math never does. Tensor Cores are allowed only if the precision is bf16 or
 * TF32. */
static enum status math_reset(const struct gpu_conv_algos *c, cudnnConvolutionDescriptor_t d)
{
    static const cudnnMathType_t math[] = {[BACKEND_FP32] = CUDNN_FMA_MATH,
                                           [BACKEND_TF32] = CUDNN_DEFAULT_MATH,
                                           [BACKEND_BF16] = CUDNN_TENSOR_OP_MATH};
    return gpu_check_dnn(c->op, "cudnnSetConvolutionMathType",
                         cudnnSetConvolutionMathType(d, math[c->plan->cfg.precision]));
}

/* Sets the math type that a proposal requires. In fp32 the descriptor keeps FMA math, because
 * cuDNN's default math may round to TF32. */
static enum status math_set(const struct gpu_conv_algos *c, cudnnConvolutionDescriptor_t d,
                            cudnnMathType_t math)
{
    if (c->plan->cfg.precision == BACKEND_FP32)
        return ST_OK;
    return gpu_check_dnn(c->op, "cudnnSetConvolutionMathType",
                         cudnnSetConvolutionMathType(d, math));
}

static struct gpu_algo_wish wish_of(const struct gpu_plan *plan)
{
    return (struct gpu_algo_wish){gpu_conv_algo_workspace_limit(plan), plan->cfg.deterministic,
                                  plan->cfg.precision != BACKEND_FP32};
}

/* Returns the workspace that the chosen algorithm needs. If algorithms will be measured, returns
 * the largest workspace that any of them needs, but at most a quarter of the free memory, because
 * later plans need memory, too. */
static uint64_t workspace_wanted(const struct gpu_plan *plan, const struct gpu_conv_way *w, int k)
{
    struct gpu_algo_wish wish = wish_of(plan);
    uint64_t want = w->list[k].workspace_bytes;
    if (wish.workspace_limit > gpu_arena_left(&plan->arena) / 4)
        wish.workspace_limit = gpu_arena_left(&plan->arena) / 4;
    for (int j = 0; j < w->n && is_measured(plan); j++)
        if (gpu_algo_choose(&w->list[j], 1, &wish) == 0 && w->list[j].workspace_bytes > want)
            want = w->list[j].workspace_bytes;
    return want;
}

/* Chooses the first usable algorithm of the list. */
static enum status choose_algo(struct gpu_conv_algos *c, int which)
{
    struct gpu_plan *plan = c->plan;
    struct gpu_conv_way *w = &c->way[which];
    struct gpu_algo_wish wish = wish_of(plan);
    int k = gpu_algo_choose(w->list, w->n, &wish);
    if (k < 0) {
        LOG_E("layer '%s': cuDNN has no %salgorithm for this convolution's %s within %" PRIu64
              " bytes of workspace; allow more GPU memory%s",
              c->op->layer->name, wish.deterministic ? "deterministic " : "", way_name[which],
              wish.workspace_limit, wish.deterministic ? " or do not request determinism" : "");
        return wish.workspace_limit < workspace_most ? plan->arena.full : ST_UNSUPPORTED;
    }
    uint64_t least =
        wish.workspace_limit < workspace_least ? wish.workspace_limit : workspace_least;
    uint64_t want = plan->planning ? workspace_wanted(plan, w, k) : 0;
    if (want < least)
        want = least;
    gpu_conv_algo_workspace_reserve(plan, want);
    w->now = k;
    return math_set(c, w->d, w->proposal[k].math);
}

/* Each of the three products has its own type of result in cuDNN, with the same fields. */
#define ANSWERS_TAKE(way, perf, n_perf)                                                            \
    do {                                                                                           \
        (way)->n = code == CUDNN_STATUS_SUCCESS ? (n_perf) : 0;                                    \
        for (int k = 0; k < (way)->n; k++) {                                                       \
            (way)->proposal[k].algo = (int)(perf)[k].algo;                                         \
            (way)->proposal[k].math = (perf)[k].mathType;                                          \
            (way)->list[k].usable = (perf)[k].status == CUDNN_STATUS_SUCCESS;                      \
            (way)->list[k].deterministic = (perf)[k].determinism == CUDNN_DETERMINISTIC;           \
        }                                                                                          \
    } while (0)

/* Fills the list of algorithms in the order of cuDNN's estimates, or, if tensors are passed, of its
 * measurements with these tensors. */
static cudnnStatus_t answers_get(struct gpu_conv_algos *c, const struct gpu_lane *lane, int which,
                                 const struct tensors *t)
{
    enum { MOST = GPU_CONV_MAX_ALGOS };
    cudnnHandle_t h = lane->cudnn;
    void *work = lane->workspace;
    size_t bytes = (size_t)c->plan->workspace_bytes;
    struct gpu_conv_way *w = &c->way[which];
    cudnnStatus_t code;
    int n = 0;
    if (which == GPU_CONV_FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t perf[MOST];
        code =
            t == NULL
                ? cudnnGetConvolutionForwardAlgorithm_v7(h, c->x, c->w, w->d, c->y, MOST, &n, perf)
                : cudnnFindConvolutionForwardAlgorithmEx(h, c->x, t->a, c->w, t->b, w->d, c->y,
                                                         t->to, MOST, &n, perf, work, bytes);
        ANSWERS_TAKE(w, perf, n);
    } else if (which == GPU_CONV_BACKWARD_W) {
        cudnnConvolutionBwdFilterAlgoPerf_t perf[MOST];
        code = t == NULL ? cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, c->x, c->y, w->d, c->w,
                                                                         MOST, &n, perf)
                         : cudnnFindConvolutionBackwardFilterAlgorithmEx(h, c->x, t->a, c->y, t->b,
                                                                         w->d, c->w, t->to, MOST,
                                                                         &n, perf, work, bytes);
        ANSWERS_TAKE(w, perf, n);
    } else {
        cudnnConvolutionBwdDataAlgoPerf_t perf[MOST];
        code = t == NULL ? cudnnGetConvolutionBackwardDataAlgorithm_v7(h, c->w, c->y, w->d, c->x,
                                                                       MOST, &n, perf)
                         : cudnnFindConvolutionBackwardDataAlgorithmEx(h, c->w, t->a, c->y, t->b,
                                                                       w->d, c->x, t->to, MOST, &n,
                                                                       perf, work, bytes);
        ANSWERS_TAKE(w, perf, n);
    }
    return code;
}

static cudnnStatus_t workspace_ask(const struct gpu_conv_algos *c, int which, int algo,
                                   size_t *bytes)
{
    cudnnHandle_t h = c->plan->cudnn;
    cudnnConvolutionDescriptor_t d = c->way[which].d;
    switch (which) {
    case GPU_CONV_FORWARD:
        return cudnnGetConvolutionForwardWorkspaceSize(h, c->x, c->w, d, c->y,
                                                       (cudnnConvolutionFwdAlgo_t)algo, bytes);
    case GPU_CONV_BACKWARD_W:
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(
            h, c->x, c->y, d, c->w, (cudnnConvolutionBwdFilterAlgo_t)algo, bytes);
    default:
        return cudnnGetConvolutionBackwardDataWorkspaceSize(
            h, c->w, c->y, d, c->x, (cudnnConvolutionBwdDataAlgo_t)algo, bytes);
    }
}

/* Queries the workspace again, because a result describes the algorithm with its own math type.
 * Removes algorithms that round floats to half precision, because its range is too small. */
static enum status answers_check(struct gpu_conv_algos *c, int which)
{
    enum status st = ST_OK;
    struct gpu_conv_way *w = &c->way[which];
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
done:
    return st;
}

enum status gpu_conv_algo_prepare(struct gpu_pass *pass, struct gpu_conv_algos *c, const int pad[2],
                                  int which)
{
    static const char *const call_name[GPU_CONV_N_WAYS] = {
        "cudnnGetConvolutionForwardAlgorithm_v7", "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
        "cudnnGetConvolutionBackwardDataAlgorithm_v7"};
    enum status st = ST_OK;
    struct gpu_lane lane = gpu_branch_main_lane(c->plan);
    TRY(gpu_pass_conv_desc(pass, c->op, pad, &c->way[which].d));
    TRY(math_reset(c, c->way[which].d));
    TRY(gpu_check_dnn(c->op, call_name[which], answers_get(c, &lane, which, NULL)));
    TRY(answers_check(c, which));
    TRY(choose_algo(c, which));
    c->way[which].measure = is_measured(c->plan);
done:
    return st;
}

/* Logs why the proposed algorithms are used without a measurement; logs this once, for the first
 * such convolution. */
static void say_unmeasured(const struct gpu_conv_algos *c, int which, cudnnStatus_t code)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    (void)cudaGetLastError();
    if (!atomic_flag_test_and_set(&said))
        LOG_W(
            "layer '%s': cuDNN could not measure the algorithms of this convolution's %s (%s), so the algorithm that cuDNN proposes is used. This is not logged again for other layers",
            c->op->layer->name, way_name[which],
            code == CUDNN_STATUS_SUCCESS ? "cuDNN can run none of them"
                                         : cudnnGetErrorString(code));
}

static enum status measure_algos(struct gpu_conv_algos *c, const struct gpu_lane *lane, int which,
                                 const struct tensors *t)
{
    enum status st = ST_OK;
    struct gpu_conv_way *w = &c->way[which], proposed;
    struct gpu_algo_wish wish = wish_of(c->plan);
    enum cudaStreamCaptureStatus capture;
    TRY(gpu_check_cuda(c->op, "cudaStreamIsCapturing",
                       cudaStreamIsCapturing(lane->stream, &capture)));
    if (capture != cudaStreamCaptureStatusNone)
        return ST_OK;
    w->measure = 0;
    proposed = *w;
    TRY(math_reset(c, w->d)); /* cuDNN's measurement depends on the descriptor's math type */
    cudnnStatus_t code = answers_get(c, lane, which, t);
    TRY(answers_check(c, which));
    if (code == CUDNN_STATUS_SUCCESS && gpu_algo_choose(w->list, w->n, &wish) >= 0) {
        TRY(choose_algo(c, which));
        LOG_D("layer '%s': cuDNN's algorithm %d was the fastest for this convolution's %s",
              c->op->layer->name, w->proposal[w->now].algo, way_name[which]);
    } else {
        say_unmeasured(c, which, code);
        *w = proposed;
        TRY(math_set(c, w->d, w->proposal[w->now].math));
    }
done:
    return st;
}

static cudnnStatus_t call_cudnn(const struct gpu_conv_algos *c, const struct gpu_lane *lane,
                                int which, const struct tensors *t)
{
    const struct gpu_conv_way *w = &c->way[which];
    int algo = w->proposal[w->now].algo;
    size_t bytes = (size_t)w->list[w->now].workspace_bytes;
    switch (which) {
    case GPU_CONV_FORWARD:
        return cudnnConvolutionForward(lane->cudnn, &one, c->x, t->a, c->w, t->b, w->d,
                                       (cudnnConvolutionFwdAlgo_t)algo, lane->workspace, bytes,
                                       &zero, c->y, t->to);
    case GPU_CONV_BACKWARD_W:
        return cudnnConvolutionBackwardFilter(lane->cudnn, &one, c->x, t->a, c->y, t->b, w->d,
                                              (cudnnConvolutionBwdFilterAlgo_t)algo,
                                              lane->workspace, bytes, &zero, c->w, t->to);
    default:
        return cudnnConvolutionBackwardData(lane->cudnn, &one, c->w, t->a, c->y, t->b, w->d,
                                            (cudnnConvolutionBwdDataAlgo_t)algo, lane->workspace,
                                            bytes, &zero, c->x, t->to);
    }
}

/* Runs the product. If an algorithm that cuDNN has proposed fails for the shape, tries the next
 * one. */
enum status gpu_conv_algo_run(struct gpu_conv_algos *c, const struct gpu_lane *lane, int which,
                              const void *a, const void *b, void *to)
{
    static const char *const call_name[GPU_CONV_N_WAYS] = {"cudnnConvolutionForward",
                                                           "cudnnConvolutionBackwardFilter",
                                                           "cudnnConvolutionBackwardData"};
    struct gpu_conv_way *w = &c->way[which];
    struct tensors t = {a, b, to};
    enum status st = w->measure ? measure_algos(c, lane, which, &t) : ST_OK;
    if (st != ST_OK)
        return st;
    cudnnStatus_t code = call_cudnn(c, lane, which, &t);
    while (CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_NOT_SUPPORTED) {
        LOG_W(
            "layer '%s': cuDNN proposed algorithm %d for this convolution's %s, but cannot run it (%s): the next proposed algorithm is used",
            c->op->layer->name, w->proposal[w->now].algo, way_name[which],
            cudnnGetErrorString(code));
        (void)cudaGetLastError();
        w->list[w->now].usable = 0;
        gpu_layer_capture_invalidate(c->plan);
        st = choose_algo(c, which);
        if (st != ST_OK)
            return st;
        code = call_cudnn(c, lane, which, &t);
    }
    return gpu_check_dnn(c->op, call_name[which], code);
}
