/* tests/kernel_bench.c - see the header. */
#include "tests/kernel_bench.h"
#include "base/rng.h"
#include "tests/check.h"
#include "tests/kernel_tuning.h"
#include "tests/skip.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct backend *backend;
double bench_tolerance, bench_tolerance_f32;
static const double floor_f32 = 1e-6;
static double terms_rounding; /* rounding of the terms of the compared gradient */

/* ---- a net, its reference, a plan and a batch ---- */

static float noise(uint64_t round, uint64_t index, uint64_t counter)
{
    return rng_uniform(rng_key(BENCH_SEED + round, RNG_TEST, index), counter) * 2 - 1;
}

/* Sets the parameters of the plan and of the reference; each `round` has other values. */
void bench_params(struct bench *b, int round)
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
    for (int s = 0; s < BENCH_BATCH; s++) {
        b->image[s] = b->images + s * b->pixels;
        b->labels[s] = (uint8_t)rng_below(rng_key(BENCH_SEED, RNG_TEST, 500), (uint64_t)s, 10);
        b->position[s] = 1000003u * (uint64_t)s + 17;
        for (int64_t k = 0; k < b->pixels; k++)
            b->images[s * b->pixels + k] =
                (uint8_t)rng_u64(rng_key(BENCH_SEED, RNG_TEST, 501 + (uint64_t)s), (uint64_t)k);
    }
}

struct backend_plan_config bench_config(const struct bench *b, int n_threads, int inference_only)
{
    return (struct backend_plan_config){
        .layers = b->r->layers,
        .n_layers = b->r->n_layers,
        .batch = BENCH_BATCH,
        .n_threads = n_threads,
        .n_params = b->r->n_params,
        .params = (const float *const *)b->params,
        .grads = b->grads,
        .seed = BENCH_SEED,
        .inference_only = inference_only,
        .deterministic = test_deterministic(),
        .tuning = test_tuning(),
        .parts = backend->parts != NULL ? &b->parts : NULL,
    };
}

enum status bench_plan(struct bench *b, int n_threads, int inference_only)
{
    struct backend_plan_config cfg = bench_config(b, n_threads, inference_only);
    return backend->plan_create(&cfg, &b->plan);
}

struct bench *bench_create(const struct net *net)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->r = reference_create(net->c, net->h, net->w, BENCH_BATCH, BENCH_SEED);
    net->build(b->r);
    /* no part begins where a page begins, and most parameters have several parts */
    b->parts = (struct parts_config){.elems = 250, .largest_grad = 1e30f};
    b->pixels = (int64_t)net->c * net->h * net->w;
    b->images = malloc((size_t)(BENCH_BATCH * b->pixels));
    assert_non_null(b->images);
    for (int k = 0; k < b->r->n_params; k++) {
        /* 64 more floats, so that no array shares a page with the next array */
        b->params[k] = calloc((size_t)b->r->param_elems[k] + 64, sizeof(float));
        b->grads[k] = calloc((size_t)b->r->param_elems[k] + 64, sizeof(float));
        assert_true(b->params[k] != NULL && b->grads[k] != NULL);
    }
    bench_batch(b);
    bench_params(b, 0);
    return b;
}

void bench_destroy(struct bench *b)
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

void bench_forward(struct bench *b, int first, int n, int train)
{
    assert_int_equal(
        backend->set_input(b->plan, b->image + first, b->labels + first, b->position + first, n),
        ST_OK);
    for (int i = 0; i < b->r->n_layers; i++)
        assert_int_equal(backend->forward(b->plan, i, train), ST_OK);
}

void bench_wait_parts(struct bench *b, int layer)
{
    const struct layer *l = &b->r->layers[layer];
    bool suspect = true;
    if (l->n_params == 0)
        return;
    assert_int_equal(backend->parts->check(b->plan, layer, &suspect), ST_OK);
    assert_false(suspect);
    for (int k = 0; k < l->n_params; k++)
        for (int64_t i = 0; i * b->parts.elems < b->r->param_elems[l->param[k]]; i++)
            assert_int_equal(backend->parts->wait(b->plan, l->param[k], i), ST_OK);
}

static void wait_grads(struct bench *b, int layer, int by_parts)
{
    if (by_parts && backend->parts != NULL)
        bench_wait_parts(b, layer);
    else if (backend->wait_grads != NULL)
        assert_int_equal(backend->wait_grads(b->plan, layer), ST_OK);
}

/* Loads the layer's parameters, by parts from the last one to the first. */
static void load_params(struct bench *b, int layer, int by_parts)
{
    const struct layer *l = &b->r->layers[layer];
    for (int k = 0; k < l->n_params; k++) {
        int64_t n = (b->r->param_elems[l->param[k]] + b->parts.elems - 1) / b->parts.elems;
        for (int64_t i = n - 1; by_parts && backend->parts != NULL && i >= 0; i--)
            assert_int_equal(backend->parts->load(b->plan, l->param[k], i), ST_OK);
        if (!by_parts || backend->parts == NULL)
            assert_int_equal(backend->load_param(b->plan, l->param[k]), ST_OK);
    }
}

void bench_backward(struct bench *b)
{
    for (int i = b->r->n_layers - 1; i >= 0; i--)
        assert_int_equal(backend->backward(b->plan, i), ST_OK);
    for (int i = b->r->n_layers - 1; i >= 0; i--)
        wait_grads(b, i, 1);
}

struct bench_outcome bench_step(struct bench *b, int round)
{
    struct bench_outcome o;
    int n_layers = b->r->n_layers, lead = round % 2 ? 1 : n_layers;
    bench_params(b, round);
    for (int i = 0; i < n_layers; i++) {
        load_params(b, i, round % 2 == 0);
        assert_int_equal(backend->forward(b->plan, i, 1), ST_OK);
    }
    for (int i = n_layers - 1; i >= -lead; i--) {
        if (i >= 0)
            assert_int_equal(backend->backward(b->plan, i), ST_OK);
        if (i == 0)
            assert_int_equal(backend->result(b->plan, &o.loss, &o.n_correct), ST_OK);
        if (i + lead < n_layers)
            wait_grads(b, i + lead, round % 2 == 0);
    }
    return o;
}

struct bench_outcome bench_step_of(struct bench *b, int round, int n)
{
    assert_int_equal(backend->set_input(b->plan, b->image, b->labels, b->position, n), ST_OK);
    return bench_step(b, round);
}

void bench_check_same(const struct net *net, const struct bench *a, struct bench_outcome of_a,
                      const struct bench *b, struct bench_outcome of_b)
{
    if (memcmp(&of_a.loss, &of_b.loss, sizeof of_a.loss) != 0 || of_a.n_correct != of_b.n_correct)
        fail_msg("net '%s': the loss is %g and not %g, the hits %d and not %d", net->name,
                 (double)of_b.loss, (double)of_a.loss, of_b.n_correct, of_a.n_correct);
    for (int k = 0; k < a->r->n_params; k++)
        if (memcmp(a->grads[k], b->grads[k], (size_t)a->r->param_elems[k] * sizeof(float)) != 0)
            fail_msg("net '%s': gradient %d is another", net->name, k);
}

void bench_compare(const struct net *net, const char *what, int index, const float *got,
                   const double *want, int64_t n)
{
    double largest = 0, worst = 0;
    for (int64_t k = 0; k < n; k++) {
        double error = fabs((double)got[k] - want[k]);
        largest = fmax(largest, fabs(want[k]));
        worst = error <= worst ? worst : error; /* keeps a NaN */
    }
    if (!(worst <= bench_tolerance * largest + floor_f32 + terms_rounding))
        fail_msg("net '%s', %s %d: off by %g, largest value %g", net->name, what, index, worst,
                 largest);
}

/* Each element of a bias's gradient is a sum. Returns the largest of the sums of the absolute
 * terms. */
static double bias_terms(const struct reference *r, int layer)
{
    int64_t n = shape_elems(&r->layers[layer].out), units = r->layers[layer].out.dim[0];
    double largest = 0;
    for (int64_t unit = 0; unit < units; unit++) {
        double sum = 0;
        for (int64_t k = 0; k < r->n * n; k++)
            sum += k % n / (n / units) == unit ? fabs(r->d[layer][k]) : 0;
        largest = fmax(largest, sum);
    }
    return largest;
}

/* A bias before a batch norm has the gradient 0: its terms cancel. The remainder in float32 is as
 * large as the rounding of the terms, not of their sum. */
static double rounding_of_terms(const struct reference *r, int param)
{
    for (int i = 0; i < r->n_layers; i++) {
        const struct layer *l = &r->layers[i];
        if (l->kind == LAYER_CONV2D && layer_has_bias(l) && l->param[1] == param)
            return 0x1p-24 * bias_terms(r, i);
    }
    return 0;
}

/* Returns the only layer that reads the output of i; -1: no reader, or several. */
static int only_reader(const struct reference *r, int i)
{
    int reader = -1, n = 0;
    for (int k = i + 1; k < r->n_layers; k++)
        for (int j = 0; j < r->layers[k].n_inputs; j++)
            if (r->layers[k].input[j] == i) {
                reader = k;
                n++;
            }
    return n == 1 ? reader : -1;
}

/* Returns true if the backend keeps the output of layer i. A relu may overwrite its input if no
 * other layer reads it; a flatten between them changes nothing. A max pool that is the only reader
 * of a convolution's relu may keep only the maxima. */
static int output_is_readable(const struct reference *r, int i)
{
    int reader = only_reader(r, i), from = r->layers[i].input[0];
    if (r->layers[i].kind == LAYER_RELU && from >= 0 && r->layers[from].kind == LAYER_CONV2D &&
        reader >= 0 && r->layers[reader].kind == LAYER_MAX_POOL)
        return 0;
    while (reader >= 0 && r->layers[reader].kind == LAYER_FLATTEN)
        reader = only_reader(r, reader);
    return reader < 0 || r->layers[reader].kind != LAYER_RELU;
}

void bench_compare_outputs(const struct net *net, struct bench *b)
{
    for (int i = 0; i < b->r->n_layers && backend->read_output != NULL; i++) {
        int64_t n = b->r->n * shape_elems(&b->r->layers[i].out);
        if (!output_is_readable(b->r, i))
            continue;
        float *got = malloc((size_t)n * sizeof *got);
        assert_non_null(got);
        assert_int_equal(backend->read_output(b->plan, i, got), ST_OK);
        bench_compare(net, "output of layer", i, got, b->r->y[i], n);
        free(got);
    }
}

void bench_check_pass(const struct net *net, struct bench *b, int n, int train)
{
    float loss;
    int n_correct;
    reference_forward(b->r, b->images, b->labels, b->position, n, train);
    bench_forward(b, 0, n, train);
    assert_int_equal(backend->result(b->plan, &loss, &n_correct), ST_OK);
    bench_compare_outputs(net, b);
    bench_compare(net, "loss", 0, &loss, &b->r->loss, 1);
    assert_int_equal(n_correct, b->r->n_correct);
    if (!train)
        return;
    for (int k = 0; k < b->r->n_params; k++)
        for (int64_t j = 0; j < b->r->param_elems[k]; j++)
            b->grads[k][j] = NAN; /* all must be written */
    reference_backward(b->r);
    bench_backward(b);
    for (int k = 0; k < b->r->n_params; k++) {
        terms_rounding = rounding_of_terms(b->r, k);
        bench_compare(net, "gradient of parameter", k, b->grads[k], b->r->grad[k],
                      b->r->param_elems[k]);
    }
    terms_rounding = 0;
}

void bench_check_net(const struct net *net, int n_threads)
{
    static const int sizes[] = {BENCH_BATCH, 5, BENCH_BATCH, 1, 5};
    struct bench *b = bench_create(net);
    assert_int_equal(bench_plan(b, n_threads, 0), ST_OK);
    assert_true(backend->plan_memory_bytes(b->plan) > 0);
    for (int round = 0; round < 2; round++) {
        bench_params(b, round); /* the second round must use the new values */
        for (int k = 0; k < b->r->n_params; k++)
            assert_int_equal(backend->load_param(b->plan, k), ST_OK);
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            for (int train = 0; train < 2; train++)
                bench_check_pass(net, b, sizes[k], train);
    }
    bench_destroy(b);
}

int bench_open(int argc, char **argv)
{
    const char *name = "cpu";
    /* Threads that spin for one another starve on a busy machine. OpenMP reads this variable when
     * it is loaded. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    if (getenv("WEIR_TEST_BACKEND") != NULL)
        name = getenv("WEIR_TEST_BACKEND");
    if (argc > 1)
        name = argv[1];
    const char *dir = argc > 2 ? argv[2] : WEIR_TEST_BACKEND_DIR;
    if (backend_open(name, dir, &backend) != ST_OK) {
        int why = skip_program("backend '%s' is not in this build", name);
        return argc > 1 || getenv("WEIR_TEST_BACKEND") != NULL ? 1 : why;
    }
    bench_tolerance = bench_tolerance_f32 = reference_tolerance(name);
    if (backend->n_devices() == 0)
        return skip_program("backend '%s' (%s) has no device here", name, backend->description);
    if (backend->set_output == NULL)
        bench_n_nets = BENCH_N_CHAINS;
    return 0;
}
