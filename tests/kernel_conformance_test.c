/* tests/kernel_conformance_test.c - compares any backend, by name, with the double-precision
 * reference: every kind of layer in several shapes, strides and paddings, inside small nets that
 * end in a loss, forward and backward, with full and short batches, one thread and two. The
 * reference itself is compared with finite differences. Backend and nets: tests/kernel_bench.h. */
#include "base/rng.h"
#include "kernels/device_report.h"
#include "tests/check.h"
#include "tests/kernel_bench.h"
#include "tests/skip.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tests ---- */

static void test_nets_one_thread(void **state)
{
    for (int k = 0; k < bench_n_nets; k++)
        bench_check_net(&bench_nets[k], 1);
}

static void test_nets_two_threads(void **state)
{
    for (int k = 0; k < bench_n_nets; k++)
        bench_check_net(&bench_nets[k], 2);
}

static void test_inference_only(void **state)
{
    for (int k = 0; k < bench_n_nets; k++) {
        struct bench *b = bench_create(&bench_nets[k]);
        assert_int_equal(bench_plan(b, 1, 1), ST_OK);
        bench_check_pass(&bench_nets[k], b, BENCH_BATCH, 0);
        bench_check_pass(&bench_nets[k], b, 3, 0);
        assert_int_not_equal(backend->backward(b->plan, b->r->n_layers - 1), ST_OK);
        bench_destroy(b);
    }
}

static double reference_loss_at(struct bench *b, double *where, double value)
{
    double kept = *where;
    *where = value;
    reference_forward(b->r, b->images, b->labels, b->position, BENCH_BATCH, 1);
    *where = kept;
    return b->r->loss;
}

/* Compares the reference's gradients with central differences of its loss; running statistics have
 * no gradient and are omitted. */
static void test_reference_gradients(void **state)
{
    const double h = 1e-6;
    for (int n = 0; n < bench_n_nets; n++) {
        struct bench *b = bench_create(&bench_nets[n]);
        struct reference *r = b->r;
        reference_forward(r, b->images, b->labels, b->position, BENCH_BATCH, 1);
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
                                 bench_nets[n].name, i, k, (long long)j, r->grad[id][j], slope);
                }
            }
        bench_destroy(b);
    }
}

/* Net to check the share of dropped units. The mask of a sample must not depend on the division of
 * the batch. */
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
    assert_non_null(backend->read_output);
    memset(b->images, 255, (size_t)(BENCH_BATCH * elems));
    float *whole = calloc((size_t)(BENCH_BATCH * elems), sizeof *whole);
    float *parts = calloc((size_t)(BENCH_BATCH * elems), sizeof *parts);
    assert_true(whole != NULL && parts != NULL);
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    bench_forward(b, 0, BENCH_BATCH, 1);
    assert_int_equal(backend->read_output(b->plan, 1, whole), ST_OK);
    bench_forward(b, 0, 3, 1);
    assert_int_equal(backend->read_output(b->plan, 1, parts), ST_OK);
    bench_forward(b, 3, 5, 1);
    assert_int_equal(backend->read_output(b->plan, 1, parts + 3 * elems), ST_OK);
    assert_memory_equal(whole, parts, (size_t)(BENCH_BATCH * elems) * sizeof *whole);
    double dropped = 0;
    for (int64_t k = 0; k < BENCH_BATCH * elems; k++) {
        dropped += whole[k] == 0;
        assert_true(whole[k] == 0 || fabsf(whole[k] - 1 / 0.6f) < 1e-6f);
    }
    dropped /= (double)(BENCH_BATCH * elems);
    assert_true(dropped > 0.38 && dropped < 0.42); /* 12800 units: 4.6 standard deviations */
    assert_memory_not_equal(whole, whole + elems, (size_t)elems * sizeof *whole);
    free(whole);
    free(parts);
    bench_destroy(b);
}

/* Runs three steps of plain gradient descent, so that errors would grow. Returns the bench, whose
 * parameters are the result. */
static struct bench *descend_in(const struct net *net, int n_threads,
                                enum backend_precision precision)
{
    struct bench *b = bench_create(net);
    struct backend_plan_config cfg = bench_config(b, n_threads, 0);
    cfg.precision = precision;
    assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
    for (int step = 0; step < 3; step++) {
        bench_forward(b, 0, step == 1 ? 5 : BENCH_BATCH, 1);
        bench_backward(b);
        for (int k = 0; k < b->r->n_params; k++) {
            for (int64_t j = 0; j < b->r->param_elems[k]; j++)
                b->params[k][j] -= 0.01f * b->grads[k][j];
            assert_int_equal(backend->load_param(b->plan, k), ST_OK);
        }
    }
    return b;
}

static struct bench *descend(const struct net *net, int n_threads)
{
    return descend_in(net, n_threads, BACKEND_FP32);
}

static int has_precision(enum backend_precision precision)
{
    return backend->has_precision == NULL || backend->has_precision(precision);
}

static void assert_same_params(const struct bench *a, const struct bench *b)
{
    for (int k = 0; k < a->r->n_params; k++)
        assert_memory_equal(a->params[k], b->params[k],
                            (size_t)a->r->param_elems[k] * sizeof(float));
}

static void test_runs_are_bit_identical(void **state)
{
    static const int which[] = {BENCH_DEEP, BENCH_NORM};
    for (int k = 0; k < 4; k++)
        for (int threads = 1; threads <= 2; threads++) {
            enum backend_precision precision = k < 2 ? BACKEND_FP32 : BACKEND_BF16;
            if (!has_precision(precision))
                continue;
            struct bench *first = descend_in(&bench_nets[which[k % 2]], threads, precision);
            struct bench *second = descend_in(&bench_nets[which[k % 2]], threads, precision);
            assert_same_params(first, second);
            bench_destroy(first);
            bench_destroy(second);
        }
}

static void *descend_thread(void *arg)
{
    struct bench **out = arg;
    *out = descend(&bench_nets[BENCH_DEEP], 1);
    return NULL;
}

static void test_plans_run_at_once(void **state)
{
    pthread_t thread[2];
    struct bench *b[2] = {NULL, NULL}, *alone = descend(&bench_nets[BENCH_DEEP], 1);
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

/* One thread runs two plans, on the first device and the last, layer by layer in turns. */
static void plans_alternate_on_devices(void **state)
{
    struct bench *b[2];
    for (int k = 0; k < 2; k++) {
        b[k] = bench_create(&bench_nets[BENCH_NORM]);
        struct backend_plan_config cfg = bench_config(b[k], 1, 0);
        cfg.device = k == 0 ? 0 : backend->n_devices() - 1;
        assert_int_equal(backend->plan_create(&cfg, &b[k]->plan), ST_OK);
    }
    int n = b[0]->r->n_layers;
    for (int k = 0; k < 2; k++)
        assert_int_equal(
            backend->set_input(b[k]->plan, b[k]->image, b[k]->labels, b[k]->position, BENCH_BATCH),
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
    reference_forward(b[0]->r, b[0]->images, b[0]->labels, b[0]->position, BENCH_BATCH, 1);
    reference_backward(b[0]->r);
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < b[0]->r->n_params; p++)
            bench_compare(&bench_nets[BENCH_NORM], "gradient of parameter", p, b[k]->grads[p],
                          b[0]->r->grad[p], b[0]->r->param_elems[p]);
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
    struct bench *b = bench_create(&bench_nets[0]);
    const struct backend *none = NULL;
    uint8_t bad_label = 10;
    assert_int_equal(backend_open("no_such_backend", WEIR_TEST_BACKEND_DIR, &none), ST_NOT_FOUND);
    assert_int_equal(backend_open("../cpu", WEIR_TEST_BACKEND_DIR, &none), ST_NOT_FOUND);
    assert_null(none);
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    assert_int_equal(backend->set_input(b->plan, b->image, b->labels, b->position, BENCH_BATCH + 1),
                     ST_RANGE);
    assert_int_equal(backend->set_input(b->plan, b->image, b->labels, b->position, 0), ST_RANGE);
    assert_int_equal(backend->set_input(b->plan, b->image, &bad_label, b->position, 1), ST_RANGE);
    backend->plan_destroy(b->plan);
    b->plan = NULL;
    backend->plan_destroy(NULL);
    for (int n = 0; n <= 3; n += 3) {
        b->r->layers[1].n_params = n;
        assert_int_equal(bench_plan(b, 1, 0), ST_UNSUPPORTED);
    }
    b->r->layers[1].n_params = 2;
    b->r->layers[1].in = b->r->layers[0].in; /* a dense layer cannot read (C,H,W) */
    assert_int_equal(bench_plan(b, 1, 0), ST_UNSUPPORTED);
    assert_null(b->plan);
    bench_destroy(b);
}

/* Net for numbers beyond the vocabulary of an embedding, and for invalid layers. */
static void build_few_words(struct reference *r)
{
    reference_embedding(r, 12, 3);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_smoothed(r, 0.5f);
}

static void test_numbers_beyond_the_vocabulary_are_refused(void **state)
{
    static const struct net net = {"few words", 1, 5, 4, build_few_words};
    struct bench *b = bench_create(&net);
    for (int64_t k = 0; k < BENCH_BATCH * b->pixels; k++)
        b->images[k] %= 12;
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    bench_check_pass(&net, b, BENCH_BATCH, 1);
    b->images[b->pixels + 3] = 12;
    assert_int_equal(backend->set_input(b->plan, b->image, b->labels, b->position, 1), ST_OK);
    assert_int_equal(backend->set_input(b->plan, b->image, b->labels, b->position, 2), ST_RANGE);
    backend->plan_destroy(b->plan);
    b->plan = NULL;
    struct layer *embedding = &b->r->layers[0], *loss = &b->r->layers[3];
    embedding->vocabulary = LAYER_MAX_VOCABULARY + 1;
    assert_int_equal(bench_plan(b, 1, 0), ST_UNSUPPORTED);
    embedding->vocabulary = 12;
    loss->smoothing = 1;
    assert_int_equal(bench_plan(b, 1, 0), ST_UNSUPPORTED);
    loss->smoothing = 0.5f;
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    bench_destroy(b);
}

/* Net for numbers above 255: 256, the last one of the vocabulary, and random ones; some are
 * repeated. */
static void build_many_words(struct reference *r)
{
    reference_embedding(r, 70001, 3);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void test_numbers_above_255(void **state)
{
    static const struct net net = {"many words", 1, 5, 4, build_many_words};
    enum { N = BENCH_BATCH, CELLS = 20 };
    struct bench *b = bench_create(&net);
    float numbers[N * CELLS], loss;
    const float *row[N];
    int32_t labels[N];
    int n_correct;
    for (int k = 0; k < N * CELLS; k++) {
        uint64_t random = rng_below(rng_key(BENCH_SEED, RNG_TEST, 901), (uint64_t)k, 70001);
        numbers[k] = (float)(k % 7 == 0 ? 70000 : k % 11 == 0 ? 256 : (int)random) / 255.0f;
    }
    for (int i = 0; i < N; i++) {
        row[i] = numbers + i * CELLS;
        labels[i] = b->labels[i];
    }
    b->r->floats = numbers;
    reference_forward(b->r, b->images, b->labels, b->position, N, 1);
    reference_backward(b->r);
    assert_int_equal(bench_plan(b, 2, 0), ST_OK);
    assert_int_equal(backend->set_floats(b->plan, row, labels, b->position, N), ST_OK);
    for (int i = 0; i < b->r->n_layers; i++)
        assert_int_equal(backend->forward(b->plan, i, 1), ST_OK);
    assert_int_equal(backend->result(b->plan, &loss, &n_correct), ST_OK);
    bench_compare_outputs(&net, b);
    bench_compare(&net, "loss", 0, &loss, &b->r->loss, 1);
    bench_backward(b);
    for (int k = 0; k < b->r->n_params; k++)
        bench_compare(&net, "gradient of parameter", k, b->grads[k], b->r->grad[k],
                      b->r->param_elems[k]);
    static const float bad[] = {70001 / 255.0f, -1 / 255.0f, 0.5f, NAN, INFINITY};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        numbers[3] = bad[k];
        assert_int_equal(backend->set_floats(b->plan, row, labels, b->position, N), ST_RANGE);
    }
    bench_destroy(b);
}

/* A backend either supports no limits of memory, or respects a limit and reports one that is too
 * low. */
static void test_limits_are_kept_or_refused(void **state)
{
    struct bench *b = bench_create(&bench_nets[BENCH_DEEP]);
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    uint64_t bytes = backend->plan_memory_bytes(b->plan);
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    struct plan *p = NULL;
    cfg.memory_limit_bytes = 65536;
    enum status st = backend->plan_create(&cfg, &p);
    assert_true(st == ST_RANGE || st == ST_UNSUPPORTED);
    assert_null(p);
    cfg.memory_limit_bytes = bytes;
    if (st == ST_RANGE) {
        assert_int_equal(backend->plan_create(&cfg, &p), ST_OK);
        assert_true(backend->plan_memory_bytes(p) <= bytes);
        backend->plan_destroy(p);
    }
    bench_destroy(b);
}

/* Two plans share a limit that is just enough for both; memory is allocated on demand or reserved
 * at once. A third plan is refused until one of the two is destroyed. */
static void test_plans_share_a_limit(void **state)
{
    struct bench *b = bench_create(&bench_nets[BENCH_DEEP]);
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    struct backend_device device;
    struct plan *p[3];
    assert_non_null(backend->set_memory);
    assert_int_equal(backend->device_info(0, &device), ST_OK);
    assert_int_not_equal(backend->device_info(backend->n_devices(), &device), ST_OK);
    for (int reserve = 0; reserve < 2; reserve++) {
        assert_int_equal(backend->set_memory(0, 0, 0), ST_OK);
        uint64_t bytes = 0, before = 1;
        while (bytes != before) { /* under a limit a plan uses less memory, down to its minimum */
            before = cfg.memory_limit_bytes = bytes;
            assert_int_equal(backend->plan_create(&cfg, &p[0]), ST_OK);
            bytes = backend->plan_memory_bytes(p[0]);
            assert_int_equal(backend->set_memory(0, 2 * bytes, 0), ST_BUSY);
            backend->plan_destroy(p[0]);
        }
        assert_int_equal(backend->set_memory(0, 2 * bytes, reserve), ST_OK);
        for (int k = 0; k < 2; k++)
            assert_int_equal(backend->plan_create(&cfg, &p[k]), ST_OK);
        assert_int_equal(backend->plan_create(&cfg, &p[2]), ST_RANGE);
        backend->plan_destroy(p[0]);
        assert_int_equal(backend->plan_create(&cfg, &p[2]), ST_OK);
        backend->plan_destroy(p[1]);
        backend->plan_destroy(p[2]);
    }
    assert_int_equal(backend->set_memory(0, 2 * device.memory_bytes, 1), ST_NOMEM);
    assert_int_equal(backend->set_memory(0, 0, 0), ST_OK);
    bench_destroy(b);
}

/* Adds convolutions, each with a relu and a max pool after it. The order of relu and pool must not
 * matter. */
static void add_pooled(struct reference *r, int pool_first)
{
    static const struct {
        int filters, kernel, pool, stride, padding;
    } of[] = {{6, 3, 3, 2, -1}, {5, 2, 2, 1, 0}, {7, 3, 2, 2, -1}};
    for (int k = 0; k < 3; k++) {
        reference_conv(r, of[k].filters, of[k].kernel, 1, -1);
        if (!pool_first)
            reference_layer(r, LAYER_RELU);
        reference_pool(r, LAYER_MAX_POOL, of[k].pool, of[k].stride, of[k].padding);
        if (pool_first)
            reference_layer(r, LAYER_RELU);
    }
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

static void build_relu_first(struct reference *r)
{
    add_pooled(r, 0);
}

static void build_pool_first(struct reference *r)
{
    add_pooled(r, 1);
}

/* A relu and a max pool that are part of the convolution before them have the same bits as separate
 * bias, pool and relu, and the convolution's output is not kept. */
static void test_max_pool_in_one_pass(void **state)
{
    static const struct net nets[] = {{"relu first", 2, 13, 11, build_relu_first},
                                      {"pool first", 2, 13, 11, build_pool_first}};
    enum { LARGEST = 6 * 13 * 11, ALL = LARGEST + 5 * 7 * 6 + 7 * 6 * 5, LIMIT = 32 << 20 };
    for (int precision = BACKEND_FP32; precision <= BACKEND_BF16; precision++)
        for (int inference = 0; inference < 2 && has_precision(precision); inference++) {
            struct bench *b[2];
            uint64_t bytes[2];
            for (int k = 0; k < 2; k++) {
                b[k] = bench_create(&nets[k]);
                struct backend_plan_config cfg = bench_config(b[k], 1, inference);
                cfg.precision = (enum backend_precision)precision;
                cfg.memory_limit_bytes = LIMIT; /* so that each has the smallest cuBLAS workspace */
                assert_int_equal(backend->plan_create(&cfg, &b[k]->plan), ST_OK);
                bytes[k] = backend->plan_memory_bytes(b[k]->plan);
                for (int n = BENCH_BATCH; n > 0; n -= 3) {
                    float loss;
                    int n_correct;
                    bench_forward(b[k], 0, n, !inference);
                    if (!inference)
                        bench_backward(b[k]);
                    assert_int_equal(backend->result(b[k]->plan, &loss, &n_correct), ST_OK);
                    assert_true(loss > 0);
                }
            }
            int last = b[0]->r->n_layers - 1;
            float out[2][BENCH_BATCH * 10] = {{0}};
            for (int k = 0; k < 2; k++)
                assert_int_equal(backend->read_output(b[k]->plan, last, out[k]), ST_OK);
            assert_memory_equal(out[0], out[1], sizeof out[0]);
            for (int p = 0; p < b[0]->r->n_params && !inference; p++)
                assert_memory_equal(b[0]->grads[p], b[1]->grads[p],
                                    (size_t)b[0]->r->param_elems[p] * sizeof(float));
            uint64_t saved = sizeof(float) * BENCH_BATCH * (inference ? ALL - LARGEST : ALL);
            assert_true(bytes[0] + saved <= bytes[1] + 3 * 256);
            for (int k = 0; k < 2; k++)
                bench_destroy(b[k]);
        }
}

static int is_emulated;

/* Runs a training pass that need not be deterministic, sets *loss, and compares loss and outputs
 * with the reference. It does not compare gradients: rounding may change the index of a maximum, or
 * the sign before a relu. Returns 0 if the backend refuses the precision. */
static int loss_at(const struct net *net, enum backend_precision precision, float *loss)
{
    struct bench *b = bench_create(net);
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    int n_correct;
    cfg.precision = precision;
    cfg.deterministic = 0;
    enum status st = backend->plan_create(&cfg, &b->plan);
    assert_true(st == ST_OK || st == ST_UNSUPPORTED);
    if (st == ST_OK) {
        reference_forward(b->r, b->images, b->labels, b->position, BENCH_BATCH, 1);
        bench_forward(b, 0, BENCH_BATCH, 1);
        assert_int_equal(backend->result(b->plan, loss, &n_correct), ST_OK);
        bench_compare(net, "loss", precision, loss, &b->r->loss, 1);
        bench_compare_outputs(net, b);
        bench_backward(b);
    }
    bench_destroy(b);
    return st == ST_OK;
}

/* The unit roundoff of factors with `bits` significant bits is u = 2^-bits. A sum of k products of
 * rounded factors has an error of at most 2 u times the sum of the absolute products; since the
 * roundings are independent, and so are the signs of the products, the expected error is 2 u times
 * the root of the sum of their squares, which is the size of the result itself. Rounding the result
 * adds u. This makes 3 u per layer with products. Each net here has at most four such layers in a
 * row: 12 u of a tensor's largest value. */
static void check_rounding(enum backend_precision precision, int bits)
{
    for (int k = 0; k < bench_n_nets; k++) {
        float exact, rounded;
        assert_true(loss_at(&bench_nets[k], BACKEND_FP32, &exact));
        bench_tolerance = 12 * pow(2, -bits);
        int is_there = loss_at(&bench_nets[k], precision, &rounded);
        if (is_there && is_emulated) /* an old card may not support rounding */
            assert_true(rounded != exact);
        bench_tolerance = bench_tolerance_f32;
    }
}

static void test_tf32_is_close_or_refused(void **state)
{
    check_rounding(BACKEND_TF32, 11);
}

/* Skips the test if the backend refuses bf16: only a run shows whether a card supports it. */
static void skip_without_bf16(void)
{
    if (!has_precision(BACKEND_BF16))
        skip_because("backend '%s' (%s) refuses bf16 here", backend->name, backend->description);
}

static void test_bf16_is_close_or_refused(void **state)
{
    check_rounding(BACKEND_BF16, 8);
    skip_without_bf16();
}

/* Checks that gradients, too, are within 3 u per layer with products; there are ten in a row,
 * forward and backward. Runs whole and short batches, with new parameters, and checks that the
 * gradients differ from those of float32. */
static void check_gradients_in_bf16(const struct net *net)
{
    struct bench *b = bench_create(net);
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    float loss, differs = 0;
    int n_correct;
    cfg.precision = BACKEND_BF16;
    enum status st = backend->plan_create(&cfg, &b->plan);
    assert_int_equal(st, has_precision(BACKEND_BF16) ? ST_OK : ST_UNSUPPORTED);
    bench_tolerance = 30 * pow(2, -8);
    for (int round = 0; round < 2 && st == ST_OK; round++) {
        int n = round == 0 ? BENCH_BATCH : 5;
        bench_params(b, round);
        for (int k = 0; k < b->r->n_params; k++)
            assert_int_equal(backend->load_param(b->plan, k), ST_OK);
        reference_forward(b->r, b->images, b->labels, b->position, n, 1);
        reference_backward(b->r);
        bench_forward(b, 0, n, 1);
        assert_int_equal(backend->result(b->plan, &loss, &n_correct), ST_OK);
        bench_compare(net, "loss", round, &loss, &b->r->loss, 1);
        bench_compare_outputs(net, b);
        bench_backward(b);
        for (int k = 0; k < b->r->n_params; k++) {
            bench_compare(net, "gradient of parameter", k, b->grads[k], b->r->grad[k],
                          b->r->param_elems[k]);
            differs = fmaxf(differs, fabsf(b->grads[k][0] - (float)b->r->grad[k][0]) /
                                         fabsf((float)b->r->grad[k][0]));
        }
    }
    bench_tolerance = bench_tolerance_f32;
    if (st == ST_OK && !is_emulated && strcmp(backend->name, "cpu") == 0)
        assert_true(differs > 1e-4f); /* it is not fp32 under another name */
    bench_destroy(b);
}

static void test_gradients_in_bf16(void **state)
{
    for (int k = 0; k < BENCH_N_SMOOTH; k++)
        check_gradients_in_bf16(&bench_smooth[k]);
    skip_without_bf16();
}

/* A pass over items of a data set on the device has the same bits as one over their images. */
static void test_items_are_images(void **state)
{
    static const uint32_t item[] = {5, 0, 7, 7, 2};
    enum { N = sizeof item / sizeof *item };
    struct bench *b = bench_create(&bench_nets[BENCH_DEEP]);
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
    assert_int_equal(backend->data_create(0, b->images, b->labels, BENCH_BATCH, b->pixels, &d),
                     ST_OK);
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
    uint32_t beyond = BENCH_BATCH;
    assert_int_equal(backend->set_items(b->plan, d, &beyond, b->position, 1), ST_RANGE);
    assert_int_equal(backend->set_items(b->plan, d, item, b->position, BENCH_BATCH + 1), ST_RANGE);
    backend->plan_destroy(b->plan);
    b->plan = NULL;
    backend->data_destroy(d);
done:
    bench_destroy(b);
}

/* A pass over pixels that the caller has divided by 255 has the same bits as a pass over bytes,
 * gradients included. */
static void test_floats_are_images(void **state)
{
    enum { N = BENCH_BATCH };
    struct bench *b = bench_create(&bench_nets[BENCH_DEEP]);
    float *rows = malloc(N * (size_t)b->pixels * sizeof *rows), loss[2], *grads[2];
    const float *row[N];
    int32_t labels[N];
    int n_correct[2], last = b->r->n_layers - 1;
    int64_t elems = b->r->param_elems[0];
    assert_non_null(rows);
    for (int i = 0; i < N; i++) {
        row[i] = rows + i * b->pixels;
        labels[i] = b->labels[i];
        for (int64_t k = 0; k < b->pixels; k++)
            rows[i * b->pixels + k] = (float)b->image[i][k] / 255.0f;
    }
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    for (int k = 0; k < 2; k++) {
        enum status st = k == 0 ? backend->set_input(b->plan, b->image, b->labels, b->position, N)
                                : backend->set_floats(b->plan, row, labels, b->position, N);
        assert_int_equal(st, ST_OK);
        for (int i = 0; i <= last; i++)
            assert_int_equal(backend->forward(b->plan, i, 1), ST_OK);
        assert_int_equal(backend->result(b->plan, &loss[k], &n_correct[k]), ST_OK);
        bench_backward(b);
        grads[k] = malloc((size_t)elems * sizeof(float));
        assert_non_null(grads[k]);
        memcpy(grads[k], b->grads[0], (size_t)elems * sizeof(float));
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_memory_equal(grads[0], grads[1], (size_t)elems * sizeof(float));
    assert_int_equal(n_correct[0], n_correct[1]);
    labels[2] = 45;
    assert_int_equal(backend->set_floats(b->plan, row, labels, b->position, N), ST_RANGE);
    labels[2] = -1;
    assert_int_equal(backend->set_floats(b->plan, row, labels, b->position, N), ST_RANGE);
    assert_int_equal(backend->set_floats(b->plan, row, NULL, b->position, N + 1), ST_RANGE);
    free(grads[0]);
    free(grads[1]);
    free(rows);
    bench_destroy(b);
}

/* Runs two passes: the gradients of the second replace those of the first. */
static void gradients_of(struct bench *b, const struct backend_plan_config *cfg)
{
    assert_int_equal(backend->plan_create(cfg, &b->plan), ST_OK);
    for (int pass = 0; pass < 2; pass++) {
        bench_forward(b, 0, BENCH_BATCH - pass, 1);
        bench_backward(b);
    }
    backend->plan_destroy(b->plan);
    b->plan = NULL;
}

/* Gradients that the backend rounds equal those that the host rounds; the backend writes all of
 * them, and nothing after them. A backend that does not round refuses the plan. */
static void test_gradients_of_16_bits(void **state)
{
    static const int which[] = {BENCH_DEEP, BENCH_NORM};
    enum { GUARD = 0x5aa5 };
    for (int w = 0; w < 2; w++)
        for (int d = DTYPE_BF16; d <= DTYPE_F16; d++) {
            struct bench *b = bench_create(&bench_nets[which[w]]);
            int n = b->r->n_params;
            uint16_t *rounded[REFERENCE_MAX_PARAMS];
            struct backend_plan_config cfg = bench_config(b, 1, 0);
            gradients_of(b, &cfg);
            for (int k = 0; k < n; k++) {
                rounded[k] = malloc(((size_t)b->r->param_elems[k] + 1) * sizeof(uint16_t));
                assert_non_null(rounded[k]);
                for (int64_t j = 0; j <= b->r->param_elems[k]; j++)
                    rounded[k][j] = GUARD;
            }
            cfg.grads = NULL;
            cfg.grads16 = rounded;
            cfg.grads_dtype = (enum dtype)d;
            if (backend->grads16)
                gradients_of(b, &cfg);
            else
                assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_UNSUPPORTED);
            for (int k = 0; k < n; k++) {
                size_t elems = (size_t)b->r->param_elems[k];
                uint16_t *want = malloc(elems * sizeof *want);
                assert_non_null(want);
                dtype_encode((enum dtype)d, want, b->grads[k], elems);
                if (backend->grads16)
                    assert_memory_equal(rounded[k], want, elems * sizeof *want);
                assert_int_equal(rounded[k][elems], GUARD);
                free(want);
                free(rounded[k]);
            }
            cfg.grads16 = rounded; /* refused for its type, before the arrays are read */
            cfg.grads_dtype = DTYPE_F32;
            assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_UNSUPPORTED);
            bench_destroy(b);
        }
}

/* Without labels a pass has probabilities, but no loss. */
static void test_labels_may_be_missing(void **state)
{
    struct bench *b = bench_create(&bench_nets[0]);
    float loss, out[BENCH_BATCH * 10];
    int n_correct, last = b->r->n_layers - 1;
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    reference_forward(b->r, b->images, b->labels, b->position, BENCH_BATCH, 0);
    assert_int_equal(backend->set_input(b->plan, b->image, NULL, NULL, BENCH_BATCH), ST_OK);
    for (int i = 0; i <= last; i++)
        assert_int_equal(backend->forward(b->plan, i, 0), ST_OK);
    if (backend->read_output != NULL) {
        assert_int_equal(backend->read_output(b->plan, last, out), ST_OK);
        bench_compare(&bench_nets[0], "probabilities", last, out, b->r->y[last], BENCH_BATCH * 10);
    }
    assert_int_not_equal(backend->result(b->plan, &loss, &n_correct), ST_OK);
    assert_int_not_equal(backend->backward(b->plan, last), ST_OK);
    bench_destroy(b);
}

int main(int argc, char **argv)
{
    is_emulated = argc > 1 && strcmp(argv[1], "emulated") == 0;
    int skip = bench_open(argc, argv);
    if (skip)
        return skip;
    int status = RUN_TESTS(
        test_reference_gradients, test_nets_one_thread, test_nets_two_threads, test_inference_only,
        test_dropout_ignores_batch_splits, test_runs_are_bit_identical, test_plans_run_at_once,
        plans_alternate_on_devices, test_what_is_wrong_is_refused,
        test_numbers_beyond_the_vocabulary_are_refused, test_numbers_above_255,
        test_limits_are_kept_or_refused, test_tf32_is_close_or_refused,
        test_bf16_is_close_or_refused, test_gradients_in_bf16, test_items_are_images,
        test_floats_are_images, test_labels_may_be_missing, test_gradients_of_16_bits);
    if (strcmp(backend->name, "cuda") == 0)
        status = RUN_TESTS(test_plans_share_a_limit, test_max_pool_in_one_pass);
    return status;
}
