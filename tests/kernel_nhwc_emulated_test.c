/* tests/kernel_nhwc_emulated_test.c - tests --gpu_tuning=nhwc: graphs of cuDNN compute convolutions
 * with channels last, together with bias and relu. Only engines that the precision and
 * `deterministic` allow may run. Nothing is transposed between convolutions; in bf16 the casts do
 * all transposes. A product that cuDNN does not offer, or cannot run, is computed as without the
 * tuning, with a log line. Needs the emulation (tests/emulation/dnn_graph.h), which counts graphs.
 * Argument: the folder of its library. */
#include "kernels/tuning.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "tests/emulation/dnn_graph.h"
#include "tests/kernel_bench.h"
#include "tests/skip.h"
#include <math.h>

enum { N_CONVS = 3, N_PRODUCTS = 3 * N_CONVS - 1, N_PARAMS = 8, MAX_VALUES = 1 << 14, FEW = 2 };

static void (*graphs_take)(struct emulation_graphs *out);
static void (*fault_set)(long long number);
static void (*fault_only)(const char *name);
static long long (*fault_calls)(void);

/* The first convolution has no gradient by the image, and the last one has no relu and filters of
 * 1x1. */
static void build(struct reference *r)
{
    reference_conv(r, 6, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_conv(r, 8, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 3, 2, 0);
    reference_conv(r, 5, 1, 1, 0);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}
static const struct net net = {"three convolutions", 3, 7, 9, build};

/* Result of a training step: counts of graphs and launches, the gradients of all parameters, and
 * the log. */
struct step {
    struct emulation_graphs graphs;
    long long n_launches; /* launches of Weir's own kernels */
    float grad[N_PARAMS][MAX_VALUES];
    int64_t n[N_PARAMS];
    size_t memory_bytes;
    char said[sizeof capture_text];
};

static enum status plan_make(struct bench *b, uint32_t tuning, enum backend_precision precision,
                             int deterministic, uint64_t limit)
{
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    cfg.tuning = tuning;
    cfg.precision = precision;
    cfg.deterministic = deterministic;
    cfg.memory_limit_bytes = limit;
    return backend->plan_create(&cfg, &b->plan);
}

static int pass(struct bench *b, int n)
{
    bench_forward(b, 0, n, 1);
    bench_backward(b);
    return 0;
}

/* Runs two steps of n samples, and returns the result of the second, because the libraries may
 * initialise themselves in the first. */
static struct step *step(uint32_t tuning, enum backend_precision precision, int deterministic,
                         int n)
{
    struct bench *b = bench_create(&net);
    struct step *s = calloc(1, sizeof *s);
    assert_non_null(s);
    assert_int_equal(b->r->n_params, N_PARAMS);
    capture_begin();
    enum status st = plan_make(b, tuning, precision, deterministic, 0);
    if (st == ST_OK)
        pass(b, n);
    graphs_take(&s->graphs);
    fault_only("a launch");
    fault_set(-1); /* counts the calls; none fails */
    if (st == ST_OK)
        pass(b, n);
    s->n_launches = fault_calls();
    fault_set(0);
    fault_only(NULL);
    capture_end();
    strcpy(s->said, capture_text);
    assert_int_equal(st, ST_OK);
    graphs_take(&s->graphs);
    s->memory_bytes = backend->plan_memory_bytes(b->plan);
    for (int k = 0; k < N_PARAMS; k++) {
        s->n[k] = b->r->param_elems[k];
        assert_true(s->n[k] <= MAX_VALUES);
        memcpy(s->grad[k], b->grads[k], (size_t)s->n[k] * sizeof(float));
    }
    bench_destroy(b);
    return s;
}

/* Compares gradients. tolerance 0: their bits must be equal. */
static void assert_same(const struct step *got, const struct step *want, double tolerance)
{
    for (int k = 0; k < N_PARAMS; k++) {
        double largest = 0, worst = 0;
        for (int64_t j = 0; j < want->n[k]; j++) {
            double error = fabs((double)got->grad[k][j] - (double)want->grad[k][j]);
            largest = fmax(largest, fabs((double)want->grad[k][j]));
            worst = error <= worst ? worst : error; /* keeps a NaN */
        }
        if (!(worst <= tolerance * largest) || largest <= 0)
            fail_msg("parameter %d: %g off, the largest value is %g", k, worst, largest);
    }
}

static int n_said(const struct step *s, const char *what)
{
    int n = 0;
    for (const char *at = s->said; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

static void assert_graphs(const struct step *s, enum emulation_engine engine)
{
    assert_int_equal(s->graphs.way[0], N_CONVS);
    assert_int_equal(s->graphs.way[1], N_CONVS);
    assert_int_equal(s->graphs.way[2], N_CONVS - 1);
    assert_int_equal(s->graphs.engine[engine], N_PRODUCTS);
    assert_int_equal(s->graphs.not_last, 0);
}

static void test_graphs_are_run_by_allowed_engines(void **state)
{
    static const enum emulation_engine engines[][2] = {
        [BACKEND_FP32] = {ENGINE_LOOSE, ENGINE_FIXED},
        [BACKEND_TF32] = {ENGINE_LOOSE_TC, ENGINE_TC},
        [BACKEND_BF16] = {ENGINE_LOOSE_TC, ENGINE_TC}};
    for (int precision = BACKEND_FP32; precision <= BACKEND_BF16; precision++)
        for (int fixed = 0; fixed < 2; fixed++)
            for (int n = FEW; n <= BENCH_BATCH; n += BENCH_BATCH - FEW) {
                struct step *plain = step(0, (enum backend_precision)precision, 1, n);
                struct step *s = step(TUNING_NHWC, (enum backend_precision)precision, fixed, n);
                assert_graphs(s, engines[precision][fixed]);
                assert_int_equal(s->graphs.with_bias, N_CONVS);
                assert_int_equal(s->graphs.with_relu, N_CONVS - 1);
                assert_string_equal(s->said, "");
                for (int k = 0; k < 3; k++)
                    assert_int_equal(plain->graphs.way[k], 0);
                assert_same(s, plain, precision == BACKEND_BF16 ? 0x1p-3 /* other maxima */ : 0);
                free(plain);
                free(s);
            }
}

/* Kernels transpose the image, the last output, the gradient by it, and all filters except the one
 * of 1x1. In bf16 the casts, which are needed anyway, transpose; only the casts of the biases are
 * new. Two launches that add biases are saved; without the tuning the pool's kernel adds the third
 * bias. */
static void test_what_is_transposed(void **state)
{
    enum { FORWARD = 1 + 2 + 1, BACKWARD = 1 + 1 /* dy, the image once more */ + 3 /* filters */ };
    for (int precision = BACKEND_FP32; precision <= BACKEND_BF16; precision++) {
        struct step *plain = step(0, (enum backend_precision)precision, 1, FEW);
        struct step *s = step(TUNING_NHWC, (enum backend_precision)precision, 1, FEW);
        int more = precision == BACKEND_BF16 ? N_CONVS /* the casts do it */ : FORWARD + BACKWARD;
        assert_int_equal(s->n_launches, plain->n_launches + more - 2);
        free(plain);
        free(s);
    }
}

static void test_inference(void **state)
{
    struct bench *b = bench_create(&net);
    struct backend_plan_config cfg = bench_config(b, 1, 1);
    struct emulation_graphs graphs;
    cfg.tuning = TUNING_NHWC;
    assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
    bench_check_pass(&net, b, BENCH_BATCH, 0);
    bench_check_pass(&net, b, FEW, 0);
    graphs_take(&graphs);
    assert_int_equal(graphs.with_bias, 2 * N_CONVS);
    assert_int_equal(graphs.way[1] + graphs.way[2], 0);
    bench_destroy(b);
}

/* Products that cuDNN does not offer. This test is the first: each log line appears once in a
 * program. */
static void test_what_is_not_offered(void **state)
{
    static const char *const none[] = {"none", "no_graph", "no_convolution", "no_padding"};
    struct step *plain = step(0, BACKEND_FP32, 1, BENCH_BATCH), *s;
    setenv("WEIR_EMULATED_GRAPH", "no_bias", 1);
    s = step(TUNING_NHWC, BACKEND_FP32, 1, BENCH_BATCH);
    assert_graphs(s, ENGINE_FIXED);
    assert_int_equal(s->graphs.with_bias, 0);
    assert_int_equal(n_said(s, "has no engine"), 1);
    assert_int_equal(n_said(s, "A separate CUDA kernel adds the bias"), 1);
    assert_same(s, plain, 0);
    free(s);
    for (size_t k = 0; k < sizeof none / sizeof *none; k++) {
        setenv("WEIR_EMULATED_GRAPH", none[k], 1);
        s = step(TUNING_NHWC, BACKEND_FP32, 1, BENCH_BATCH);
        for (int way = 0; way < 3; way++)
            assert_int_equal(s->graphs.way[way], 0);
        assert_int_equal(n_said(s, "has no engine"), k == 0 ? 3 : 0);
        assert_int_equal(n_said(s, "as without --gpu_tuning=nhwc"), k == 0 ? 3 : 0);
        assert_same(s, plain, 0);
        free(s);
    }
    unsetenv("WEIR_EMULATED_GRAPH");
    free(plain);
}

/* If an engine cannot run in the first step, the next engine runs. If no engine is left, the
 * product is computed as without the tuning. */
static void test_engines_that_cannot_be_run(void **state)
{
    struct step *plain = step(0, BACKEND_FP32, 1, BENCH_BATCH), *s;
    setenv("WEIR_EMULATED_GRAPH", "fails", 1);
    s = step(TUNING_NHWC, BACKEND_FP32, 1, BENCH_BATCH);
    assert_graphs(s, ENGINE_FIXED);
    assert_int_equal(n_said(s, "but cannot run it"), N_PRODUCTS);
    assert_int_equal(n_said(s, "The next proposed engine is used"), N_PRODUCTS);
    assert_same(s, plain, 0);
    free(s);
    setenv("WEIR_EMULATED_GRAPH", "all_fail", 1);
    s = step(TUNING_NHWC, BACKEND_FP32, 1, BENCH_BATCH);
    for (int way = 0; way < 3; way++)
        assert_int_equal(s->graphs.way[way], 0);
    assert_int_equal(n_said(s, "but cannot run it"), 2 * N_PRODUCTS); /* FIXED, then PLAIN */
    assert_int_equal(n_said(s, "No engine is left"), N_PRODUCTS);
    assert_same(s, plain, 0);
    free(s);
    unsetenv("WEIR_EMULATED_GRAPH");
    free(plain);
}

static int is_enough(struct bench *b, uint64_t limit)
{
    capture_begin();
    int fits = plan_make(b, TUNING_NHWC, BACKEND_FP32, 1, limit) == ST_OK;
    capture_end();
    backend->plan_destroy(b->plan);
    b->plan = NULL;
    return fits;
}

/* Under the lowest possible limit a plan has no workspace, so engines without a workspace run. */
static void test_no_workspace(void **state)
{
    struct bench *b = bench_create(&net);
    struct emulation_graphs graphs;
    uint64_t few = 0, enough = (uint64_t)64 << 20;
    assert_true(is_enough(b, enough));
    while (enough - few > 1) {
        uint64_t between = few + (enough - few) / 2;
        if (is_enough(b, between))
            enough = between;
        else
            few = between;
    }
    assert_int_equal(plan_make(b, TUNING_NHWC, BACKEND_FP32, 1, enough), ST_OK);
    graphs_take(&graphs);
    pass(b, BENCH_BATCH);
    graphs_take(&graphs);
    assert_int_equal(graphs.engine[ENGINE_PLAIN], N_PRODUCTS);
    bench_destroy(b);
}

/* An engine receives the workspace that it needs, even if the plan's usual one is smaller. */
static void test_a_large_workspace(void **state)
{
    struct step *usual = step(TUNING_NHWC, BACKEND_FP32, 1, FEW);
    setenv("WEIR_EMULATED_GRAPH", "wide", 1);
    struct step *wide = step(TUNING_NHWC, BACKEND_FP32, 1, FEW);
    unsetenv("WEIR_EMULATED_GRAPH");
    assert_graphs(wide, ENGINE_FIXED);
    assert_true(wide->memory_bytes >= usual->memory_bytes + EMULATION_WIDE / 4);
    assert_same(wide, usual, 0);
    free(usual);
    free(wide);
}

int main(int argc, char **argv)
{
    int status;
    void *so = emulated_open(argc > 1 ? argv[1] : WEIR_TEST_DIR, &backend, &status);
    if (so == NULL)
        return status;
    bench_tolerance = bench_tolerance_f32 = reference_tolerance("emulated");
    if (!emulated_look_up(so, "emulation_graphs_take", &graphs_take) ||
        !emulated_look_up(so, "emulation_fault_set", &fault_set) ||
        !emulated_look_up(so, "emulation_fault_only", &fault_only) ||
        !emulated_look_up(so, "emulation_fault_calls", &fault_calls))
        return 1;
    return RUN_TESTS(test_what_is_not_offered, test_graphs_are_run_by_allowed_engines,
                     test_what_is_transposed, test_inference, test_engines_that_cannot_be_run,
                     test_no_workspace, test_a_large_workspace);
}
