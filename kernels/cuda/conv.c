/* kernels/cuda/conv.c - 2-D convolution by cuDNN, on canonical images and weights; bias and a relu
 * behind it by one kernel of ours, a max pool behind them, too. Padding that is not the same on
 * both sides is written out. In bf16 cuDNN reads and writes copies that are cast on the way in and
 * out. */
#include "base/log.h"
#include "kernels/cuda/branch.h"
#include "kernels/cuda/conv_algo.h"
#include "kernels/cuda/plan.h"

struct conv {
    int relu;
    int pool;   /* the max pool behind the relu that is part of this; -1: there is none */
    int framed; /* padding is written out */
    struct cuda_frame frame; /* of one sample's images; planes: channels */
    float *padded;
};

struct conv_pass {
    struct cuda_conv_algos algos; /* x: framed, if it is */
    int64_t elems[CUDA_N_CASTS];
};

/* What cuDNN is given to read for a tensor of ours. */
static enum status give(const struct cuda_lane *lane, struct cuda_pass *pass, int i, int which,
                        const float *ours, const void **out)
{
    enum status st = ST_OK;
    const struct cuda_plan *plan = pass->plan;
    const struct conv_pass *c = pass->state[i];
    *out = ours;
    if (plan->cfg.precision == BACKEND_BF16) {
        TRY(cuda_check_kernel(
            &plan->ops[i], "cast kernel",
            cuda_cast_down(lane->stream, ours, lane->cast[which], c->elems[which])));
        *out = lane->cast[which];
    }
done:
    return st;
}

/* Where cuDNN writes what becomes a tensor of ours, and, behind that, what makes it ours. */
static void *room(const struct cuda_lane *lane, int which, float *ours)
{
    return lane->plan->cfg.precision == BACKEND_BF16 ? (void *)lane->cast[which] : ours;
}

static enum status fetch(const struct cuda_lane *lane, struct cuda_pass *pass, int i, int which,
                         float *ours)
{
    const struct cuda_plan *plan = pass->plan;
    const struct conv_pass *c = pass->state[i];
    if (plan->cfg.precision != BACKEND_BF16)
        return ST_OK;
    return cuda_check_kernel(&plan->ops[i], "cast kernel",
                             cuda_cast_up(lane->stream, lane->cast[which], ours, c->elems[which]));
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
    c->algos.plan = pass->plan;
    c->algos.op = op;
    TRY(cuda_desc_tensor(pass, op, type, x, &c->algos.x));
    TRY(cuda_desc_tensor(pass, op, type, y, &c->algos.y));
    TRY(cuda_desc_filter(pass, op, type, w, &c->algos.w));
    TRY(cuda_conv_prepare(pass, &c->algos, pad, CUDA_CONV_FORWARD));
    if (pass->plan->cfg.inference_only)
        return ST_OK;
    TRY(cuda_conv_prepare(pass, &c->algos, pad, CUDA_CONV_BACKWARD_W));
    if (op->needs_dx)
        TRY(cuda_conv_prepare(pass, &c->algos, pad, CUDA_CONV_BACKWARD_X));
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

static enum status conv_forward(struct cuda_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct conv *s = op->state;
    struct conv_pass *c = pass->state[i];
    const void *x, *w;
    struct cuda_frame frame = frame_of(s, pass->n);
    struct cuda_lane lane = cuda_lane_main(plan);
    if (s->framed)
        TRY(cuda_check_kernel(op, "pad kernel",
                              cuda_pad_set(plan->compute, *op->x, s->padded, &frame)));
    TRY(give(&lane, pass, i, CUDA_CAST_X, s->framed ? s->padded : *op->x, &x));
    TRY(give(&lane, pass, i, CUDA_CAST_W, plan->params[l->param[0]].d, &w));
    TRY(cuda_conv_run(&c->algos, &lane, CUDA_CONV_FORWARD, x, w, room(&lane, CUDA_CAST_Y, *op->y)));
    TRY(fetch(&lane, pass, i, CUDA_CAST_Y, *op->y));
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

/* dy: as cuDNN is given it; NULL: it was given to another stream's lane. */
static enum status backward_x(struct cuda_pass *pass, int i, const void *dy)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct conv *s = op->state;
    struct conv_pass *c = pass->state[i];
    struct cuda_frame frame = frame_of(s, pass->n);
    float *to = s->framed ? plan->padded_diff : *op->dx;
    const void *w;
    struct cuda_lane lane = cuda_lane_main(plan);
    TRY(give(&lane, pass, i, CUDA_CAST_W, plan->params[op->layer->param[0]].d, &w));
    if (dy == NULL)
        TRY(give(&lane, pass, i, CUDA_CAST_Y, *op->dy, &dy));
    TRY(cuda_conv_run(&c->algos, &lane, CUDA_CONV_BACKWARD_X, w, dy, room(&lane, CUDA_CAST_X, to)));
    TRY(fetch(&lane, pass, i, CUDA_CAST_X, to));
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
    struct conv_pass *c = pass->state[i];
    float *dw = plan->params[l->param[0]].d_grad;
    const void *x, *dy;
    struct cuda_lane lane;
    TRY(cuda_branch_fork(plan, i, &lane));
    TRY(cuda_check_kernel(op, "bias gradient kernel",
                          cuda_bias_grad(lane.stream, *op->dy, plan->params[l->param[1]].d_grad,
                                         lane.scratch, cuda_planes_of(&l->out, pass->n))));
    TRY(give(&lane, pass, i, CUDA_CAST_X, s->framed ? s->padded : *op->x, &x));
    TRY(give(&lane, pass, i, CUDA_CAST_Y, *op->dy, &dy));
    TRY(cuda_conv_run(&c->algos, &lane, CUDA_CONV_BACKWARD_W, x, dy, room(&lane, CUDA_CAST_W, dw)));
    TRY(fetch(&lane, pass, i, CUDA_CAST_W, dw));
    if (op->needs_dx)
        TRY(backward_x(pass, i, lane.stream == plan->compute ? dy : NULL));
done:
    return st;
}

const struct cuda_kind cuda_conv = {conv_plan, conv_prepare, conv_forward, conv_backward, 0, 0};
