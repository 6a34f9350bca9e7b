/* tests/kernel_cuda_emulated_test.c - compares the CUDA backend's own kernels, run on the CPU (see
 * tests/emulation), with the double-precision reference: each layer reads the reference's input and
 * gradient, so that an error appears only in the layer that causes it. The conformance suite (label
 * gpu) tests cuDNN, cuBLAS, streams, and properties of the hardware on a GPU. */
#include "base/rng.h"
#include "kernels/cuda/common/finite_kernels.h"
#include "kernels/cuda/layers/rows.h"
#include "kernels/reference_activation.h"
#include "kernels/vector/dtype.h"
#include "tests/check.h"
#include "tests/kernel_reference.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 6, SEED = 99 };

/* ---- nets ---- */

static void end(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 45); /* more classes than threads in a block of the softmax */
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void build_same_pools(struct reference *r)
{
    reference_conv(r, 5, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 3, 2, -1); /* pads on both sides */
    reference_conv(r, 4, 3, 1, -1);
    reference_pool(r, LAYER_AVG_POOL, 2, 2, -1); /* pads only after the image */
    end(r);
}

static void build_overlapping_pools(struct reference *r)
{
    reference_conv(r, 3, 2, 1, -1);
    reference_pool(r, LAYER_AVG_POOL, 4, 1, -1);
    reference_pool(r, LAYER_MAX_POOL, 2, 1, -1);
    reference_pool(r, LAYER_MAX_POOL, 2, 3, 0); /* cells that no window covers */
    reference_pool(r, LAYER_AVG_POOL, 1, 2, 0);
    end(r);
}

static void build_norms(struct reference *r)
{
    reference_conv(r, 7, 3, 1, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.3f); /* on (C,H,W) */
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 150); /* more features than threads in a block of the bias gradient */
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.6f);
    end(r);
}

/* A loss with more classes than a block has threads, and layer norms over more values than that. */
static void build_smoothed(struct reference *r)
{
    reference_layer(r, LAYER_LAYER_NORM);
    reference_conv(r, 4, 3, 1, -1);
    reference_layer(r, LAYER_LAYER_NORM);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 45);
    reference_smoothed(r, 0.2f);
}

static void build_sigmoids(struct reference *r)
{
    reference_embedding(r, 256, 3);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 45);
    reference_layer(r, LAYER_SIGMOID_XENT);
}

static void build_squares(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 45);
    reference_layer(r, LAYER_SQUARED);
}

static void build_activations(struct reference *r)
{
    for (enum layer_kind kind = LAYER_SIGMOID; kind <= LAYER_LEAKY_RELU; kind++) {
        reference_conv(r, 5, 3, 1, -1);
        reference_layer(r, kind);
    }
    end(r);
}

static const struct net {
    const char *name;
    int c, h, w;
    void (*build)(struct reference *r);
} nets[] = {
    {"same pools", 2, 11, 8, build_same_pools},
    {"overlapping pools", 3, 9, 12, build_overlapping_pools},
    {"norms", 2, 7, 6, build_norms},
    {"smoothed", 2, 9, 8, build_smoothed},
    {"sigmoids", 1, 5, 4, build_sigmoids},
    {"squares", 1, 5, 4, build_squares},
    {"activations", 2, 6, 7, build_activations},
};
enum { N_NETS = sizeof nets / sizeof nets[0] };

/* ---- values ---- */

static float noise(uint64_t use, uint64_t counter)
{
    return rng_uniform(rng_key(SEED, RNG_TEST, use), counter) * 2 - 1;
}

static float *floats(int64_t n)
{
    float *f = malloc((size_t)(n > 0 ? n : 1) * sizeof *f);
    assert_non_null(f);
    for (int64_t k = 0; k < n; k++)
        f[k] = NAN; /* all must be written */
    return f;
}

static float *floats_of(const double *d, int64_t n)
{
    float *f = floats(n);
    for (int64_t k = 0; k < n; k++)
        f[k] = (float)d[k];
    return f;
}

static void compare(const char *net, int layer, const char *what, const float *got,
                    const double *want, int64_t n)
{
    double largest = 0, worst = 0;
    for (int64_t k = 0; k < n; k++) {
        double error = fabs((double)got[k] - want[k]);
        largest = fmax(largest, fabs(want[k]));
        worst = error <= worst ? worst : error; /* keeps a NaN */
    }
    if (!(worst <= 1e-5 * largest + 1e-6))
        fail_msg("net '%s', layer %d, %s: off by %g, largest value %g", net, layer, what, worst,
                 largest);
}

/* A net after the reference's forward and backward. */
struct run {
    const char *net;
    struct reference *r;
    uint8_t labels[BATCH];
    uint64_t position[BATCH];
    uint8_t *pixels;
};

static void run_make(struct run *u, const struct net *net, int n)
{
    u->net = net->name;
    u->r = reference_create(net->c, net->h, net->w, BATCH, SEED);
    net->build(u->r);
    for (int i = 0; i < u->r->n_params; i++)
        for (int64_t k = 0; k < u->r->param_elems[i]; k++)
            u->r->param[i][k] = (double)(noise((uint64_t)i, (uint64_t)k) * 0.5f + 0.1f);
    int64_t pixels = (int64_t)net->c * net->h * net->w;
    u->pixels = malloc((size_t)(BATCH * pixels));
    assert_non_null(u->pixels);
    for (int64_t k = 0; k < BATCH * pixels; k++)
        u->pixels[k] = (uint8_t)rng_u64(rng_key(SEED, RNG_TEST, 50), (uint64_t)k);
    for (int s = 0; s < BATCH; s++) {
        u->labels[s] = (uint8_t)rng_below(rng_key(SEED, RNG_TEST, 51), (uint64_t)s, 45);
        u->position[s] = 7000000019u * (uint64_t)s + 3; /* beyond 32 bits */
    }
    reference_forward(u->r, u->pixels, u->labels, u->position, n, 1);
    reference_backward(u->r);
}

static void run_free(struct run *u)
{
    reference_destroy(u->r);
    free(u->pixels);
}

static struct gpu_planes planes_of(const struct shape *s, int n)
{
    return (struct gpu_planes){n, s->dim[0], shape_elems(s) / s->dim[0]};
}

/* ---- one layer each ---- */

static void check_bias(const struct run *u, int i)
{
    struct reference *r = u->r;
    const struct layer *l = &r->layers[i];
    struct gpu_planes shape = planes_of(&l->out, r->n);
    int64_t n = r->n * shape_elems(&l->out);
    int relu = r->layers[i + 1].kind == LAYER_RELU;
    const double *bias = r->param[l->param[1]];
    float *dy = floats_of(r->d[i], n), *db = floats(shape.channels), *b = floats(shape.channels);
    float *scratch = floats(gpu_bias_grad_scratch(shape)), *y = floats(n);
    assert_int_equal(gpu_bias_grad(NULL, dy, db, scratch, shape), 0);
    compare(u->net, i, "bias gradient", db, r->grad[l->param[1]], shape.channels);
    for (int64_t k = 0; k < n; k++)
        y[k] = (float)(r->y[i][k] - bias[k / shape.plane % shape.channels]);
    for (int64_t k = 0; k < shape.channels; k++)
        b[k] = (float)bias[k];
    assert_int_equal(gpu_bias_add(NULL, y, b, shape, relu), 0);
    compare(u->net, i, "bias", y, r->y[i + relu], n);
    free(dy);
    free(db);
    free(b);
    free(scratch);
    free(y);
}

static void check_relu(const struct run *u, int i)
{
    struct reference *r = u->r;
    int64_t n = r->n * shape_elems(&r->layers[i].out);
    float *y = floats_of(r->y[i - 1], n), *dy = floats_of(r->d[i], n);
    assert_int_equal(gpu_relu_forward(NULL, y, y, n), 0);
    compare(u->net, i, "relu", y, r->y[i], n);
    assert_int_equal(gpu_relu_backward(NULL, y, dy, dy, n), 0);
    compare(u->net, i, "relu gradient", dy, r->d[i - 1], n);
    free(y);
    free(dy);
}

static void check_pool(const struct run *u, int i)
{
    struct reference *r = u->r;
    const struct layer *l = &r->layers[i];
    int64_t n_in = r->n * shape_elems(&l->in), n_out = r->n * shape_elems(&l->out);
    struct gpu_window w = {.planes = r->n * l->in.dim[0],
                           .in_h = (int)l->in.dim[1],
                           .in_w = (int)l->in.dim[2],
                           .out_h = (int)l->out.dim[1],
                           .out_w = (int)l->out.dim[2],
                           .kernel_h = l->kernel[0],
                           .kernel_w = l->kernel[1],
                           .stride_h = l->stride[0],
                           .stride_w = l->stride[1],
                           .pad_h = l->pad_lo[0],
                           .pad_w = l->pad_lo[1]};
    float *x = floats_of(r->y[i - 1], n_in), *y = floats(n_out);
    float *dy = floats_of(r->d[i], n_out), *dx = floats(n_in);
    int32_t *winner = calloc((size_t)n_out, sizeof *winner);
    assert_non_null(winner);
    if (l->kind == LAYER_MAX_POOL) {
        assert_int_equal(gpu_pool_max_forward(NULL, x, y, winner, &w), 0);
        assert_int_equal(gpu_pool_max_backward(NULL, dy, winner, NULL, dx, &w), 0);
    } else {
        assert_int_equal(gpu_pool_avg_forward(NULL, x, y, &w), 0);
        assert_int_equal(gpu_pool_avg_backward(NULL, dy, dx, &w), 0);
    }
    compare(u->net, i, "pool", y, r->y[i], n_out);
    compare(u->net, i, "pool gradient", dx, r->d[i - 1], n_in);
    w.pad_h = w.kernel_h; /* a window of only padding */
    assert_int_equal(gpu_pool_avg_forward(NULL, x, y, &w), GPU_KERNEL_REFUSED);
    free(winner);
    free(x);
    free(y);
    free(dy);
    free(dx);
}

static void check_dropout(const struct run *u, int i)
{
    struct reference *r = u->r;
    const struct layer *l = &r->layers[i];
    struct gpu_dropout d = {.n = r->n,
                            .elems = shape_elems(&l->in),
                            .position = r->position,
                            .key = rng_key(r->seed, RNG_DROPOUT, (uint64_t)i),
                            .threshold = (uint64_t)ceil((double)l->rate * 0x1p24),
                            .scale = 1.0f / (1.0f - l->rate)};
    int64_t n = d.n * d.elems;
    float *x = floats_of(r->y[i - 1], n), *y = floats(n), *dy = floats_of(r->d[i], n);
    assert_int_equal(gpu_dropout_apply(NULL, x, y, &d), 0);
    compare(u->net, i, "dropout", y, r->y[i], n);
    for (int64_t k = 0; k < n; k++) { /* the same bits as base/rng.h */
        uint64_t counter = r->position[k / d.elems] * (uint64_t)d.elems + (uint64_t)(k % d.elems);
        int dropped = (rng_u64(d.key, counter) >> 40) < d.threshold;
        float want = x[k] * (dropped ? 0.0f : d.scale);
        assert_true(y[k] == want);
    }
    assert_int_equal(gpu_dropout_apply(NULL, dy, dy, &d), 0);
    compare(u->net, i, "dropout gradient", dy, r->d[i - 1], n);
    free(x);
    free(y);
    free(dy);
}

/* Computes the statistics that cuDNN would save, as the input of the kernel. */
static void check_norm(const struct run *u, int i)
{
    struct reference *r = u->r;
    const struct layer *l = &r->layers[i];
    struct gpu_planes shape = planes_of(&l->in, r->n);
    int64_t cells = shape.n * shape.plane;
    float *saved_mean = floats(shape.channels), *saved_inverse = floats(shape.channels);
    float *mean = floats(shape.channels), *variance = floats(shape.channels);
    for (int64_t c = 0; c < shape.channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < cells; k++)
            sum +=
                r->y[i - 1][(k / shape.plane * shape.channels + c) * shape.plane + k % shape.plane];
        for (int64_t k = 0; k < cells; k++) {
            double off = r->y[i - 1][(k / shape.plane * shape.channels + c) * shape.plane +
                                     k % shape.plane] -
                         sum / (double)cells;
            squares += off * off;
        }
        saved_mean[c] = (float)(sum / (double)cells);
        saved_inverse[c] = (float)(1 / sqrt(squares / (double)cells + (double)l->epsilon));
    }
    struct gpu_norm_stats s = {
        shape.channels, cells, (double)l->epsilon, saved_mean, saved_inverse, mean, variance};
    assert_int_equal(gpu_norm_stats_hand_out(NULL, &s), 0);
    compare(u->net, i, "mean", mean, r->grad[l->param[2]], shape.channels);
    compare(u->net, i, "variance", variance, r->grad[l->param[3]], shape.channels);
    free(saved_mean);
    free(saved_inverse);
    free(mean);
    free(variance);
}

static const double *input_of(const struct reference *r, int i)
{
    return i == 0 ? r->x : r->y[i - 1];
}

static void check_layer_norm(const struct run *u, int i)
{
    struct reference *r = u->r;
    const struct layer *l = &r->layers[i];
    int64_t elems = shape_elems(&l->in), n = r->n * elems;
    float *x = floats_of(input_of(r, i), n), *y = floats(n), *dy = floats_of(r->d[i], n);
    float *gamma = floats_of(r->param[l->param[0]], elems), *dx = floats(n);
    float *beta = floats_of(r->param[l->param[1]], elems);
    float *dgamma = floats(elems), *dbeta = floats(elems), stats[2][BATCH];
    struct gpu_layer_norm c = {r->n, elems, (double)l->epsilon, x, gamma, stats[0], stats[1]};
    assert_int_equal(gpu_layer_norm_forward(NULL, &c, beta, y), 0);
    assert_int_equal(gpu_layer_norm_params(NULL, &c, dy, dgamma, dbeta), 0);
    assert_int_equal(gpu_layer_norm_backward(NULL, &c, dy, dx), 0);
    compare(u->net, i, "layer norm", y, r->y[i], n);
    compare(u->net, i, "gamma's gradient", dgamma, r->grad[l->param[0]], elems);
    compare(u->net, i, "beta's gradient", dbeta, r->grad[l->param[1]], elems);
    if (i > 0)
        compare(u->net, i, "layer norm gradient", dx, r->d[i - 1], n);
    assert_int_equal(gpu_layer_norm_backward(NULL, &c, dy, NULL), GPU_KERNEL_REFUSED);
    c.elems = 0;
    assert_int_equal(gpu_layer_norm_forward(NULL, &c, beta, y), GPU_KERNEL_REFUSED);
    float *all[] = {x, y, dy, gamma, dx, beta, dgamma, dbeta};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        free(all[k]);
}

static void check_embedding(const struct run *u, int i)
{
    struct reference *r = u->r;
    const struct layer *l = &r->layers[i];
    struct gpu_embedding e = {.n = r->n,
                              .cells = shape_elems(&l->in),
                              .units = l->out.dim[0],
                              .vocabulary = l->vocabulary};
    int64_t n = e.n * e.cells * e.units, rows = e.vocabulary * e.units;
    float *x = floats_of(input_of(r, i), e.n * e.cells), *y = floats(n);
    float *grad = floats(rows + 50 * e.units);
    float *table = floats_of(r->param[l->param[0]], rows), *dy = floats_of(r->d[i], n);
    e.x = x;
    assert_int_equal(gpu_embedding_forward(NULL, &e, table, y), 0);
    assert_int_equal(gpu_embedding_backward(NULL, &e, dy, grad), 0);
    compare(u->net, i, "embedding", y, r->y[i], n);
    compare(u->net, i, "embedding gradient", grad, r->grad[l->param[0]], rows);
    e.vocabulary += 50; /* another kernel for a large table; no cell refers to its last 50 rows */
    memset(grad, 0xff, (size_t)(rows + 50 * e.units) * sizeof *grad);
    assert_int_equal(gpu_embedding_backward(NULL, &e, dy, grad), 0);
    compare(u->net, i, "gradient of a large table", grad, r->grad[l->param[0]], rows);
    for (int64_t k = rows; k < rows + 50 * e.units; k++)
        assert_true(grad[k] == 0);
    x[0] = 1.0f; /* number 255: beyond the vocabulary, so it means the last word */
    e.vocabulary = 7;
    assert_int_equal(gpu_embedding_forward(NULL, &e, table, y), 0);
    assert_true(y[0] == table[6 * e.units]);
    e.vocabulary = 1; /* all cells refer to the only row; the bytes after it are unchanged */
    memset(grad, 0xff, (size_t)rows * sizeof *grad);
    assert_int_equal(gpu_embedding_backward(NULL, &e, dy, grad), 0);
    for (int64_t k = 0; k < 2 * e.units; k++)
        assert_int_equal(isfinite(grad[k]) != 0, k < e.units);
    e.vocabulary = LAYER_MAX_VOCABULARY + 1;
    assert_int_equal(gpu_embedding_forward(NULL, &e, table, y), GPU_KERNEL_REFUSED);
    free(x);
    free(y);
    free(grad);
    free(table);
    free(dy);
}

static int loss_run(enum layer_kind kind, const struct gpu_softmax *s)
{
    return kind == LAYER_SIGMOID_XENT ? gpu_loss_sigmoid(NULL, s)
           : kind == LAYER_SQUARED    ? gpu_loss_squared(NULL, s)
                                      : gpu_softmax_run(NULL, s);
}

static void check_loss(const struct run *u, int i)
{
    struct reference *r = u->r;
    enum layer_kind kind = r->layers[i].kind;
    int64_t classes = r->layers[i].in.dim[0], n = r->n * classes;
    float *x = floats_of(r->y[i - 1], n), *y = floats(n), *dx = floats(n);
    double loss[BATCH], sum = 0;
    int32_t hit[BATCH], labels[BATCH];
    int hits = 0;
    for (int k = 0; k < BATCH; k++)
        labels[k] = u->labels[k];
    struct gpu_softmax s = {.n = r->n,
                            .classes = classes,
                            .x = x,
                            .labels = labels,
                            .y = y,
                            .dx = dx,
                            .loss = loss,
                            .hit = hit,
                            .smoothing = r->layers[i].smoothing};
    assert_int_equal(loss_run(kind, &s), 0);
    compare(u->net, i, "probabilities", y, r->y[i], n);
    compare(u->net, i, "gradient of the loss", dx, r->d[i - 1], n);
    for (int k = 0; k < r->n; k++) {
        sum += loss[k];
        hits += hit[k];
    }
    float mean = (float)(sum / r->n);
    compare(u->net, i, "loss", &mean, &r->loss, 1);
    assert_int_equal(hits, r->n_correct);
    s.labels = NULL;
    s.dx = NULL;
    s.loss = NULL;
    s.hit = NULL;
    y[0] = NAN;
    assert_int_equal(loss_run(kind, &s), 0);
    compare(u->net, i, "probabilities without labels", y, r->y[i], n);
    s.classes = 0;
    assert_int_equal(loss_run(kind, &s), GPU_KERNEL_REFUSED);
    free(x);
    free(y);
    free(dx);
}

static void check_activation(const struct run *u, int i)
{
    const struct reference *r = u->r;
    const struct layer *l = &r->layers[i];
    int64_t n = r->n * shape_elems(&l->out);
    struct gpu_activation a = {(enum gpu_activation_kind)(l->kind - LAYER_SIGMOID), l->slope, n};
    float *x = floats_of(r->y[i - 1], n), *y = floats(n), *dy = floats_of(r->d[i], n);
    assert_int_equal(gpu_activation_forward(NULL, &a, x, y), 0);
    compare(u->net, i, "output", y, r->y[i], n);
    assert_int_equal(gpu_activation_backward(NULL, &a, x, dy, dy), 0);
    compare(u->net, i, "gradient", dy, r->d[i - 1], n);
    free(x);
    free(y);
    free(dy);
}

static void check_net(const struct net *net, int n)
{
    struct run u;
    run_make(&u, net, n);
    for (int i = 0; i < u.r->n_layers; i++) {
        switch (u.r->layers[i].kind) {
        case LAYER_CONV2D:
        case LAYER_DENSE:
            check_bias(&u, i);
            break;
        case LAYER_RELU:
            check_relu(&u, i);
            break;
        case LAYER_MAX_POOL:
        case LAYER_AVG_POOL:
            check_pool(&u, i);
            break;
        case LAYER_DROPOUT:
            check_dropout(&u, i);
            break;
        case LAYER_BATCH_NORM:
            check_norm(&u, i);
            break;
        case LAYER_LAYER_NORM:
            check_layer_norm(&u, i);
            break;
        case LAYER_SIGMOID:
        case LAYER_TANH:
        case LAYER_GELU:
        case LAYER_SILU:
        case LAYER_LEAKY_RELU:
            check_activation(&u, i);
            break;
        case LAYER_EMBEDDING:
            check_embedding(&u, i);
            break;
        case LAYER_SOFTMAX_XENT:
        case LAYER_SIGMOID_XENT:
        case LAYER_SQUARED:
            check_loss(&u, i);
            break;
        default:
            break;
        }
    }
    run_free(&u);
}

/* ---- tests ---- */

static void test_layers(void **state)
{
    for (int k = 0; k < N_NETS; k++) {
        check_net(&nets[k], BATCH);
        check_net(&nets[k], 1);
    }
}

/* Values so large that an intermediate result overflows. */
static void test_activations_of_large_values(void **state)
{
    static const float x[] = {-200.0f, -90.0f, 90.0f, 200.0f};
    static const float one[] = {1, 1, 1, 1};
    enum { N = sizeof x / sizeof *x };
    for (enum layer_kind kind = LAYER_SIGMOID; kind <= LAYER_LEAKY_RELU; kind++) {
        struct layer l = {.kind = kind, .slope = 0.25f};
        struct gpu_activation a = {(enum gpu_activation_kind)(kind - LAYER_SIGMOID), 0.25f, N};
        float y[N], dx[N];
        assert_int_equal(gpu_activation_forward(NULL, &a, x, y), 0);
        assert_int_equal(gpu_activation_backward(NULL, &a, x, one, dx), 0);
        for (int k = 0; k < N; k++) {
            double at = (double)x[k];
            assert_true(fabs((double)y[k] - reference_activation(&l, at)) <= 1e-5 * fabs(at));
            assert_true(fabs((double)dx[k] - reference_activation_slope(&l, at)) <= 1e-5);
        }
    }
}

/* Enough samples and cells that the sums are split. */
static void test_bias_gradient_is_split(void **state)
{
    static const struct gpu_planes shapes[] = {{37, 3, 300}, {300, 5, 1}, {65, 130, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct gpu_planes s = shapes[i];
        int64_t n = s.n * s.channels * s.plane;
        float *dy = floats(n), *db = floats(s.channels), *again = floats(s.channels);
        float *scratch = floats(gpu_bias_grad_scratch(s));
        double *want = calloc((size_t)s.channels, sizeof *want);
        assert_non_null(want);
        for (int64_t k = 0; k < n; k++) {
            dy[k] = noise(200 + i, (uint64_t)k);
            want[k / s.plane % s.channels] += (double)dy[k];
        }
        assert_int_equal(gpu_bias_grad(NULL, dy, db, scratch, s), 0);
        compare("split", (int)i, "bias gradient", db, want, s.channels);
        assert_int_equal(gpu_bias_grad(NULL, dy, again, scratch, s), 0);
        assert_memory_equal(db, again, (size_t)s.channels * sizeof *db);
        free(dy);
        free(db);
        free(again);
        free(scratch);
        free(want);
    }
}

/* One pass for bias, relu and pool has the same bits as two passes, with ties, infinities and NaNs,
 * for each arrangement of windows. */
static void test_bias_relu_pool_in_one_pass(void **state)
{
    enum { N = 3, CHANNELS = 5, PLANES = N * CHANNELS };
    static const struct gpu_window windows[] = {
        {PLANES, 8, 6, 4, 3, 2, 2, 2, 2, 0, 0},  /* adjacent */
        {PLANES, 11, 7, 6, 4, 3, 3, 2, 2, 1, 1}, /* overlapping, padded on both sides */
        {PLANES, 9, 5, 5, 3, 2, 2, 2, 2, 0, 0},  /* padded only after the image */
        {PLANES, 7, 10, 2, 3, 2, 2, 3, 3, 0,
         0}, /* windows with gaps, and a remainder that no window covers */
        {PLANES, 5, 13, 5, 7, 3, 4, 1, 2, 2, 3}, /* neither square nor padded equally */
        {PLANES, 3, 4, 3, 4, 1, 1, 1, 1, 0, 0},  /* windows of a single cell */
    };
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        struct gpu_window w = windows[i];
        int64_t n_in = PLANES * w.in_h * w.in_w, n_out = PLANES * w.out_h * w.out_w;
        float *x = floats(n_in), *relu = floats(n_in), *want = floats(n_out), *got = floats(n_out);
        int32_t *places[2] = {malloc((size_t)n_out * sizeof(int32_t)),
                              malloc((size_t)n_out * sizeof(int32_t))};
        float bias[CHANNELS];
        assert_true(places[0] != NULL && places[1] != NULL);
        for (int c = 0; c < CHANNELS; c++)
            bias[c] = noise(400 + i, (uint64_t)c) * 0.7f;
        for (int64_t k = 0; k < n_in; k++) {
            int kind = (int)rng_below(rng_key(SEED, RNG_TEST, 410 + i), (uint64_t)k, 40);
            float v = noise(420 + i, (uint64_t)k);
            x[k] = kind == 0   ? NAN
                   : kind == 1 ? INFINITY
                   : kind == 2 ? -INFINITY
                   : kind < 12 ? -bias[k / (w.in_h * w.in_w) % CHANNELS]
                   : kind < 20 ? floorf(v * 3) / 3
                               : v;
            relu[k] = x[k];
        }
        struct gpu_planes planes = {N, CHANNELS, (int64_t)w.in_h * w.in_w};
        struct gpu_bias b = {bias, CHANNELS};
        assert_int_equal(gpu_bias_add(NULL, relu, bias, planes, 1), 0);
        assert_int_equal(gpu_pool_max_forward(NULL, relu, want, places[0], &w), 0);
        assert_int_equal(gpu_bias_relu_pool(NULL, x, &b, got, places[1], &w), 0);
        assert_memory_equal(got, want, (size_t)n_out * sizeof *got);
        assert_memory_equal(places[1], places[0], (size_t)n_out * sizeof(int32_t));
        w.pad_w = w.kernel_w;
        assert_int_equal(gpu_bias_relu_pool(NULL, x, &b, got, places[1], &w), GPU_KERNEL_REFUSED);
        free(x);
        free(relu);
        free(want);
        free(got);
        free(places[0]);
        free(places[1]);
    }
}

static void test_pixels(void **state)
{
    uint8_t src[1000];
    float dst[1000];
    for (int k = 0; k < 1000; k++)
        src[k] = (uint8_t)(k * 7);
    assert_int_equal(gpu_scale_pixels(NULL, src, dst, 1000), 0);
    for (int k = 0; k < 1000; k++)
        assert_true(dst[k] == (float)src[k] / 255.0f);
    assert_int_equal(gpu_scale_pixels(NULL, src, dst, 0), GPU_KERNEL_REFUSED);
    assert_int_equal(gpu_scale_pixels(NULL, NULL, dst, 9), GPU_KERNEL_REFUSED);
}

static void test_padding(void **state)
{
    static const struct gpu_frame frames[] = {
        {3, 5, 7, 6, 8, 0, 0}, {2, 4, 3, 7, 9, 1, 2}, {4, 6, 6, 6, 6, 0, 0}};
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        struct gpu_frame f = frames[i];
        int64_t n = f.planes * f.h * f.w, n_padded = f.planes * f.padded_h * f.padded_w;
        float *x = floats(n), *padded = floats(n_padded), *back = floats(n);
        for (int64_t k = 0; k < n; k++)
            x[k] = noise(300 + i, (uint64_t)k);
        assert_int_equal(gpu_pad_set(NULL, x, padded, &f), 0);
        const float *at = padded;
        for (int64_t p = 0; p < f.planes; p++)
            for (int y = -f.lo_h; y < f.padded_h - f.lo_h; y++)
                for (int c = -f.lo_w; c < f.padded_w - f.lo_w; c++, at++) {
                    int inside = y >= 0 && y < f.h && c >= 0 && c < f.w;
                    assert_true(*at == (inside ? x[(p * f.h + y) * f.w + c] : 0.0f));
                }
        assert_int_equal(gpu_pad_cut(NULL, padded, back, &f), 0);
        assert_memory_equal(back, x, (size_t)n * sizeof *x);
        f.padded_h = f.h - 1;
        assert_int_equal(gpu_pad_set(NULL, x, padded, &f), GPU_KERNEL_REFUSED);
        free(x);
        free(padded);
        free(back);
    }
}

/* Among equal maxima the lowest class wins, whichever thread has it. */
static void test_softmax_ties(void **state)
{
    enum { CLASSES = 70 };
    static const int tops[][2] = {{3, 66}, {34, 2}, {31, 32}, {0, 69}, {33, 1}};
    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++) {
        float x[CLASSES] = {0}, y[CLASSES], dx[CLASSES];
        int low = tops[i][0] < tops[i][1] ? tops[i][0] : tops[i][1];
        int32_t label = low;
        double loss;
        int32_t hit;
        x[tops[i][0]] = x[tops[i][1]] = 5.0f;
        struct gpu_softmax s = {1, CLASSES, x, &label, y, dx, &loss, &hit, 0, NULL};
        assert_int_equal(gpu_softmax_run(NULL, &s), 0);
        assert_int_equal(hit, 1);
    }
}

/* Casts every sign, exponent and upper half of a fraction, with lower halves around the ties. The
 * bits equal those of the host's encoder, also for subnormals, infinities and NaNs. */
static void test_casts_are_the_hosts(void **state)
{
    static const uint16_t low[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff};
    enum { N_LOW = sizeof low / sizeof *low, N = 65536 * N_LOW };
    uint32_t *bits = malloc(N * sizeof *bits);
    float *src = floats(N);
    uint16_t *got = malloc(N * sizeof *got), *want = malloc(N * sizeof *want);
    assert_true(bits && got && want);
    for (uint32_t k = 0; k < N; k++)
        bits[k] = k / N_LOW << 16 | low[k % N_LOW];
    memcpy(src, bits, N * sizeof *bits);
    for (int half = 0; half < 2; half++) {
        enum dtype d = half ? DTYPE_F16 : DTYPE_BF16;
        memset(got, 0x55, N * sizeof *got);
        assert_int_equal(half ? gpu_cast_half(NULL, src, got, N) : gpu_cast_down(NULL, src, got, N),
                         0);
        dtype_encode(d, want, src, N);
        for (int k = 0; k < N; k++)
            if (got[k] != want[k])
                fail_msg("%08x is %04x in %s, not %04x", bits[k], got[k], dtype_name(d), want[k]);
    }
    assert_int_equal(gpu_cast_half(NULL, NULL, got, N), GPU_KERNEL_REFUSED);
    free(bits);
    free(src);
    free(got);
    free(want);
}

/* Each summand has its own weight, and the kernel writes nothing after the end of the sum. */
static void test_weighted_sums(void **state)
{
    enum { N = 300, GUARD = 4 };
    float src[3][N], dst[N + GUARD];
    for (int n_src = 1; n_src <= 3; n_src++) {
        struct gpu_sum s = {
            .n = n_src, .src = {src[0], src[1], src[2]}, .weight = {0.3f, -1.7f, 5.1f}};
        memset(dst, 0xff, sizeof dst);
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < N; k++)
                src[i][k] = (float)(k * 7 % 31 - i) * 0.1f;
        assert_int_equal(gpu_sum_weighted(NULL, &s, dst, N), 0);
        for (int k = 0; k < N; k++) {
            float want = 0.3f * src[0][k];
            for (int i = 1; i < n_src; i++)
                want += s.weight[i] * src[i][k];
            assert_true(fabsf(dst[k] - want) <= 1e-5f);
        }
        for (int k = N; k < N + GUARD; k++)
            assert_true(isnan(dst[k]));
    }
}

/* Each value of two tensors is in turn too large, infinite or a NaN, of both signs. The values
 * before and behind the tensors are NaNs. */
static void test_values_above_the_limit_are_found(void **state)
{
    enum { N = 700, N_SHORT = 3 };
    static const float limit = 65504, bad[] = {65520, INFINITY, NAN, 1e38f};
    float x[2][N + 2];
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < N + 2; k++)
            x[t][k] = NAN;
    struct gpu_finite f = {2, {x[0] + 1, x[1] + 1}, {N, N_SHORT}, limit};
    for (int k = 0; k < N; k++)
        x[0][k + 1] = x[1][k % N_SHORT + 1] = k % 2 ? limit : -limit;
    int32_t found = 0;
    assert_int_equal(gpu_finite_check(NULL, &f, &found), 0);
    assert_int_equal(found, 0);
    for (int k = 0; k < 8 * (N + N_SHORT); k++) {
        int at = k / 8;
        float *value = at < N ? &x[0][at + 1] : &x[1][at - N + 1], before = *value;
        *value = k % 2 ? bad[k / 2 % 4] : -bad[k / 2 % 4];
        found = 0;
        assert_int_equal(gpu_finite_check(NULL, &f, &found), 0);
        assert_int_equal(found, 1);
        *value = before;
        assert_int_equal(gpu_finite_check(NULL, &f, &found), 0);
        assert_int_equal(found, 1); /* not written */
    }
}

int main(void)
{
    return RUN_TESTS(test_layers, test_activations_of_large_values, test_bias_gradient_is_split,
                     test_pixels, test_padding, test_softmax_ties, test_bias_relu_pool_in_one_pass,
                     test_casts_are_the_hosts, test_weighted_sums,
                     test_values_above_the_limit_are_found);
}
