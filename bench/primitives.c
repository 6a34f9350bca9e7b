/* bench/primitives.c - measures the CPU backend beside oneDNN itself, on one core.
 * Two contestants run the deep MNIST network, batch 64, in turns within one process:
 *   bare:  oneDNN's primitives of the network, forward and backward, one after the other. Tensors
 *          and weights are already in the formats that oneDNN prefers, so there are no reorders. No
 *          optimizer and no loss are computed.
 *   plan:  the backend through kernels/backend.h, as the worker calls it: pixels in, all layers
 *          forward, loss, all layers backward, gradients out in canonical layout, new parameters
 *          copied in.
 * Prints the medians over the rounds in images/s, their ratio, and the same data as a line of JSON.
 *     bench_primitives [rounds] [steps in a round] */
#include "base/clock.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, MAX_ROUNDS = 1000, N_LAYERS = 12, N_PARAMS = 8, MAX_CALLS = 24 };

static void die(const char *what, int code)
{
    fprintf(stderr, "bench_primitives: %s failed (%d)\n", what, code);
    exit(1);
}

#define DNN(call)                                                                                  \
    do {                                                                                           \
        int code_ = (int)(call);                                                                   \
        if (code_ != 0)                                                                            \
            die(#call, code_);                                                                     \
    } while (0)

/* Returns aligned floats in [-scale, scale). */
static float *floats(int64_t n, float scale)
{
    size_t bytes = ((size_t)n * sizeof(float) + 63) / 64 * 64;
    float *p = aligned_alloc(64, bytes);
    if (p == NULL)
        die("aligned_alloc", 0);
    for (int64_t k = 0; k < n; k++)
        p[k] = (rng_uniform(rng_key(1, RNG_TEST, (uint64_t)n), (uint64_t)k) * 2 - 1) * scale;
    return p;
}

/* ---- bare primitives ---- */

struct call {
    dnnl_primitive_t prim;
    int n_args;
    dnnl_exec_arg_t args[8];
};

static struct bare {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct call forward[MAX_CALLS], backward[MAX_CALLS];
    int n_forward, n_backward;
} bare;

static dnnl_memory_desc_t md_any(int n_dims, int64_t a, int64_t b, int64_t c, int64_t d)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {a, b, c, d};
    DNN(dnnl_memory_desc_init_by_tag(&md, n_dims, dims, dnnl_f32,
                                     n_dims == 1 ? dnnl_a : dnnl_format_tag_any));
    return md;
}

static dnnl_memory_t memory(const dnnl_memory_desc_t *md)
{
    dnnl_memory_t mem;
    float *data = floats((int64_t)(dnnl_memory_desc_get_size(md) / sizeof(float)) + 16, 0.05f);
    DNN(dnnl_memory_create(&mem, md, bare.engine, data));
    return mem;
}

static const dnnl_memory_desc_t *query(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

static dnnl_primitive_desc_t describe(const_dnnl_op_desc_t d, int relu,
                                      const_dnnl_primitive_desc_t hint)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    DNN(dnnl_primitive_attr_create(&attr));
    DNN(dnnl_post_ops_create(&post));
    if (relu)
        DNN(dnnl_post_ops_append_eltwise(post, 1, dnnl_eltwise_relu, 0, 0));
    DNN(dnnl_primitive_attr_set_post_ops(attr, post));
    DNN(dnnl_primitive_desc_create(&pd, d, attr, bare.engine, hint));
    DNN(dnnl_post_ops_destroy(post));
    DNN(dnnl_primitive_attr_destroy(attr));
    return pd;
}

static struct call *call_add(int backward, dnnl_primitive_desc_t pd)
{
    struct call *c = backward ? &bare.backward[bare.n_backward++] : &bare.forward[bare.n_forward++];
    DNN(dnnl_primitive_create(&c->prim, pd));
    return c;
}

static void arg(struct call *c, int which, dnnl_memory_t mem)
{
    c->args[c->n_args++] = (dnnl_exec_arg_t){which, mem};
}

/* Creates the argument as a new tensor in the format that the primitive prefers. */
static dnnl_memory_t arg_new(struct call *c, int which, dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    dnnl_memory_t mem = memory(query(pd, what));
    arg(c, which, mem);
    return mem;
}

static dnnl_memory_t arg_or_new(struct call *c, int which, dnnl_primitive_desc_t pd,
                                dnnl_query_t what, dnnl_memory_t have)
{
    const dnnl_memory_desc_t *md = NULL;
    if (have != NULL)
        DNN(dnnl_memory_get_memory_desc(have, &md));
    if (md == NULL || !dnnl_memory_desc_equal(md, query(pd, what)))
        return arg_new(c, which, pd, what);
    arg(c, which, have);
    return have;
}

static dnnl_memory_t bare_conv(dnnl_memory_t x, int64_t in, int64_t out, int64_t side, int first)
{
    dnnl_convolution_desc_t d;
    dnnl_dims_t stride = {1, 1}, pad = {2, 2};
    dnnl_memory_desc_t mx = md_any(4, BATCH, in, side, side), mw = md_any(4, out, in, 5, 5),
                       mb = md_any(1, out, 0, 0, 0), my = md_any(4, BATCH, out, side, side);
    DNN(dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, &mx,
                                           &mw, &mb, &my, stride, pad, pad));
    dnnl_primitive_desc_t fwd = describe(&d, 1, NULL), pd;
    struct call *c = call_add(0, fwd);
    x = arg_or_new(c, DNNL_ARG_SRC, fwd, dnnl_query_src_md, x);
    arg_new(c, DNNL_ARG_WEIGHTS, fwd, dnnl_query_weights_md);
    dnnl_memory_t bias = memory(&mb);
    arg(c, DNNL_ARG_BIAS, bias);
    dnnl_memory_t y = arg_new(c, DNNL_ARG_DST, fwd, dnnl_query_dst_md);

    DNN(dnnl_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, &mx, &mw, &mb, &my,
                                                    stride, pad, pad));
    pd = describe(&d, 0, fwd);
    c = call_add(1, pd);
    arg_or_new(c, DNNL_ARG_SRC, pd, dnnl_query_src_md, x);
    dnnl_memory_t dy = arg_new(c, DNNL_ARG_DIFF_DST, pd, dnnl_query_diff_dst_md);
    arg_new(c, DNNL_ARG_DIFF_WEIGHTS, pd, dnnl_query_diff_weights_md);
    arg(c, DNNL_ARG_DIFF_BIAS, memory(&mb));
    if (first)
        return y;
    DNN(dnnl_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &mx, &mw, &my, stride,
                                                 pad, pad));
    pd = describe(&d, 0, fwd);
    c = call_add(1, pd);
    arg_or_new(c, DNNL_ARG_DIFF_DST, pd, dnnl_query_diff_dst_md, dy);
    arg_new(c, DNNL_ARG_WEIGHTS, pd, dnnl_query_weights_md);
    arg_new(c, DNNL_ARG_DIFF_SRC, pd, dnnl_query_diff_src_md);
    return y;
}

static dnnl_memory_t bare_pool(dnnl_memory_t x, int64_t channels, int64_t side)
{
    dnnl_pooling_desc_t d;
    const dnnl_memory_desc_t *mx;
    dnnl_dims_t two = {2, 2}, none = {0, 0};
    dnnl_memory_desc_t my = md_any(4, BATCH, channels, side / 2, side / 2);
    DNN(dnnl_memory_get_memory_desc(x, &mx));
    DNN(dnnl_pooling_forward_desc_init(&d, dnnl_forward_training, dnnl_pooling_max, mx, &my, two,
                                       two, none, none));
    dnnl_primitive_desc_t fwd = describe(&d, 0, NULL), pd;
    struct call *c = call_add(0, fwd);
    arg(c, DNNL_ARG_SRC, x);
    dnnl_memory_t y = arg_new(c, DNNL_ARG_DST, fwd, dnnl_query_dst_md);
    dnnl_memory_t work = arg_new(c, DNNL_ARG_WORKSPACE, fwd, dnnl_query_workspace_md);

    DNN(dnnl_pooling_backward_desc_init(&d, dnnl_pooling_max, mx, query(fwd, dnnl_query_dst_md),
                                        two, two, none, none));
    pd = describe(&d, 0, fwd);
    c = call_add(1, pd);
    arg_new(c, DNNL_ARG_DIFF_DST, pd, dnnl_query_diff_dst_md);
    arg_new(c, DNNL_ARG_DIFF_SRC, pd, dnnl_query_diff_src_md);
    arg(c, DNNL_ARG_WORKSPACE, work);
    return y;
}

static dnnl_memory_t bare_dense(dnnl_memory_t x, int64_t in, int64_t out, int relu)
{
    dnnl_inner_product_desc_t d;
    dnnl_memory_desc_t mx = md_any(2, BATCH, in, 0, 0), mw = md_any(2, out, in, 0, 0),
                       mb = md_any(1, out, 0, 0, 0), my = md_any(2, BATCH, out, 0, 0);
    DNN(dnnl_inner_product_forward_desc_init(&d, dnnl_forward_training, &mx, &mw, &mb, &my));
    dnnl_primitive_desc_t fwd = describe(&d, relu, NULL), pd;
    struct call *c = call_add(0, fwd);
    x = arg_or_new(c, DNNL_ARG_SRC, fwd, dnnl_query_src_md, x);
    arg_new(c, DNNL_ARG_WEIGHTS, fwd, dnnl_query_weights_md);
    arg(c, DNNL_ARG_BIAS, memory(&mb));
    dnnl_memory_t y = arg_new(c, DNNL_ARG_DST, fwd, dnnl_query_dst_md);

    DNN(dnnl_inner_product_backward_weights_desc_init(&d, &mx, &mw, &mb, &my));
    pd = describe(&d, 0, fwd);
    c = call_add(1, pd);
    arg_or_new(c, DNNL_ARG_SRC, pd, dnnl_query_src_md, x);
    dnnl_memory_t dy = arg_new(c, DNNL_ARG_DIFF_DST, pd, dnnl_query_diff_dst_md);
    arg_new(c, DNNL_ARG_DIFF_WEIGHTS, pd, dnnl_query_diff_weights_md);
    arg(c, DNNL_ARG_DIFF_BIAS, memory(&mb));

    DNN(dnnl_inner_product_backward_data_desc_init(&d, &mx, &mw, &my));
    pd = describe(&d, 0, fwd);
    c = call_add(1, pd);
    arg_or_new(c, DNNL_ARG_DIFF_DST, pd, dnnl_query_diff_dst_md, dy);
    arg_new(c, DNNL_ARG_WEIGHTS, pd, dnnl_query_weights_md);
    arg_new(c, DNNL_ARG_DIFF_SRC, pd, dnnl_query_diff_src_md);
    return y;
}

static void bare_create(void)
{
    DNN(dnnl_engine_create(&bare.engine, dnnl_cpu, 0));
    DNN(dnnl_stream_create(&bare.stream, bare.engine, dnnl_stream_default_flags));
    dnnl_memory_t x = bare_conv(NULL, 1, 32, 28, 1);
    x = bare_pool(x, 32, 28);
    x = bare_conv(x, 32, 64, 14, 0);
    bare_pool(x, 64, 14);
    x = bare_dense(NULL, 3136, 1024, 1);
    bare_dense(x, 1024, 10, 0);
}

static void bare_step(void)
{
    for (int k = 0; k < bare.n_forward; k++)
        DNN(dnnl_primitive_execute(bare.forward[k].prim, bare.stream, bare.forward[k].n_args,
                                   bare.forward[k].args));
    for (int k = bare.n_backward - 1; k >= 0; k--)
        DNN(dnnl_primitive_execute(bare.backward[k].prim, bare.stream, bare.backward[k].n_args,
                                   bare.backward[k].args));
}

/* ---- the backend's plan ---- */

static struct {
    const struct backend *backend;
    struct plan *plan;
    const float *params[N_PARAMS];
    float *grads[N_PARAMS];
    uint8_t pixels[BATCH][784], labels[BATCH];
    const uint8_t *images[BATCH];
    uint64_t position[BATCH];
} ours;

static const struct layer layers[N_LAYERS] = {
    {.kind = LAYER_CONV2D,
     .name = "conv1",
     .in = {3, {1, 28, 28}},
     .out = {3, {32, 28, 28}},
     .kernel = {5, 5},
     .stride = {1, 1},
     .pad_lo = {2, 2},
     .pad_hi = {2, 2},
     .n_params = 2,
     .param = {0, 1},
     .n_inputs = 1,
     .input = {-1}},
    {.kind = LAYER_RELU,
     .name = "relu1",
     .in = {3, {32, 28, 28}},
     .out = {3, {32, 28, 28}},
     .n_inputs = 1,
     .input = {0}},
    {.kind = LAYER_MAX_POOL,
     .name = "pool1",
     .in = {3, {32, 28, 28}},
     .out = {3, {32, 14, 14}},
     .kernel = {2, 2},
     .stride = {2, 2},
     .n_inputs = 1,
     .input = {1}},
    {.kind = LAYER_CONV2D,
     .name = "conv2",
     .in = {3, {32, 14, 14}},
     .out = {3, {64, 14, 14}},
     .kernel = {5, 5},
     .stride = {1, 1},
     .pad_lo = {2, 2},
     .pad_hi = {2, 2},
     .n_params = 2,
     .param = {2, 3},
     .n_inputs = 1,
     .input = {2}},
    {.kind = LAYER_RELU,
     .name = "relu2",
     .in = {3, {64, 14, 14}},
     .out = {3, {64, 14, 14}},
     .n_inputs = 1,
     .input = {3}},
    {.kind = LAYER_MAX_POOL,
     .name = "pool2",
     .in = {3, {64, 14, 14}},
     .out = {3, {64, 7, 7}},
     .kernel = {2, 2},
     .stride = {2, 2},
     .n_inputs = 1,
     .input = {4}},
    {.kind = LAYER_FLATTEN,
     .name = "flatten",
     .in = {3, {64, 7, 7}},
     .out = {1, {3136}},
     .n_inputs = 1,
     .input = {5}},
    {.kind = LAYER_DENSE,
     .name = "fc1",
     .in = {1, {3136}},
     .out = {1, {1024}},
     .n_params = 2,
     .param = {4, 5},
     .n_inputs = 1,
     .input = {6}},
    {.kind = LAYER_RELU,
     .name = "relu3",
     .in = {1, {1024}},
     .out = {1, {1024}},
     .n_inputs = 1,
     .input = {7}},
    {.kind = LAYER_DROPOUT,
     .name = "dropout",
     .in = {1, {1024}},
     .out = {1, {1024}},
     .rate = 0.5f,
     .n_inputs = 1,
     .input = {8}},
    {.kind = LAYER_DENSE,
     .name = "fc2",
     .in = {1, {1024}},
     .out = {1, {10}},
     .n_params = 2,
     .param = {6, 7},
     .n_inputs = 1,
     .input = {9}},
    {.kind = LAYER_SOFTMAX_XENT,
     .name = "loss",
     .in = {1, {10}},
     .out = {1, {10}},
     .n_inputs = 1,
     .input = {10}},
};

static void ours_create(void)
{
    static const int64_t elems[N_PARAMS] = {800, 32, 51200, 64, 3211264, 1024, 10240, 10};
    for (int k = 0; k < N_PARAMS; k++) {
        ours.params[k] = floats(elems[k], 0.05f);
        ours.grads[k] = floats(elems[k], 0);
    }
    for (int s = 0; s < BATCH; s++) {
        for (int k = 0; k < 784; k++)
            ours.pixels[s][k] = (uint8_t)rng_u64(7, (uint64_t)(s * 784 + k));
        ours.images[s] = ours.pixels[s];
        ours.labels[s] = (uint8_t)(s % 10);
        ours.position[s] = (uint64_t)s;
    }
    struct backend_plan_config cfg = {.layers = layers,
                                      .n_layers = N_LAYERS,
                                      .batch = BATCH,
                                      .n_threads = 1,
                                      .n_params = N_PARAMS,
                                      .params = ours.params,
                                      .grads = ours.grads,
                                      .seed = 1};
    DNN(backend_open("cpu", NULL, &ours.backend));
    DNN(ours.backend->plan_create(&cfg, &ours.plan));
}

static void ours_step(void)
{
    float loss;
    int n_correct;
    DNN(ours.backend->set_input(ours.plan, ours.images, ours.labels, ours.position, BATCH));
    for (int k = 0; k < N_LAYERS; k++)
        DNN(ours.backend->forward(ours.plan, k, 1));
    DNN(ours.backend->result(ours.plan, &loss, &n_correct));
    for (int k = N_LAYERS - 1; k >= 0; k--)
        DNN(ours.backend->backward(ours.plan, k));
    for (int k = 0; k < N_PARAMS; k++)
        DNN(ours.backend->load_param(ours.plan, k));
}

/* ---- measuring ---- */

static double images_per_second(void (*step)(void), int n_steps)
{
    int64_t start = clock_now_ns();
    for (int k = 0; k < n_steps; k++)
        step();
    return (double)n_steps * BATCH * 1e9 / (double)(clock_now_ns() - start);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Prints the microseconds of each layer's forward and backward, each the minimum of 20 runs. */
static void layers_print(void)
{
    double least[2][N_LAYERS];
    for (int round = 0; round < 20; round++) {
        DNN(ours.backend->set_input(ours.plan, ours.images, ours.labels, ours.position, BATCH));
        for (int k = 0; k < 2 * N_LAYERS; k++) {
            int back = k >= N_LAYERS, layer = back ? 2 * N_LAYERS - 1 - k : k;
            int64_t start = clock_now_ns();
            DNN(back ? ours.backend->backward(ours.plan, layer)
                     : ours.backend->forward(ours.plan, layer, 1));
            double us = (double)(clock_now_ns() - start) / 1000;
            least[back][layer] = round == 0 || us < least[back][layer] ? us : least[back][layer];
        }
    }
    printf("%-10s %12s %12s\n", "layer", "forward us", "backward us");
    for (int k = 0; k < N_LAYERS; k++)
        printf("%-10s %12.0f %12.0f\n", layers[k].name, least[0][k], least[1][k]);
}

int main(int argc, char **argv)
{
    static double rate[2][MAX_ROUNDS], ratio[MAX_ROUNDS];
    int n_rounds = argc > 1 ? atoi(argv[1]) : 15, n_steps = argc > 2 ? atoi(argv[2]) : 8;
    if (n_rounds < 1 || n_rounds > MAX_ROUNDS || n_steps < 1) {
        fprintf(stderr, "usage: bench_primitives [rounds, 1 to %d] [steps in a round]\n",
                MAX_ROUNDS);
        return 2;
    }
    omp_set_num_threads(1);
    bare_create();
    ours_create();
    for (int k = 0; k < 3; k++) {
        bare_step();
        ours_step();
    }
    for (int k = 0; k < n_rounds; k++) {
        rate[0][k] = images_per_second(bare_step, n_steps);
        rate[1][k] = images_per_second(ours_step, n_steps);
        ratio[k] = rate[1][k] / rate[0][k];
    }
    double a = median(rate[0], n_rounds), b = median(rate[1], n_rounds);
    double r = median(ratio, n_rounds);
    layers_print();
    printf(
        "oneDNN's primitives alone: %.0f images/s; backend 'cpu' (%s): %.0f images/s; ratio %.3f (median of %d rounds)\n",
        a, ours.backend->description, b, r, n_rounds);
    printf(
        "{\"bench\": \"primitives\", \"batch\": %d, \"threads\": 1, \"bare_images_s\": %.1f, \"plan_images_s\": %.1f, \"ratio\": %.4f, \"rounds\": %d}\n",
        BATCH, a, b, r, n_rounds);
    ours.backend->plan_destroy(ours.plan);
    return 0;
}
