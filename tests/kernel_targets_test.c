/* tests/kernel_targets_test.c - tests any backend, by name, with targets: a sample has a float for
 * each output instead of a label. Losses and gradients are compared with the double-precision
 * reference, and the reference with finite differences. Backend and nets: tests/kernel_bench.h. */
#include "base/rng.h"
#include "tests/check.h"
#include "tests/kernel_bench.h"
#include <math.h>
#include <stdlib.h>

static void build_sigmoids(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 9);
    reference_layer(r, LAYER_RELU);
    reference_dense(r, 5);
    reference_layer(r, LAYER_SIGMOID_XENT);
}

static void build_one_number(struct reference *r)
{
    reference_conv(r, 3, 3, 1, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 1);
    reference_layer(r, LAYER_SQUARED);
}

static void build_few_squares(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SQUARED);
}

static void build_many_numbers(struct reference *r)
{
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 70); /* more than a kernel's threads */
    reference_layer(r, LAYER_SQUARED);
}

static const struct net target_nets[] = {{"sigmoids of targets", 1, 6, 5, build_sigmoids},
                                         {"one number", 2, 6, 7, build_one_number},
                                         {"many numbers", 1, 5, 5, build_many_numbers}};
enum { N_TARGET_NETS = sizeof target_nets / sizeof *target_nets };

static int64_t outputs_of(const struct bench *b)
{
    return b->r->layers[b->r->n_layers - 1].in.dim[0];
}

/* Makes targets: from 0 to 1 for sigmoids, 0 and 1 included; from -3 to 3 for the squared error. */
static float *make_targets(struct bench *b)
{
    int64_t n = BENCH_BATCH * outputs_of(b);
    int squared = b->r->layers[b->r->n_layers - 1].kind == LAYER_SQUARED;
    float *targets = malloc((size_t)n * sizeof *targets);
    assert_non_null(targets);
    for (int64_t k = 0; k < n; k++) {
        float u = rng_uniform(rng_key(BENCH_SEED, RNG_TEST, 900), (uint64_t)k);
        targets[k] = squared ? 6 * u - 3 : k % 5 == 0 ? (float)(k % 2) : u;
    }
    b->r->targets = targets;
    return targets;
}

static void check_targets_pass(const struct net *net, struct bench *b, int n, int train)
{
    const float *row[BENCH_BATCH], *other[BENCH_BATCH];
    float loss;
    int n_correct = -1;
    for (int i = 0; i < n; i++)
        other[n - 1 - i] = row[i] = b->r->targets + i * outputs_of(b);
    /* a pass that is abandoned before its first layer */
    assert_int_equal(backend->set_input(b->plan, b->image, NULL, b->position, n), ST_OK);
    assert_int_equal(backend->set_targets(b->plan, other, n), ST_OK);
    reference_forward(b->r, b->images, b->labels, b->position, n, train);
    assert_int_equal(backend->set_input(b->plan, b->image, NULL, b->position, n), ST_OK);
    assert_int_equal(backend->set_targets(b->plan, row, n), ST_OK);
    for (int i = 0; i < b->r->n_layers; i++)
        assert_int_equal(backend->forward(b->plan, i, train), ST_OK);
    assert_int_equal(backend->result(b->plan, &loss, &n_correct), ST_OK);
    bench_compare_outputs(net, b);
    bench_compare(net, "loss", 0, &loss, &b->r->loss, 1);
    assert_int_equal(n_correct, 0);
    if (!train)
        return;
    reference_backward(b->r);
    bench_backward(b);
    for (int k = 0; k < b->r->n_params; k++)
        bench_compare(net, "gradient of parameter", k, b->grads[k], b->r->grad[k],
                      b->r->param_elems[k]);
}

static void test_targets(void **state)
{
    static const int sizes[] = {BENCH_BATCH, 3, BENCH_BATCH, 1};
    for (int k = 0; k < N_TARGET_NETS; k++) {
        struct bench *b = bench_create(&target_nets[k]);
        float *targets = make_targets(b);
        assert_int_equal(bench_plan(b, 1, 0), ST_OK);
        for (int i = 0; i < 4; i++)
            for (int train = 0; train < 2; train++)
                check_targets_pass(&target_nets[k], b, sizes[i], train);
        free(targets);
        bench_destroy(b);
    }
}

static double loss_at(struct bench *b, double *where, double value)
{
    double kept = *where;
    *where = value;
    reference_forward(b->r, b->images, b->labels, b->position, BENCH_BATCH, 1);
    *where = kept;
    return b->r->loss;
}

/* Compares the reference's gradients with central differences of its loss. */
static void test_reference_gradients(void **state)
{
    const double h = 1e-6;
    for (int n = 0; n < N_TARGET_NETS; n++) {
        struct bench *b = bench_create(&target_nets[n]);
        struct reference *r = b->r;
        float *targets = make_targets(b);
        reference_forward(r, b->images, b->labels, b->position, BENCH_BATCH, 1);
        reference_backward(r);
        for (int id = 0; id < r->n_params; id++)
            for (int64_t j = 0; j < r->param_elems[id]; j += r->param_elems[id] / 7 + 1) {
                double *p = &r->param[id][j], at = *p;
                double slope = (loss_at(b, p, at + h) - loss_at(b, p, at - h)) / (2 * h);
                if (!(fabs(slope - r->grad[id][j]) <= 1e-7 + 1e-5 * fabs(slope)))
                    fail_msg("net '%s', parameter %d[%lld]: gradient %g, slope %g",
                             target_nets[n].name, id, (long long)j, r->grad[id][j], slope);
            }
        free(targets);
        bench_destroy(b);
    }
}

/* One-hot rows have the same results as labels. A later pass with labels uses the labels. A softmax
 * refuses targets. */
static void test_targets_and_labels(void **state)
{
    static const struct net squared = {"ten numbers", 1, 5, 5, build_few_squares};
    const float *row[BENCH_BATCH];
    float hot[BENCH_BATCH][10] = {{0}}, loss[2];
    struct bench *b = bench_create(&squared);
    int n_correct[2], last = b->r->n_layers - 1;
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    for (int i = 0; i < BENCH_BATCH; i++) {
        hot[i][b->labels[i]] = 1;
        row[i] = hot[i];
    }
    for (int k = 0; k < 2; k++) {
        assert_int_equal(
            backend->set_input(b->plan, b->image, k ? b->labels : NULL, b->position, BENCH_BATCH),
            ST_OK);
        if (k == 0)
            assert_int_equal(backend->set_targets(b->plan, row, BENCH_BATCH), ST_OK);
        for (int i = 0; i <= last; i++)
            assert_int_equal(backend->forward(b->plan, i, 1), ST_OK);
        assert_int_equal(backend->result(b->plan, &loss[k], &n_correct[k]), ST_OK);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_int_equal(n_correct[0], 0);
    assert_int_equal(backend->set_targets(b->plan, row, BENCH_BATCH - 1), ST_RANGE);
    bench_destroy(b);
    b = bench_create(&bench_nets[0]);
    assert_int_equal(bench_plan(b, 1, 0), ST_OK);
    assert_int_equal(backend->set_input(b->plan, b->image, NULL, NULL, BENCH_BATCH), ST_OK);
    assert_int_equal(backend->set_targets(b->plan, row, BENCH_BATCH), ST_UNSUPPORTED);
    bench_destroy(b);
}

int main(int argc, char **argv)
{
    int skip = bench_open(argc, argv);
    return skip ? skip : RUN_TESTS(test_reference_gradients, test_targets, test_targets_and_labels);
}
