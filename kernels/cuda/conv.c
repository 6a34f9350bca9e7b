/* kernels/cuda/conv.c - 2-D convolution by cuDNN, on canonical images and weights; bias and a relu
 * behind it by one kernel of ours, a max pool behind them, too. Padding that is not the same on
 * both sides is written out. In bf16 cuDNN reads and writes copies that are cast on the way in and
 * out. Of cuDNN's proposed algorithms the fastest that fits is taken; if it fails when it is run,
 * the next one. */
#include "base/log.h"
#include "kernels/cuda/algo.h"
#include "kernels/cuda/plan.h"
#include <inttypes.h>

enum { MAX_ALGOS = 16 };
/* A pass of other size, made later, must find an algorithm within the plan's workspace, too. */
static const uint64_t workspace_most = (uint64_t)1 << 30, workspace_least = (uint64_t)8 << 20;

struct conv {
    int relu;
    int pool;   /* the max pool behind the relu that is part of this; -1: there is none */
    int framed; /* padding is written out */
    struct cuda_frame frame; /* of one sample's images; planes: channels */
    float *padded;
};

enum { FORWARD, BACKWARD_W, BACKWARD_X, N_WAYS };
static const char *const way_name[N_WAYS] = {"forward", "weights' gradient", "input's gradient"};

/* One of the three, with what cuDNN proposes for it, fastest first; `now` is taken. */
struct way {
    cudnnConvolutionDescriptor_t d; /* of its own, for its math */
    struct cuda_algo list[MAX_ALGOS];
    struct {
        int algo;
        cudnnMathType_t math;
    } proposal[MAX_ALGOS];
    int n, now;
};

struct conv_pass {
    cudnnTensorDescriptor_t x, y; /* x: framed, if it is */
    cudnnFilterDescriptor_t w;
    struct way way[N_WAYS];
    int64_t elems[CUDA_N_CASTS];
};

static const float one = 1.0f, zero = 0.0f;

/* What cuDNN is given to read for a tensor of ours. */
static enum status give(struct cuda_pass *pass, int i, int which, const float *ours,
                        const void **out)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct conv_pass *c = pass->state[i];
    *out = ours;
    if (plan->cfg.precision == BACKEND_BF16) {
        TRY(cuda_check_kernel(
            &plan->ops[i], "cast kernel",
            cuda_cast_down(plan->compute, ours, plan->cast[which], c->elems[which])));
        *out = plan->cast[which];
    }
done:
    return st;
}

/* Where cuDNN writes what becomes a tensor of ours, and, behind that, what makes it ours. */
static void *room(const struct cuda_plan *plan, int which, float *ours)
{
    return plan->cfg.precision == BACKEND_BF16 ? (void *)plan->cast[which] : ours;
}

static enum status fetch(struct cuda_pass *pass, int i, int which, float *ours)
{
    struct cuda_plan *plan = pass->plan;
    const struct conv_pass *c = pass->state[i];
    if (plan->cfg.precision != BACKEND_BF16)
        return ST_OK;
    return cuda_check_kernel(&plan->ops[i], "cast kernel",
                             cuda_cast_up(plan->compute, plan->cast[which], ours, c->elems[which]));
}

/* Room for the bf16 copies of its tensors. */
static void casts_want(struct cuda_plan *plan, const struct layer *l, const struct conv *c)
{
    int64_t elems[CUDA_N_CASTS] = {
        [CUDA_CAST_X] =
            plan->cfg.batch * c->frame.planes * (int64_t)c->frame.padded_h * c->frame.padded_w,
        [CUDA_CAST_W] = l->out.dim[0] * l->in.dim[0] * l->kernel[0] * l->kernel[1],
        [CUDA_CAST_Y] = plan->cfg.batch * shape_elems(&l->out),
    };
    for (int k = 0; k < CUDA_N_CASTS && plan->cfg.precision == BACKEND_BF16; k++)
        if (elems[k] > plan->cast_elems[k])
            plan->cast_elems[k] = elems[k];
}

static enum status conv_plan(struct cuda_plan *plan, int i)
{
    enum status st = ST_OK;
    struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    struct conv *c;
    if (l->in.n_dims != 3 || l->out.n_dims != 3) {
        LOG_E("layer '%s': a convolution needs images (C,H,W)", l->name);
        return ST_UNSUPPORTED;
    }
    TRY(cuda_state_create(op, sizeof *c, &c));
    c->relu = cuda_relu_fuse(plan, i);
    c->pool = cuda_pool_fuse(plan, i);
    c->framed = l->pad_lo[0] != l->pad_hi[0] || l->pad_lo[1] != l->pad_hi[1];
    c->frame = (struct cuda_frame){.planes = l->in.dim[0],
                                   .h = (int)l->in.dim[1],
                                   .w = (int)l->in.dim[2],
                                   .padded_h = (int)l->in.dim[1] + l->pad_lo[0] + l->pad_hi[0],
                                   .padded_w = (int)l->in.dim[2] + l->pad_lo[1] + l->pad_hi[1],
                                   .lo_h = l->pad_lo[0],
                                   .lo_w = l->pad_lo[1]};
    if (c->pool < 0)
        TRY(cuda_output_take(plan, op));
    cuda_scratch_want(plan, cuda_planes_of(&l->out, plan->cfg.batch));
    casts_want(plan, l, c);
    if (c->framed) {
        int64_t elems = plan->cfg.batch * c->frame.planes * c->frame.padded_h * c->frame.padded_w;
        TRY(cuda_arena_take(&plan->arena, l->name, "padded input", (uint64_t)elems * sizeof(float),
                            &c->padded));
        if (op->needs_dx && elems > plan->padded_diff_elems)
            plan->padded_diff_elems = elems;
    }
done:
    return st;
}

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
static enum status math_set(const struct cuda_plan *plan, const struct cuda_op *op,
                            cudnnConvolutionDescriptor_t d, cudnnMathType_t math)
{
    if (plan->cfg.precision == BACKEND_FP32)
        return ST_OK;
    return cuda_check_dnn(op, "cudnnSetConvolutionMathType", cudnnSetConvolutionMathType(d, math));
}

/* Takes the first of the list that can be. */
static enum status choose(struct cuda_plan *plan, const struct cuda_op *op, struct conv_pass *c,
                          int which)
{
    struct way *w = &c->way[which];
    struct cuda_algo_wish wish = {workspace_limit(plan), plan->cfg.deterministic,
                                  plan->cfg.precision != BACKEND_FP32};
    int k = cuda_algo_choose(w->list, w->n, &wish);
    if (k < 0) {
        LOG_E("layer '%s': cuDNN has no %salgorithm for this convolution's %s within %" PRIu64
              " bytes of workspace; give the GPU more memory%s",
              op->layer->name, wish.deterministic ? "deterministic " : "", way_name[which],
              wish.workspace_limit, wish.deterministic ? " or do not ask for determinism" : "");
        return wish.workspace_limit < workspace_most ? plan->arena.full : ST_UNSUPPORTED;
    }
    uint64_t least =
        wish.workspace_limit < workspace_least ? wish.workspace_limit : workspace_least;
    uint64_t want = w->list[k].workspace_bytes > least ? w->list[k].workspace_bytes : least;
    if (plan->planning && want > plan->workspace_bytes)
        plan->workspace_bytes = want;
    w->now = k;
    return math_set(plan, op, w->d, w->proposal[k].math);
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

static enum status propose(const struct cuda_plan *plan, const struct cuda_op *op,
                           struct conv_pass *c, int which)
{
    enum status st = ST_OK;
    struct way *w = &c->way[which];
    int n;
    if (which == FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t perf[MAX_ALGOS];
        TRY(cuda_check_dnn(op, "cudnnGetConvolutionForwardAlgorithm_v7",
                           cudnnGetConvolutionForwardAlgorithm_v7(plan->cudnn, c->x, c->w, w->d,
                                                                  c->y, MAX_ALGOS, &n, perf)));
        PROPOSALS_TAKE(w, perf, n);
    } else if (which == BACKWARD_W) {
        cudnnConvolutionBwdFilterAlgoPerf_t perf[MAX_ALGOS];
        TRY(cuda_check_dnn(op, "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
                           cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                               plan->cudnn, c->x, c->y, w->d, c->w, MAX_ALGOS, &n, perf)));
        PROPOSALS_TAKE(w, perf, n);
    } else {
        cudnnConvolutionBwdDataAlgoPerf_t perf[MAX_ALGOS];
        TRY(cuda_check_dnn(op, "cudnnGetConvolutionBackwardDataAlgorithm_v7",
                           cudnnGetConvolutionBackwardDataAlgorithm_v7(
                               plan->cudnn, c->w, c->y, w->d, c->x, MAX_ALGOS, &n, perf)));
        PROPOSALS_TAKE(w, perf, n);
    }
done:
    return st;
}

static cudnnStatus_t workspace_ask(const struct cuda_plan *plan, const struct conv_pass *c,
                                   int which, int algo, size_t *bytes)
{
    cudnnConvolutionDescriptor_t d = c->way[which].d;
    switch (which) {
    case FORWARD:
        return cudnnGetConvolutionForwardWorkspaceSize(plan->cudnn, c->x, c->w, d, c->y,
                                                       (cudnnConvolutionFwdAlgo_t)algo, bytes);
    case BACKWARD_W:
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(
            plan->cudnn, c->x, c->y, d, c->w, (cudnnConvolutionBwdFilterAlgo_t)algo, bytes);
    default:
        return cudnnGetConvolutionBackwardDataWorkspaceSize(
            plan->cudnn, c->w, c->y, d, c->x, (cudnnConvolutionBwdDataAlgo_t)algo, bytes);
    }
}

/* The workspace is asked for anew: what a proposal says is for its own math. One that rounds floats
 * to half precision, with its small range, is never taken. */
static enum status prepare_way(struct cuda_pass *pass, struct cuda_op *op, struct conv_pass *c,
                               const int pad[2], int which)
{
    enum status st = ST_OK;
    struct way *w = &c->way[which];
    TRY(cuda_desc_conv(pass, op, pad, &w->d));
    TRY(propose(pass->plan, op, c, which));
    for (int k = 0; k < w->n; k++) {
        cudnnMathType_t math = w->proposal[k].math;
        size_t bytes = 0;
        TRY(math_set(pass->plan, op, w->d, math));
        if (math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ||
            workspace_ask(pass->plan, c, which, w->proposal[k].algo, &bytes) !=
                CUDNN_STATUS_SUCCESS)
            w->list[k].usable = 0;
        w->list[k].tf32 = math != CUDNN_FMA_MATH && math != CUDNN_DEFAULT_MATH;
        w->list[k].workspace_bytes = bytes;
    }
    TRY(choose(pass->plan, op, c, which));
done:
    return st;
}

static enum status conv_prepare(struct cuda_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cuda_op *op = &pass->plan->ops[i];
    const struct layer *l = op->layer;
    const struct conv *s = op->state;
    struct conv_pass *c;
    const int none[2] = {0, 0}, *pad = s->framed ? none : l->pad_lo;
    int x[4] = {pass->n, (int)l->in.dim[0], s->framed ? s->frame.padded_h : s->frame.h,
                s->framed ? s->frame.padded_w : s->frame.w};
    int y[4] = {pass->n, (int)l->out.dim[0], (int)l->out.dim[1], (int)l->out.dim[2]};
    int w[4] = {(int)l->out.dim[0], (int)l->in.dim[0], l->kernel[0], l->kernel[1]};
    cudnnDataType_t type =
        pass->plan->cfg.precision == BACKEND_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    TRY(cuda_pass_state(pass, i, sizeof *c, &c));
    for (int k = 0; k < 4; k++) {
        c->elems[CUDA_CAST_X] = (k ? c->elems[CUDA_CAST_X] : 1) * x[k];
        c->elems[CUDA_CAST_W] = (k ? c->elems[CUDA_CAST_W] : 1) * w[k];
        c->elems[CUDA_CAST_Y] = (k ? c->elems[CUDA_CAST_Y] : 1) * y[k];
    }
    TRY(cuda_desc_tensor(pass, op, type, x, &c->x));
    TRY(cuda_desc_tensor(pass, op, type, y, &c->y));
    TRY(cuda_desc_filter(pass, op, type, w, &c->w));
    TRY(prepare_way(pass, op, c, pad, FORWARD));
    if (pass->plan->cfg.inference_only)
        return ST_OK;
    TRY(prepare_way(pass, op, c, pad, BACKWARD_W));
    if (op->needs_dx)
        TRY(prepare_way(pass, op, c, pad, BACKWARD_X));
done:
    return st;
}

/* The frame for all images of the pass. */
static struct cuda_frame frame_of(const struct conv *s, int n)
{
    struct cuda_frame f = s->frame;
    f.planes *= n;
    return f;
}

/* Runs one of the three: from a and b to `to`, in cuDNN's order. */
static cudnnStatus_t call(const struct cuda_plan *plan, const struct conv_pass *c, int which,
                          const void *a, const void *b, void *to)
{
    const struct way *w = &c->way[which];
    int algo = w->proposal[w->now].algo;
    size_t bytes = (size_t)w->list[w->now].workspace_bytes;
    switch (which) {
    case FORWARD:
        return cudnnConvolutionForward(plan->cudnn, &one, c->x, a, c->w, b, w->d,
                                       (cudnnConvolutionFwdAlgo_t)algo, plan->workspace, bytes,
                                       &zero, c->y, to);
    case BACKWARD_W:
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
static enum status run(struct cuda_pass *pass, int i, int which, const void *a, const void *b,
                       void *to)
{
    static const char *const call_name[N_WAYS] = {"cudnnConvolutionForward",
                                                  "cudnnConvolutionBackwardFilter",
                                                  "cudnnConvolutionBackwardData"};
    struct cuda_plan *plan = pass->plan;
    struct cuda_op *op = &plan->ops[i];
    struct conv_pass *c = pass->state[i];
    struct way *w = &c->way[which];
    cudnnStatus_t code = call(plan, c, which, a, b, to);
    while (CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_NOT_SUPPORTED) {
        LOG_W(
            "layer '%s': cuDNN's algorithm %d for this convolution's %s is proposed and cannot be "
            "run (%s): the next one is taken",
            op->layer->name, w->proposal[w->now].algo, way_name[which], cudnnGetErrorString(code));
        (void)cudaGetLastError();
        w->list[w->now].usable = 0;
        enum status st = choose(plan, op, c, which);
        if (st != ST_OK)
            return st;
        code = call(plan, c, which, a, b, to);
    }
    return cuda_check_dnn(op, call_name[which], code);
}

static enum status conv_forward(struct cuda_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct conv *s = op->state;
    const void *x, *w;
    struct cuda_frame frame = frame_of(s, pass->n);
    if (s->framed)
        TRY(cuda_check_kernel(op, "pad kernel",
                              cuda_pad_set(plan->compute, *op->x, s->padded, &frame)));
    TRY(give(pass, i, CUDA_CAST_X, s->framed ? s->padded : *op->x, &x));
    TRY(give(pass, i, CUDA_CAST_W, plan->params[l->param[0]].d, &w));
    TRY(run(pass, i, FORWARD, x, w, room(plan, CUDA_CAST_Y, *op->y)));
    TRY(fetch(pass, i, CUDA_CAST_Y, *op->y));
    const float *bias = plan->params[l->param[1]].d;
    if (s->pool >= 0)
        TRY(cuda_pool_forward_biased(pass, s->pool, bias));
    else
        TRY(cuda_check_kernel(
            op, "bias kernel",
            cuda_bias_add(plan->compute, *op->y, bias, cuda_planes_of(&l->out, pass->n), s->relu)));
done:
    return st;
}

static enum status backward_x(struct cuda_pass *pass, int i, const void *dy)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct conv *s = op->state;
    struct cuda_frame frame = frame_of(s, pass->n);
    float *to = s->framed ? plan->padded_diff : *op->dx;
    const void *w;
    TRY(give(pass, i, CUDA_CAST_W, plan->params[op->layer->param[0]].d, &w));
    TRY(run(pass, i, BACKWARD_X, w, dy, room(plan, CUDA_CAST_X, to)));
    TRY(fetch(pass, i, CUDA_CAST_X, to));
    if (s->framed)
        TRY(cuda_check_kernel(op, "cut kernel", cuda_pad_cut(plan->compute, to, *op->dx, &frame)));
done:
    return st;
}

static enum status conv_backward(struct cuda_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct conv *s = op->state;
    float *dw = plan->params[l->param[0]].d_grad;
    const void *x, *dy;
    TRY(cuda_check_kernel(op, "bias gradient kernel",
                          cuda_bias_grad(plan->compute, *op->dy, plan->params[l->param[1]].d_grad,
                                         plan->scratch, cuda_planes_of(&l->out, pass->n))));
    TRY(give(pass, i, CUDA_CAST_X, s->framed ? s->padded : *op->x, &x));
    TRY(give(pass, i, CUDA_CAST_Y, *op->dy, &dy));
    TRY(run(pass, i, BACKWARD_W, x, dy, room(plan, CUDA_CAST_W, dw)));
    TRY(fetch(pass, i, CUDA_CAST_W, dw));
    if (op->needs_dx)
        TRY(backward_x(pass, i, dy));
done:
    return st;
}

const struct cuda_kind cuda_conv = {conv_plan, conv_prepare, conv_forward, conv_backward, 0, 0};
