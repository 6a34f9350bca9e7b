/* tests/kernel_conformance_test.c - any backend, by name, against the double-precision reference:
 * every kind of layer in several shapes, strides and paddings, inside small nets that end in a
 * loss, forward and backward, with full and short batches, one thread and two.
 * The reference itself is held against finite differences.
 * Backend: argv[1], or WEIR_TEST_BACKEND, or "cpu"; its folder: argv[2], or the build's.
 *
 * Tolerance for float32: the largest error of a tensor is at most 5e-5 of its largest value (sums
 * of up to 1000 terms, several layers deep), plus 1e-6. */
#include "base/rng.h"
#include "kernels/backend.h"
#include "tests/kernel_reference.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 8, SEED = 77 };
static const double tolerance_f32 = 5e-5, tolerance_tf32 = 1e-2, floor_f32 = 1e-6;
static double tolerance = 5e-5; /* of the test that runs */
static const struct backend *backend;
static const char *backend_name = "cpu";

/* ---- nets ---- */

struct net {
    const char *name;
    int c, h, w;
    void (*build)(struct reference *r);
};

static void end(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void build_softmax(struct reference *r)
{
    end(r);
}

static void build_hidden(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 37);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 21);
    end(r);
}

static void build_deep(struct reference *r)
{
    reference_conv(r, 8, 5, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_conv(r, 16, 5, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 48);
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.5f);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* 16 and 32 channels: the blocked formats of wide vector units. */
static void build_wide(struct reference *r)
{
    reference_conv(r, 16, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_conv(r, 32, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_AVG_POOL, 2, 2, -1);
    end(r);
}

static void build_strided(struct reference *r)
{
    reference_conv(r, 5, 3, 2, -1);
    reference_layer(r, LAYER_RELU);
    reference_conv(r, 7, 2, 1, 0);
    end(r);
}

static void build_valid(struct reference *r)
{
    reference_conv(r, 6, 4, 1, 0);
    reference_conv(r, 19, 1, 1, 0);
    reference_layer(r, LAYER_RELU);
    end(r);
}

static void build_overlapping_pools(struct reference *r)
{
    reference_conv(r, 9, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 3, 2, -1);
    reference_conv(r, 16, 3, 1, -1);
    reference_pool(r, LAYER_MAX_POOL, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_AVG_POOL, 3, 2, -1);
    end(r);
}

static void build_pools_first(struct reference *r)
{
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 1, 0);
    reference_pool(r, LAYER_AVG_POOL, 2, 2, 0);
    end(r);
}

static void build_norm(struct reference *r)
{
    reference_conv(r, 16, 3, 1, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, -1);
    reference_conv(r, 5, 3, 1, -1);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 30);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.25f);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void build_norm_first(struct reference *r)
{
    reference_layer(r, LAYER_BATCH_NORM);
    reference_conv(r, 16, 3, 1, -1);
    reference_dropout(r, 0.3f); /* on (C,H,W) */
    reference_layer(r, LAYER_RELU);
    reference_layer(r, LAYER_FLATTEN);
    reference_layer(r, LAYER_FLATTEN);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* Weights of many pages that begin and end within one: a GPU copies them in parts. */
static void build_pages(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 48);
    reference_layer(r, LAYER_RELU);
    end(r);
}

static const struct net nets[] = {
    {"softmax regression", 1, 9, 9, build_softmax},
    {"hidden layers", 1, 9, 7, build_hidden},
    {"deep", 1, 12, 12, build_deep},
    {"wide", 3, 8, 8, build_wide},
    {"strided", 3, 11, 8, build_strided},
    {"valid", 2, 9, 10, build_valid},
    {"overlapping pools", 2, 11, 11, build_overlapping_pools},
    {"pools first", 3, 8, 9, build_pools_first},
    {"batch norm", 1, 10, 10, build_norm},
    {"batch norm first", 3, 7, 7, build_norm_first},
    {"many pages", 1, 40, 40, build_pages},
};
enum { N_NETS = sizeof nets / sizeof nets[0], DEEP = 2, NORM = 8 };

/* ---- a net, its reference, a plan and a batch ---- */

struct bench {
    struct reference *r;
    struct plan *plan;
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    int64_t pixels;
    uint8_t *images, labels[BATCH];
    const uint8_t *image[BATCH];
    uint64_t position[BATCH];
};

static float noise(uint64_t round, uint64_t index, uint64_t counter)
{
    return rng_uniform(rng_key(SEED + round, RNG_TEST, index), counter) * 2 - 1;
}

/* Sets parameters of both sides; `round` makes other values. */
static void bench_params(struct bench *b, int round)
{
    struct reference *r = b->r;
    for (int i = 0; i < r->n_layers; i++) {
        const struct layer *l = &r->layers[i];
        for (int k = 0; k < l->n_params; k++) {
            int id = l->param[k];
            double fan = (double)(r->param_elems[id] / l->out.dim[0]);
            for (int64_t j = 0; j < r->param_elems[id]; j++) {
                float v = noise((uint64_t)round, (uint64_t)id, (uint64_t)j);
                if (l->kind == LAYER_BATCH_NORM)
                    v = k == 0 || k == 3 ? 1.0f + 0.5f * v : 0.3f * v;
                else
                    v *= k == 0 ? (float)sqrt(3 / fan) : 0.2f;
                b->params[id][j] = v;
                r->param[id][j] = (double)v;
            }
        }
    }
}

static void bench_batch(struct bench *b)
{
    for (int s = 0; s < BATCH; s++) {
        b->image[s] = b->images + s * b->pixels;
        b->labels[s] = (uint8_t)rng_below(rng_key(SEED, RNG_TEST, 500), (uint64_t)s, 10);
        b->position[s] = 1000003u * (uint64_t)s + 17;
        for (int64_t k = 0; k < b->pixels; k++)
            b->images[s * b->pixels + k] =
                (uint8_t)rng_u64(rng_key(SEED, RNG_TEST, 501 + (uint64_t)s), (uint64_t)k);
    }
}

static struct backend_plan_config bench_config(const struct bench *b, int n_threads,
                                               int inference_only)
{
    return (struct backend_plan_config){
        .layers = b->r->layers,
        .n_layers = b->r->n_layers,
        .batch = BATCH,
        .n_threads = n_threads,
        .n_params = b->r->n_params,
        .params = (const float *const *)b->params,
        .grads = b->grads,
        .seed = SEED,
        .inference_only = inference_only,
        .deterministic = 1,
    };
}

static enum status bench_plan(struct bench *b, int n_threads, int inference_only)
{
    struct backend_plan_config cfg = bench_config(b, n_threads, inference_only);
    return backend->plan_create(&cfg, &b->plan);
}

static struct bench *bench_create(const struct net *net)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->r = reference_create(net->c, net->h, net->w, BATCH, SEED);
    net->build(b->r);
    b->pixels = (int64_t)net->c * net->h * net->w;
    b->images = malloc((size_t)(BATCH * b->pixels));
    assert_non_null(b->images);
    for (int k = 0; k < b->r->n_params; k++) {
        /* some floats apart, so that none shares a run of pages with the next */
        b->params[k] = calloc((size_t)b->r->param_elems[k] + 64, sizeof(float));
        b->grads[k] = calloc((size_t)b->r->param_elems[k] + 64, sizeof(float));
        assert_true(b->params[k] != NULL && b->grads[k] != NULL);
    }
    bench_batch(b);
    bench_params(b, 0);
    return b;
}

static void bench_destroy(struct bench *b)
{
    backend->plan_destroy(b->plan);
    for (int k = 0; k < b->r->n_params; k++) {
        free(b->params[k]);
        free(b->grads[k]);
    }
    reference_destroy(b->r);
    free(b->images);
    free(b);
}

static void bench_forward(struct bench *b, int first, int n, int train)
{
    assert_int_equal(
        backend->set_input(b->plan, b->image + first, b->labels + first, b->position + first, n),
        ST_OK);
    for (int i = 0; i < b->r->n_layers; i++)
        assert_int_equal(backend->forward(b->plan, i, train), ST_OK);
}

static void bench_backward(struct bench *b)
{
    for (int i = b->r->n_layers - 1; i >= 0; i--)
        assert_int_equal(backend->backward(b->plan, i), ST_OK);
    for (int i = b->r->n_layers - 1; i >= 0 && backend->wait_grads != NULL; i--)
        assert_int_equal(backend->wait_grads(b->plan, i), ST_OK);
}

static void compare(const struct net *net, const char *what, int index, const float *got,
                    const double *want, int64_t n)
{
    double largest = 0, worst = 0;
    for (int64_t k = 0; k < n; k++) {
        double error = fabs((double)got[k] - want[k]);
        largest = fmax(largest, fabs(want[k]));
        worst = error <= worst ? worst : error; /* a NaN gets through */
    }
    if (!(worst <= tolerance * largest + floor_f32))
        fail_msg("net '%s', %s %d: off by %g, largest value %g", net->name, what, index, worst,
                 largest);
}

/* Outputs under a relu may be overwritten by it. */
static int output_is_readable(const struct reference *r, int i)
{
    int next = i + 1;
    while (next < r->n_layers && r->layers[next].kind == LAYER_FLATTEN)
        next++;
    return next >= r->n_layers || r->layers[next].kind != LAYER_RELU;
}

static void compare_outputs(const struct net *net, struct bench *b)
{
    for (int i = 0; i < b->r->n_layers && backend->read_output != NULL; i++) {
        int64_t n = b->r->n * shape_elems(&b->r->layers[i].out);
        if (!output_is_readable(b->r, i))
            continue;
        float *got = malloc((size_t)n * sizeof *got);
        assert_non_null(got);
        assert_int_equal(backend->read_output(b->plan, i, got), ST_OK);
        compare(net, "output of layer", i, got, b->r->y[i], n);
        free(got);
    }
}

static void check_pass(const struct net *net, struct bench *b, int n, int train)
{
    float loss;
    int n_correct;
    reference_forward(b->r, b->images, b->labels, b->position, n, train);
    bench_forward(b, 0, n, train);
    assert_int_equal(backend->result(b->plan, &loss, &n_correct), ST_OK);
    compare_outputs(net, b);
    compare(net, "loss", 0, &loss, &b->r->loss, 1);
    assert_int_equal(n_correct, b->r->n_correct);
    if (!train)
        return;
    for (int k = 0; k < b->r->n_params; k++)
        for (int64_t j = 0; j < b->r->param_elems[k]; j++)
            b->grads[k][j] = NAN; /* all must be written */
    reference_backward(b->r);
    bench_backward(b);
    for (int k = 0; k < b->r->n_params; k++)
        compare(net, "gradient of parameter", k, b->grads[k], b->r->grad[k], b->r->param_elems[k]);
}

static void check_net(const struct net *net, int n_threads)
{
    static const int sizes[] = {BATCH, 5, BATCH, 1, 5};
    struct bench *b = bench_create(net);
    assert_int_equal(bench_plan(b, n_threads, 0), ST_OK);
    assert_true(backend->plan_memory_bytes(b->plan) > 0);
    for (int round = 0; round < 2; round++) {
        bench_params(b, round); /* in the second round: new values must be seen */
        for (int k = 0; k < b->r->n_params; k++)
            assert_int_equal(backend->load_param(b->plan, k), ST_OK);
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            for (int train = 0; train < 2; train++)
                check_pass(net, b, sizes[k], train);
    }
    bench_destroy(b);
}

/* ---- tests ---- */

static void test_nets_one_thread(void **state)
{
    for (int k = 0; k < N_NETS; k++)
        check_net(&nets[k], 1);
}

static void test_nets_two_threads(void **state)
{
    for (int k = 0; k < N_NETS; k++)
        check_net(&nets[k], 2);
}

static void test_inference_only(void **state)
{
    for (int k = 0; k < N_NETS; k++) {
        struct bench *b = bench_create(&nets[k]);
        assert_int_equal(bench_plan(b, 1, 1), ST_OK);
        check_pass(&nets[k], b, BATCH, 0);
        check_pass(&nets[k], b, 3, 0);
        assert_int_not_equal(backend->backward(b->plan, b->r->n_layers - 1), ST_OK);
        bench_destroy(b);
    }
}

static double reference_loss_at(struct bench *b, double *where, double value)
{
    double kept = *where;
    *where = value;
    reference_forward(b->r, b->images, b->labels, b->position, BATCH, 1);
    *where = kept;
    return b->r->loss;
}

/* Central differences of the reference's own loss; running statistics have no gradient. */
static void test_reference_gradients(void **state)
{
    const double h = 1e-6;
    for (int n = 0; n < N_NETS; n++) {
        struct bench *b = bench_create(&nets[n]);
        struct reference *r = b->r;
        reference_forward(r, b->images, b->labels, b->position, BATCH, 1);
        reference_backward(r);
        for (int i = 0; i < r->n_layers; i++)
            for (int k = 0; k < r->layers[i].n_params && k < 2; k++) {
                int id = r->layers[i].param[k];
                int64_t step = r->param_elems[id] / 7 + 1;
                for (int64_t j = 0; j < r->param_elems[id]; j += step) {
                    double *p = &r->param[id][j], at = *p;
                    double slope =
                        (reference_loss_at(b, p, at + h) - reference_loss_at(b, p, at - h)) /
                        (2 * h);
                    if (!(fabs(slope - r->grad[id][j]) <= 1e-7 + 1e-5 * fabs(slope)))
                        fail_msg("net '%s', layer %d, parameter %d[%lld]: gradient %g, slope %g",
                                 nets[n].name, i, k, (long long)j, r->grad[id][j], slope);
                }
            }
        bench_destroy(b);
    }
}

/* The share of dropped units, and that a sample's mask is its own however the batch is cut. */
static void build_dropout(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dropout(r, 0.4f);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void test_dropout_ignores_batch_splits(void **state)
{
    static const struct net net = {"dropout", 1, 40, 40, build_dropout};
    struct bench *b = bench_create(&net);
    int64_t elems = b->pixels;
    if (backend->read_output == NULL)
        skip();
    memset(b->images, 255, (size_t)(BATCH * elems));
    float *whole = calloc((size_t)(BATCH * elems), sizeof *whole);
    float *parts = calloc((size_t)(BATCH * elems), sizeof *parts);
    assert_true(whole != NULL && parts != NULL);
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    bench_forward(b, 0, BATCH, 1);
    assert_int_equal(backend->read_output(b->plan, 1, whole), ST_OK);
    bench_forward(b, 0, 3, 1);
    assert_int_equal(backend->read_output(b->plan, 1, parts), ST_OK);
    bench_forward(b, 3, 5, 1);
    assert_int_equal(backend->read_output(b->plan, 1, parts + 3 * elems), ST_OK);
    assert_memory_equal(whole, parts, (size_t)(BATCH * elems) * sizeof *whole);
    double dropped = 0;
    for (int64_t k = 0; k < BATCH * elems; k++) {
        dropped += whole[k] == 0;
        assert_true(whole[k] == 0 || fabsf(whole[k] - 1 / 0.6f) < 1e-6f);
    }
    dropped /= (double)(BATCH * elems);
    assert_true(dropped > 0.38 && dropped < 0.42); /* 12800 units: 4.6 standard deviations */
    assert_memory_not_equal(whole, whole + elems, (size_t)elems * sizeof *whole);
    free(whole);
    free(parts);
    bench_destroy(b);
}

/* Three steps of plain descent, so that errors would grow; returns the bench for its values. */
static struct bench *descend(const struct net *net, int n_threads)
{
    struct bench *b = bench_create(net);
    assert_int_equal(bench_plan(b, n_threads, 0), ST_OK);
    for (int step = 0; step < 3; step++) {
        bench_forward(b, 0, step == 1 ? 5 : BATCH, 1);
        bench_backward(b);
        for (int k = 0; k < b->r->n_params; k++) {
            for (int64_t j = 0; j < b->r->param_elems[k]; j++)
                b->params[k][j] -= 0.01f * b->grads[k][j];
            assert_int_equal(backend->load_param(b->plan, k), ST_OK);
        }
    }
    return b;
}

static void assert_same_params(const struct bench *a, const struct bench *b)
{
    for (int k = 0; k < a->r->n_params; k++)
        assert_memory_equal(a->params[k], b->params[k],
                            (size_t)a->r->param_elems[k] * sizeof(float));
}

static void test_runs_are_bit_identical(void **state)
{
    static const int which[] = {DEEP, NORM};
    for (int w = 0; w < 2; w++)
        for (int threads = 1; threads <= 2; threads++) {
            struct bench *first = descend(&nets[which[w]], threads);
            struct bench *second = descend(&nets[which[w]], threads);
            assert_same_params(first, second);
            bench_destroy(first);
            bench_destroy(second);
        }
}

static void *descend_thread(void *arg)
{
    struct bench **out = arg;
    *out = descend(&nets[DEEP], 1);
    return NULL;
}

static void test_plans_run_at_once(void **state)
{
    pthread_t thread[2];
    struct bench *b[2] = {NULL, NULL}, *alone = descend(&nets[DEEP], 1);
    for (int k = 0; k < 2; k++)
        assert_int_equal(pthread_create(&thread[k], NULL, descend_thread, &b[k]), 0);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(pthread_join(thread[k], NULL), 0);
        assert_non_null(b[k]);
        assert_same_params(alone, b[k]);
        bench_destroy(b[k]);
    }
    bench_destroy(alone);
}

/* One thread, two plans, the first device and the last, layer by layer in turns. */
static void test_plans_take_turns_on_devices(void **state)
{
    struct bench *b[2];
    for (int k = 0; k < 2; k++) {
        b[k] = bench_create(&nets[NORM]);
        struct backend_plan_config cfg = bench_config(b[k], 1, 0);
        cfg.device = k == 0 ? 0 : backend->n_devices() - 1;
        assert_int_equal(backend->plan_create(&cfg, &b[k]->plan), ST_OK);
    }
    int n = b[0]->r->n_layers;
    for (int k = 0; k < 2; k++)
        assert_int_equal(
            backend->set_input(b[k]->plan, b[k]->image, b[k]->labels, b[k]->position, BATCH),
            ST_OK);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            assert_int_equal(backend->forward(b[k]->plan, i, 1), ST_OK);
    for (int i = n - 1; i >= 0; i--)
        for (int k = 0; k < 2; k++)
            assert_int_equal(backend->backward(b[k]->plan, i), ST_OK);
    for (int i = 0; i < n && backend->wait_grads != NULL; i++)
        for (int k = 0; k < 2; k++)
            assert_int_equal(backend->wait_grads(b[k]->plan, i), ST_OK);
    reference_forward(b[0]->r, b[0]->images, b[0]->labels, b[0]->position, BATCH, 1);
    reference_backward(b[0]->r);
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < b[0]->r->n_params; p++)
            compare(&nets[NORM], "gradient of parameter", p, b[k]->grads[p], b[0]->r->grad[p],
                    b[0]->r->param_elems[p]);
    struct backend_plan_config cfg = bench_config(b[0], 1, 0);
    struct plan *none = NULL;
    cfg.device = backend->n_devices();
    assert_int_not_equal(backend->plan_create(&cfg, &none), ST_OK);
    assert_null(none);
    bench_destroy(b[0]);
    bench_destroy(b[1]);
}

static void test_what_is_wrong_is_refused(void **state)
{
    struct bench *b = bench_create(&nets[0]);
    const struct backend *none = NULL;
    uint8_t bad_label = 10;
    assert_int_equal(backend_open("no_such_backend", WEIR_TEST_BACKEND_DIR, &none), ST_NOT_FOUND);
    assert_int_equal(backend_open("../cpu", WEIR_TEST_BACKEND_DIR, &none), ST_NOT_FOUND);
    assert_null(none);
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    assert_int_equal(backend->set_input(b->plan, b->image, b->labels, b->position, BATCH + 1),
                     ST_RANGE);
    assert_int_equal(backend->set_input(b->plan, b->image, b->labels, b->position, 0), ST_RANGE);
    assert_int_equal(backend->set_input(b->plan, b->image, &bad_label, b->position, 1), ST_RANGE);
    backend->plan_destroy(b->plan);
    b->plan = NULL;
    backend->plan_destroy(NULL);
    b->r->layers[1].n_params = 1;
    assert_int_equal(bench_plan(b, 1, 0), ST_UNSUPPORTED);
    b->r->layers[1].n_params = 2;
    b->r->layers[1].in = b->r->layers[0].in; /* dense on (C,H,W) */
    assert_int_equal(bench_plan(b, 1, 0), ST_UNSUPPORTED);
    assert_null(b->plan);
    bench_destroy(b);
}

/* A limit is either refused, or held and said to be too low; bf16 is refused until it is there. */
static void test_limits_are_kept_or_refused(void **state)
{
    struct bench *b = bench_create(&nets[DEEP]);
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    uint64_t bytes = backend->plan_memory_bytes(b->plan);
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    struct plan *p = NULL;
    cfg.memory_limit_bytes = 65536;
    enum status st = backend->plan_create(&cfg, &p);
    assert_true(st == ST_NOMEM || st == ST_UNSUPPORTED);
    assert_null(p);
    cfg.memory_limit_bytes = bytes;
    if (st == ST_NOMEM) {
        assert_int_equal(backend->plan_create(&cfg, &p), ST_OK);
        assert_true(backend->plan_memory_bytes(p) <= bytes);
        backend->plan_destroy(p);
    }
    cfg.memory_limit_bytes = 0;
    cfg.precision = BACKEND_BF16;
    assert_int_equal(backend->plan_create(&cfg, &p), ST_UNSUPPORTED);
    bench_destroy(b);
}

/* Two plans under one limit that is just enough for both, taken as needed and at once: a third is
 * refused, and fits when one is gone. */
static void test_plans_share_a_limit(void **state)
{
    struct bench *b = bench_create(&nets[DEEP]);
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    struct backend_device device;
    struct plan *p[3];
    if (backend->set_memory == NULL) {
        bench_destroy(b);
        skip();
    }
    assert_int_equal(backend->device_info(0, &device), ST_OK);
    assert_int_not_equal(backend->device_info(backend->n_devices(), &device), ST_OK);
    for (int reserve = 0; reserve < 2; reserve++) {
        assert_int_equal(backend->set_memory(0, 0, 0), ST_OK);
        uint64_t bytes = 0, before = 1;
        while (bytes != before) { /* a plan makes do with less, down to its least */
            before = cfg.memory_limit_bytes = bytes;
            assert_int_equal(backend->plan_create(&cfg, &p[0]), ST_OK);
            bytes = backend->plan_memory_bytes(p[0]);
            assert_int_equal(backend->set_memory(0, 2 * bytes, 0), ST_BUSY);
            backend->plan_destroy(p[0]);
        }
        assert_int_equal(backend->set_memory(0, 2 * bytes, reserve), ST_OK);
        for (int k = 0; k < 2; k++)
            assert_int_equal(backend->plan_create(&cfg, &p[k]), ST_OK);
        assert_int_equal(backend->plan_create(&cfg, &p[2]), ST_NOMEM);
        backend->plan_destroy(p[0]);
        assert_int_equal(backend->plan_create(&cfg, &p[2]), ST_OK);
        backend->plan_destroy(p[1]);
        backend->plan_destroy(p[2]);
    }
    assert_int_equal(backend->set_memory(0, 2 * device.memory_bytes, 1), ST_NOMEM);
    assert_int_equal(backend->set_memory(0, 0, 0), ST_OK);
    bench_destroy(b);
}

/* TF32 keeps 11 bits of each factor. Outputs and loss only: a maximum or a relu may turn over, and
 * its gradient then goes another way. Without asking for determinism, for once. */
static void test_tf32_is_close_or_refused(void **state)
{
    tolerance = tolerance_tf32;
    for (int k = 0; k < N_NETS; k++) {
        struct bench *b = bench_create(&nets[k]);
        struct backend_plan_config cfg = bench_config(b, 1, 0);
        float loss;
        int n_correct;
        cfg.precision = BACKEND_TF32;
        cfg.deterministic = 0;
        enum status st = backend->plan_create(&cfg, &b->plan);
        assert_true(st == ST_OK || st == ST_UNSUPPORTED);
        if (st == ST_OK) {
            reference_forward(b->r, b->images, b->labels, b->position, BATCH, 1);
            bench_forward(b, 0, BATCH, 1);
            assert_int_equal(backend->result(b->plan, &loss, &n_correct), ST_OK);
            compare(&nets[k], "TF32 loss", 0, &loss, &b->r->loss, 1);
            compare_outputs(&nets[k], b);
            bench_backward(b);
        }
        bench_destroy(b);
    }
    tolerance = tolerance_f32;
}

/* Items of a data set on the device give the bits that the same images give. */
static void test_items_are_images(void **state)
{
    static const uint32_t item[] = {5, 0, 7, 7, 2};
    enum { N = sizeof item / sizeof *item };
    struct bench *b = bench_create(&nets[DEEP]);
    struct backend_data *d = NULL;
    uint8_t labels[N];
    const uint8_t *images[N];
    float loss[2], out[2][N * 10];
    int n_correct[2], last = b->r->n_layers - 1;
    if (backend->data_create == NULL)
        goto done;
    for (int i = 0; i < N; i++) {
        images[i] = b->image[item[i]];
        labels[i] = b->labels[item[i]];
    }
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    assert_int_equal(backend->data_create(0, b->images, b->labels, BATCH, b->pixels, &d), ST_OK);
    for (int k = 0; k < 2; k++) {
        enum status st = k == 0 ? backend->set_input(b->plan, images, labels, b->position, N)
                                : backend->set_items(b->plan, d, item, b->position, N);
        assert_int_equal(st, ST_OK);
        for (int i = 0; i <= last; i++)
            assert_int_equal(backend->forward(b->plan, i, 1), ST_OK);
        assert_int_equal(backend->result(b->plan, &loss[k], &n_correct[k]), ST_OK);
        assert_int_equal(backend->read_output(b->plan, last, out[k]), ST_OK);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_int_equal(n_correct[0], n_correct[1]);
    uint32_t beyond = BATCH;
    assert_int_equal(backend->set_items(b->plan, d, &beyond, b->position, 1), ST_RANGE);
    assert_int_equal(backend->set_items(b->plan, d, item, b->position, BATCH + 1), ST_RANGE);
    backend->plan_destroy(b->plan);
    b->plan = NULL;
    backend->data_destroy(d);
done:
    bench_destroy(b);
}

/* Without labels there are probabilities, but no loss. */
static void test_labels_may_be_missing(void **state)
{
    struct bench *b = bench_create(&nets[0]);
    float loss, out[BATCH * 10];
    int n_correct, last = b->r->n_layers - 1;
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    reference_forward(b->r, b->images, b->labels, b->position, BATCH, 0);
    assert_int_equal(backend->set_input(b->plan, b->image, NULL, NULL, BATCH), ST_OK);
    for (int i = 0; i <= last; i++)
        assert_int_equal(backend->forward(b->plan, i, 0), ST_OK);
    if (backend->read_output != NULL) {
        assert_int_equal(backend->read_output(b->plan, last, out), ST_OK);
        compare(&nets[0], "probabilities", last, out, b->r->y[last], BATCH * 10);
    }
    assert_int_not_equal(backend->result(b->plan, &loss, &n_correct), ST_OK);
    assert_int_not_equal(backend->backward(b->plan, last), ST_OK);
    bench_destroy(b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_gradients),
        cmocka_unit_test(test_nets_one_thread),
        cmocka_unit_test(test_nets_two_threads),
        cmocka_unit_test(test_inference_only),
        cmocka_unit_test(test_dropout_ignores_batch_splits),
        cmocka_unit_test(test_runs_are_bit_identical),
        cmocka_unit_test(test_plans_run_at_once),
        cmocka_unit_test(test_plans_take_turns_on_devices),
        cmocka_unit_test(test_what_is_wrong_is_refused),
        cmocka_unit_test(test_limits_are_kept_or_refused),
        cmocka_unit_test(test_plans_share_a_limit),
        cmocka_unit_test(test_tf32_is_close_or_refused),
        cmocka_unit_test(test_items_are_images),
        cmocka_unit_test(test_labels_may_be_missing),
    };
    /* Threads that spin for one another starve on a busy machine; read when OpenMP is loaded. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    if (getenv("WEIR_TEST_BACKEND") != NULL)
        backend_name = getenv("WEIR_TEST_BACKEND");
    if (argc > 1)
        backend_name = argv[1];
    const char *dir = argc > 2 ? argv[2] : WEIR_TEST_BACKEND_DIR;
    if (backend_open(backend_name, dir, &backend) != ST_OK) {
        printf("SKIP: backend '%s' is not in this build\n", backend_name);
        return argc > 1 || getenv("WEIR_TEST_BACKEND") != NULL ? 1 : 77;
    }
    if (backend->n_devices() == 0) {
        printf("SKIP: backend '%s' (%s) has no device here\n", backend_name, backend->description);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
