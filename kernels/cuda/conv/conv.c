/* kernels/cuda/conv/conv.c - 2-D convolution by cuDNN, on canonical images and weights.
 *
 * - One of Weir's CUDA kernels computes the bias and a relu after it. If a max pool reads
 *   the relu, one kernel computes all three.
 * - If padding differs between the two sides of an axis, the image is copied with its padding.
 * - In bf16, cuDNN reads and writes converted copies of the tensors.
 * - --gpu_tuning=nhwc: a product is a graph with channels last if cuDNN has an engine for it
 *   (conv_graph.h), and bias and relu may be part of it. channels.h decides which images are stored
 *   channels last. A tensor with another layout than its product requires is transposed before or
 *   after the product, by the kernel that also converts to or from bf16. */
#include "base/log.h"
#include "kernels/cuda/conv/channels.h"
#include "kernels/cuda/conv/conv_algo.h"
#include "kernels/cuda/conv/conv_graph.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/tuning.h"

struct conv {
    int relu;
    int pool;               /* max pool that this layer computes with its relu; -1: none */
    int framed;             /* the image is copied with its padding */
    struct gpu_frame frame; /* frame of one sample's images; planes: channels */
    float *padded;
};

enum { PLANES, LAST, N_LAYOUTS }; /* layout of a tensor: canonical, or channels last */

struct conv_pass {
    struct gpu_conv_algos algos; /* x includes the padding if `framed` */
    struct gpu_conv_graph graph[GPU_CONV_N_WAYS];
    struct gpu_planes shape[GPU_N_CASTS];
    int dy_given; /* layout of the copy of dy in the lane's memory; N_LAYOUTS: there is no copy */
};

/* A product of layer i, the lane that queues it, and the layouts that it requires. */
struct product {
    struct gpu_pass *pass;
    int i;
    const struct gpu_lane *lane;
    int layout;
};

static int has_graphs(const struct gpu_plan *plan)
{
    return (plan->cfg.tuning & TUNING_NHWC) != 0;
}

/* Returns the layout of a tensor of the plan. The gradient with respect to the tensor has the same
 * layout. */
static int layout_of(const struct gpu_op *op, int which)
{
    const struct conv *s = op->state;
    int is_last =
        which == GPU_CAST_X ? op->x_last && !s->framed : which == GPU_CAST_Y && op->y_last;
    return is_last ? LAST : PLANES;
}

/* Returns true if the tensor must be transposed for the product. */
static int is_transposed(const struct product *p, int which)
{
    const struct conv_pass *c = p->pass->state[p->i];
    return p->layout != layout_of(&p->pass->plan->ops[p->i], which) &&
           c->shape[which].channels > 1 && c->shape[which].plane > 1;
}

static int64_t elems_of(const struct conv_pass *c, int which)
{
    return c->shape[which].n * c->shape[which].channels * c->shape[which].plane;
}

/* Returns the matrices whose transposition converts a tensor to the product's layout; if `from` is
 * set, those that convert it back from that layout. */
static struct gpu_matrices matrices_of(const struct product *p, int which, int from)
{
    const struct conv_pass *c = p->pass->state[p->i];
    struct gpu_planes s = c->shape[which];
    if ((p->layout == LAST) != from)
        return (struct gpu_matrices){s.n, s.channels, s.plane};
    return (struct gpu_matrices){s.n, s.plane, s.channels};
}

/* Sets *out to the memory from which cuDNN reads a tensor of the plan; converts the tensor if
 * necessary. */
static enum status convert_operand(const struct product *p, int which, const float *ours,
                                   const void **out)
{
    const struct gpu_plan *plan = p->pass->plan;
    const struct gpu_op *op = &plan->ops[p->i];
    struct conv_pass *c = p->pass->state[p->i];
    cudaStream_t stream = p->lane->stream;
    uint16_t *copy = p->lane->cast[which];
    int rounds = plan->cfg.precision == BACKEND_BF16, turned = is_transposed(p, which);
    struct gpu_matrices m = matrices_of(p, which, 0);
    *out = rounds || turned ? (const void *)copy : ours;
    if (*out == ours || (which == GPU_CAST_Y && c->dy_given == p->layout))
        return ST_OK;
    if (which == GPU_CAST_Y)
        c->dy_given = p->layout;
    if (!turned)
        return gpu_check_kernel(op, "cast kernel",
                                gpu_cast_down(stream, ours, copy, elems_of(c, which)));
    return gpu_check_kernel(op, "transpose kernel",
                            rounds ? gpu_transpose_down(stream, ours, copy, m)
                                   : gpu_transpose(stream, ours, (float *)copy, m));
}

/* Returns the memory to which cuDNN writes a result. convert_result then converts the result to the
 * plan's tensor. */
static void *result_place(const struct product *p, int which, float *ours)
{
    int is_copy = p->pass->plan->cfg.precision == BACKEND_BF16 || is_transposed(p, which);
    return is_copy ? (void *)p->lane->cast[which] : ours;
}

static enum status convert_result(const struct product *p, int which, float *ours)
{
    const struct gpu_plan *plan = p->pass->plan;
    const struct gpu_op *op = &plan->ops[p->i];
    const struct conv_pass *c = p->pass->state[p->i];
    cudaStream_t stream = p->lane->stream;
    const uint16_t *copy = p->lane->cast[which];
    int rounded = plan->cfg.precision == BACKEND_BF16, turned = is_transposed(p, which);
    struct gpu_matrices m = matrices_of(p, which, 1);
    if (!rounded && !turned)
        return ST_OK;
    if (!turned)
        return gpu_check_kernel(op, "cast kernel",
                                gpu_cast_up(stream, copy, ours, elems_of(c, which)));
    return gpu_check_kernel(op, "transpose kernel",
                            rounded ? gpu_transpose_up(stream, copy, ours, m)
                                    : gpu_transpose(stream, (const float *)copy, ours, m));
}

/* Runs one of the three products. ours: the plan's tensors x, w and y, indexed by GPU_CAST_..., or
 * the gradients with respect to them. *with_bias becomes 1 if the product is a forward that has
 * already applied bias and relu; NULL: the product is not a forward. */
static enum status run_product(struct gpu_pass *pass, int i, const struct gpu_lane *lane, int way,
                               float *const *ours, int *with_bias)
{
    static const int in[GPU_CONV_N_WAYS][2] = {[GPU_CONV_FORWARD] = {GPU_CAST_X, GPU_CAST_W},
                                               [GPU_CONV_BACKWARD_W] = {GPU_CAST_X, GPU_CAST_Y},
                                               [GPU_CONV_BACKWARD_X] = {GPU_CAST_W, GPU_CAST_Y}};
    static const int out[GPU_CONV_N_WAYS] = {GPU_CAST_Y, GPU_CAST_W, GPU_CAST_X};
    enum status st = ST_OK;
    const struct gpu_plan *plan = pass->plan;
    const struct layer *l = plan->ops[i].layer;
    struct conv_pass *c = pass->state[i];
    struct gpu_conv_graph *graph = &c->graph[way];
    int done = 0, to = out[way];
    while (!done) {
        struct product p = {pass, i, lane, graph->plan != NULL ? LAST : PLANES};
        int adds = p.layout == LAST && graph->with_bias;
        const void *a, *b, *bias = NULL;
        void *where = result_place(&p, to, ours[to]);
        TRY(convert_operand(&p, in[way][0], ours[in[way][0]], &a));
        TRY(convert_operand(&p, in[way][1], ours[in[way][1]], &b));
        if (adds)
            TRY(convert_operand(&p, GPU_CAST_BIAS, plan->params[l->param[1]].d, &bias));
        if (p.layout == LAST) {
            TRY(gpu_conv_graph_run(graph, lane, (const void *[]){a, b, bias}, where, &done));
        } else {
            TRY(gpu_conv_algo_run(&c->algos, lane, way, a, b, where));
            done = 1;
        }
        if (done)
            TRY(convert_result(&p, to, ours[to]));
        if (with_bias != NULL)
            *with_bias = adds;
    }
done:
    return st;
}

/* Reserves memory for the converted copies of the layer's tensors. */
static void casts_want(struct gpu_plan *plan, const struct layer *l, const struct conv *c)
{
    int rounds = plan->cfg.precision == BACKEND_BF16;
    int64_t elems[GPU_N_CASTS] = {
        [GPU_CAST_X] =
            plan->cfg.batch * c->frame.planes * (int64_t)c->frame.padded_h * c->frame.padded_w,
        [GPU_CAST_W] = l->out.dim[0] * l->in.dim[0] * l->kernel[0] * l->kernel[1],
        [GPU_CAST_Y] = plan->cfg.batch * shape_elems(&l->out),
        [GPU_CAST_BIAS] = has_graphs(plan) ? l->out.dim[0] : 0,
    };
    for (int k = 0; k < GPU_N_CASTS && (rounds || has_graphs(plan)); k++) {
        int64_t of_16_bits = rounds ? elems[k] : 2 * elems[k];
        if (of_16_bits > plan->cast_elems[k])
            plan->cast_elems[k] = of_16_bits;
    }
}

static enum status conv_plan(struct gpu_plan *plan, int i)
{
    enum status st = ST_OK;
    struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    struct conv *c;
    if (l->in.n_dims != 3 || l->out.n_dims != 3) {
        LOG_E("layer '%s': a convolution needs images (C,H,W)", l->name);
        return ST_UNSUPPORTED;
    }
    TRY(gpu_plan_state_create(op, sizeof *c, &c));
    c->relu = gpu_plan_fuse_relu(plan, i);
    c->pool = gpu_plan_fuse_pool(plan, i);
    c->framed = gpu_channels_framed(l);
    c->frame = (struct gpu_frame){.planes = l->in.dim[0],
                                  .h = (int)l->in.dim[1],
                                  .w = (int)l->in.dim[2],
                                  .padded_h = (int)l->in.dim[1] + l->pad_lo[0] + l->pad_hi[0],
                                  .padded_w = (int)l->in.dim[2] + l->pad_lo[1] + l->pad_hi[1],
                                  .lo_h = l->pad_lo[0],
                                  .lo_w = l->pad_lo[1]};
    if (c->pool < 0)
        TRY(gpu_plan_reserve_output(plan, op));
    gpu_plan_reserve_scratch(plan, gpu_plan_planes(&l->out, plan->cfg.batch));
    casts_want(plan, l, c);
    if (c->framed) {
        int64_t elems = plan->cfg.batch * c->frame.planes * c->frame.padded_h * c->frame.padded_w;
        TRY(gpu_arena_reserve(&plan->arena, l->name, "padded input",
                              (uint64_t)elems * sizeof(float), &c->padded));
        if (op->needs_dx && elems > plan->padded_diff_elems)
            plan->padded_diff_elems = elems;
    }
done:
    return st;
}

static struct gpu_planes planes_of(const int d[4])
{
    return (struct gpu_planes){d[0], d[1], (int64_t)d[2] * d[3]};
}

static enum status conv_prepare(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct conv *s = op->state;
    struct conv_pass *c;
    const int none[2] = {0, 0}, *pad = s->framed ? none : l->pad_lo;
    const struct gpu_conv_graph_shape g = {
        .x = {pass->n, (int)l->in.dim[0], s->framed ? s->frame.padded_h : s->frame.h,
              s->framed ? s->frame.padded_w : s->frame.w},
        .y = {pass->n, (int)l->out.dim[0], (int)l->out.dim[1], (int)l->out.dim[2]},
        .w = {(int)l->out.dim[0], (int)l->in.dim[0], l->kernel[0], l->kernel[1]},
        .pad = {pad[0], pad[1]},
        .stride = {l->stride[0], l->stride[1]}};
    cudnnDataType_t type =
        plan->cfg.precision == BACKEND_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    TRY(gpu_pass_state(pass, i, sizeof *c, &c));
    c->shape[GPU_CAST_X] = planes_of(g.x);
    c->shape[GPU_CAST_W] = planes_of(g.w);
    c->shape[GPU_CAST_Y] = planes_of(g.y);
    c->shape[GPU_CAST_BIAS] = (struct gpu_planes){1, l->out.dim[0], 1};
    c->algos.plan = plan;
    c->algos.op = op;
    TRY(gpu_pass_tensor_desc(pass, op, type, g.x, &c->algos.x));
    TRY(gpu_pass_tensor_desc(pass, op, type, g.y, &c->algos.y));
    TRY(gpu_pass_filter_desc(pass, op, type, g.w, &c->algos.w));
    for (int way = 0; way < GPU_CONV_N_WAYS; way++) {
        if (way != GPU_CONV_FORWARD && plan->cfg.inference_only)
            continue;
        if (way == GPU_CONV_BACKWARD_X && !op->needs_dx)
            continue;
        TRY(gpu_conv_algo_prepare(pass, &c->algos, pad, way));
        if (has_graphs(plan))
            TRY(gpu_conv_graph_prepare(pass, op, &g, way, s->relu, &c->graph[way]));
    }
done:
    return st;
}

/* Returns the frame of all images of the pass. */
static struct gpu_frame frame_of(const struct conv *s, int n)
{
    struct gpu_frame f = s->frame;
    f.planes *= n;
    return f;
}

/* Applies the relu that follows a convolution without a bias. (If there is a bias, bias.cu applies
 * both.) */
static enum status relu_alone(struct gpu_pass *pass, int i)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    const struct conv *s = op->state;
    if (!s->relu)
        return ST_OK;
    return gpu_check_kernel(op, "relu kernel",
                            gpu_relu_forward(pass->plan->compute, *op->y, *op->y,
                                             pass->n * shape_elems(&op->layer->out)));
}

/* Applies bias, relu and max pool, except for those that the product has already applied. */
static enum status forward_end(struct gpu_pass *pass, int i, int has_bias)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct conv *s = op->state;
    struct gpu_planes y = gpu_plan_planes(&l->out, pass->n);
    const float *bias = NULL;
    if (!layer_has_bias(l))
        TRY(relu_alone(pass, i));
    else if (!has_bias)
        bias = plan->params[l->param[1]].d;
    if (bias != NULL && (s->pool < 0 || op->y_last)) {
        if (op->y_last)
            y = (struct gpu_planes){y.n * y.plane, y.channels, 1};
        TRY(gpu_check_kernel(op, "bias kernel",
                             gpu_bias_add(plan->compute, *op->y, bias, y, s->relu)));
        bias = NULL;
    }
    if (s->pool >= 0)
        TRY(gpu_pool_forward_biased(pass, s->pool, bias));
done:
    return st;
}

static enum status conv_forward(struct gpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct conv *s = op->state;
    struct gpu_frame frame = frame_of(s, pass->n);
    struct gpu_lane lane = gpu_branch_main_lane(plan);
    int has_bias;
    if (s->framed)
        TRY(gpu_check_kernel(op, "pad kernel",
                             gpu_pad_set(plan->compute, *op->x, s->padded, &frame)));
    float *const ours[] = {[GPU_CAST_X] = s->framed ? s->padded : *op->x,
                           [GPU_CAST_W] = plan->params[op->layer->param[0]].d,
                           [GPU_CAST_Y] = *op->y};
    TRY(run_product(pass, i, &lane, GPU_CONV_FORWARD, ours, &has_bias));
    TRY(forward_end(pass, i, has_bias));
done:
    return st;
}

static enum status backward_x(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct conv *s = op->state;
    struct gpu_frame frame = frame_of(s, pass->n);
    struct gpu_lane lane = gpu_branch_main_lane(plan);
    float *const ours[] = {[GPU_CAST_X] = s->framed ? plan->padded_diff : *op->dx,
                           [GPU_CAST_W] = plan->params[op->layer->param[0]].d,
                           [GPU_CAST_Y] = *op->dy};
    TRY(run_product(pass, i, &lane, GPU_CONV_BACKWARD_X, ours, NULL));
    if (s->framed)
        TRY(gpu_check_kernel(op, "cut kernel",
                             gpu_pad_cut(plan->compute, plan->padded_diff, *op->dx, &frame)));
done:
    return st;
}

static enum status conv_backward(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct conv *s = op->state;
    struct conv_pass *c = pass->state[i];
    struct gpu_planes y = gpu_plan_planes(&l->out, pass->n);
    struct gpu_lane lane;
    TRY(gpu_branch_fork(plan, i, &lane));
    if (layer_has_bias(l)) {
        float *db = plan->params[l->param[1]].d_grad;
        int code = op->y_last ? gpu_bias_grad_last(lane.stream, *op->dy, db, lane.scratch, y)
                              : gpu_bias_grad(lane.stream, *op->dy, db, lane.scratch, y);
        TRY(gpu_check_kernel(op, "bias gradient kernel", code));
    }
    float *const ours[] = {[GPU_CAST_X] = s->framed ? s->padded : *op->x,
                           [GPU_CAST_W] = plan->params[l->param[0]].d_grad,
                           [GPU_CAST_Y] = *op->dy};
    c->dy_given = N_LAYOUTS;
    TRY(run_product(pass, i, &lane, GPU_CONV_BACKWARD_W, ours, NULL));
    if (lane.stream != plan->compute) /* the copy of dy is in the other lane's memory */
        c->dy_given = N_LAYOUTS;
    if (op->needs_dx)
        TRY(backward_x(pass, i));
done:
    return st;
}

const struct gpu_kind gpu_conv = {conv_plan, conv_prepare, conv_forward, conv_backward, 0, 0};
