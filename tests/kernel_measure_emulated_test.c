/* tests/kernel_measure_emulated_test.c - tests the tuning `measure` of the CUDA backend. cuDNN
 * times the algorithms for each product of a convolution one time; from then on the fastest allowed
 * algorithm runs. The values must be the same as without the tuning. If no algorithm can be timed,
 * the proposed one runs. Needs the emulation (tests/emulation), which counts timings and runs; its
 * timings prefer the algorithm FIXED to the proposed one. Arguments: the folder of its library. */
#include "kernels/tuning.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "tests/kernel_bench.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Products of two convolutions, the first of which has no gradient by its input. */
enum { N_PRODUCTS = 5, MAX_VALUES = 1 << 14 };

static void (*conv_counts)(int *timings, int *runs, int *fixed_runs);
static void (*fault_set)(long long number);
static void (*fault_only)(const char *name);
static const char *(*fault_name)(void);

static void build(struct reference *r)
{
    reference_conv(r, 6, 3, 2, -1); /* padded more on one side */
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 1, -1);
    reference_conv(r, 7, 3, 1, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}
static const struct net net = {"two convolutions", 3, 10, 10, build};

/* Calls and results of a plan's passes. */
struct seen {
    int timings, runs, fixed_runs; /* counts of all passes */
    int first_timings;             /* count of the first pass */
    float value[MAX_VALUES];
    int n;
};

static struct backend_plan_config config(const struct bench *b, uint32_t tuning)
{
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    cfg.tuning = tuning;
    cfg.deterministic = 0;
    return cfg;
}

/* Runs two passes of the whole batch and one of some samples. */
static void passes(struct bench *b, const struct backend_plan_config *cfg, struct seen *seen)
{
    static const int size[] = {BENCH_BATCH, BENCH_BATCH, 3};
    int before[3], after[3];
    memset(seen, 0, sizeof *seen);
    conv_counts(&before[0], &before[1], &before[2]);
    assert_int_equal(backend->plan_create(cfg, &b->plan), ST_OK);
    for (int pass = 0; pass < 3; pass++) {
        bench_forward(b, 0, size[pass], 1);
        bench_backward(b);
        for (int k = 0; k < b->r->n_params; k++)
            for (int64_t j = 0; j < b->r->param_elems[k]; j++) {
                assert_true(seen->n < MAX_VALUES);
                seen->value[seen->n++] = b->grads[k][j];
            }
        conv_counts(&after[0], &after[1], &after[2]);
        if (pass == 0)
            seen->first_timings = after[0] - before[0];
    }
    backend->plan_destroy(b->plan);
    b->plan = NULL;
    seen->timings = after[0] - before[0];
    seen->runs = after[1] - before[1];
    seen->fixed_runs = after[2] - before[2];
    assert_int_equal(seen->runs, 3 * N_PRODUCTS);
}

static void assert_same_values(const struct seen *a, const struct seen *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->value, b->value, (size_t)a->n * sizeof *a->value);
}

/* Computes the values without the tuning: nothing is timed, and the proposed algorithms run. */
static void plain(struct bench *b, enum backend_precision precision, struct seen *seen)
{
    struct backend_plan_config cfg = config(b, 0);
    cfg.precision = precision;
    passes(b, &cfg, seen);
    assert_int_equal(seen->timings, 0);
    assert_int_equal(seen->fixed_runs, 0);
}

static void test_the_fastest_that_is_allowed_is_run(void **state)
{
    struct bench *b = bench_create(&net);
    struct seen want, got;
    for (int precision = BACKEND_FP32; precision <= BACKEND_BF16; precision++) {
        struct backend_plan_config cfg = config(b, TUNING_MEASURE);
        cfg.precision = (enum backend_precision)precision;
        plain(b, cfg.precision, &want);
        passes(b, &cfg, &got);
        assert_int_equal(got.first_timings, N_PRODUCTS);
        assert_int_equal(got.timings, 2 * N_PRODUCTS); /* products of two sizes */
        assert_int_equal(got.fixed_runs, got.runs);
        assert_same_values(&got, &want);
    }
    bench_destroy(b);
}

static void test_inference_times_forward_alone(void **state)
{
    struct bench *b = bench_create(&net);
    struct backend_plan_config cfg = config(b, TUNING_MEASURE);
    int before, after, runs, fixed;
    cfg.inference_only = 1;
    conv_counts(&before, &runs, &fixed);
    assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
    for (int k = 0; k < 2; k++)
        bench_check_pass(&net, b, BENCH_BATCH, 0);
    conv_counts(&after, &runs, &fixed);
    assert_int_equal(after - before, 2);
    bench_destroy(b);
}

static void test_deterministic_times_nothing(void **state)
{
    struct bench *b = bench_create(&net);
    struct seen off, on;
    uint64_t bytes[2];
    for (int tuned = 0; tuned < 2; tuned++) {
        struct backend_plan_config cfg = config(b, tuned ? TUNING_MEASURE : 0);
        cfg.deterministic = 1;
        passes(b, &cfg, tuned ? &on : &off);
        assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
        bytes[tuned] = backend->plan_memory_bytes(b->plan);
        backend->plan_destroy(b->plan);
        b->plan = NULL;
    }
    assert_int_equal(on.timings, 0);
    assert_int_equal(bytes[0], bytes[1]);
    assert_same_values(&on, &off);
    bench_destroy(b);
}

/* If one of the timings fails, the proposed algorithm computes that product. */
static void test_a_timing_that_fails(void **state)
{
    static const char *const names[] = {"cudnnFindConvolutionForwardAlgorithmEx",
                                        "cudnnFindConvolutionBackwardFilterAlgorithmEx",
                                        "cudnnFindConvolutionBackwardDataAlgorithmEx"};
    struct bench *b = bench_create(&net);
    struct backend_plan_config cfg = config(b, TUNING_MEASURE);
    struct seen want, got;
    for (int precision = BACKEND_FP32; precision <= BACKEND_BF16; precision++) {
        cfg.precision = (enum backend_precision)precision;
        plain(b, cfg.precision, &want);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            fault_only(names[k]);
            fault_set(1);
            passes(b, &cfg, &got);
            assert_string_equal(fault_name(), names[k]);
            fault_set(0);
            fault_only(NULL);
            assert_int_equal(got.timings, 2 * N_PRODUCTS - 1);
            assert_int_equal(got.fixed_runs, got.runs - 2); /* runs of the two whole batches */
            assert_same_values(&got, &want);
        }
    }
    bench_destroy(b);
}

/* Either no algorithm could be timed, or the fastest one fails when it runs. */
static void test_what_was_timed_cannot_be_run(void **state)
{
    static const char *const how[] = {"untimed", "fails"};
    struct bench *b = bench_create(&net);
    struct backend_plan_config cfg = config(b, TUNING_MEASURE);
    struct seen want, got;
    for (int precision = BACKEND_FP32; precision <= BACKEND_BF16; precision++) {
        cfg.precision = (enum backend_precision)precision;
        plain(b, cfg.precision, &want);
        for (int k = 0; k < 2; k++) {
            setenv("WEIR_EMULATED_CONV", how[k], 1);
            passes(b, &cfg, &got);
            unsetenv("WEIR_EMULATED_CONV");
            assert_int_equal(got.timings, 2 * N_PRODUCTS);
            assert_int_equal(got.fixed_runs, k == 0 ? 0 : got.runs);
            assert_same_values(&got, &want);
        }
    }
    bench_destroy(b);
}

static uint64_t bytes_within(struct bench *b, struct backend_plan_config *cfg, uint64_t limit)
{
    uint64_t bytes = 0;
    cfg->memory_limit_bytes = limit;
    if (backend->plan_create(cfg, &b->plan) == ST_OK)
        bytes = backend->plan_memory_bytes(b->plan);
    backend->plan_destroy(b->plan);
    b->plan = NULL;
    return bytes;
}

/* Under the lowest possible limit a plan has no workspace. Algorithms that need a workspace are
 * neither timed nor run; the emulation would refuse them. */
static void test_no_workspace(void **state)
{
    struct bench *b = bench_create(&net);
    struct backend_plan_config cfg = config(b, TUNING_MEASURE);
    struct seen want, got;
    uint64_t few = 0, enough = bytes_within(b, &cfg, 0);
    plain(b, BACKEND_FP32, &want);
    while (enough - few > 1) {
        uint64_t between = few + (enough - few) / 2;
        if (bytes_within(b, &cfg, between) > 0)
            enough = between;
        else
            few = between;
    }
    cfg.memory_limit_bytes = enough;
    passes(b, &cfg, &got);
    assert_int_equal(got.timings, 2 * N_PRODUCTS);
    assert_int_equal(got.fixed_runs, 0);
    assert_same_values(&got, &want);
    bench_destroy(b);
}

int main(int argc, char **argv)
{
    int status;
    void *so = emulated_open(argc > 1 ? argv[1] : WEIR_TEST_DIR, &backend, &status);
    if (so == NULL)
        return status;
    if (!emulated_look_up(so, "emulation_conv_counts", &conv_counts) ||
        !emulated_look_up(so, "emulation_fault_set", &fault_set) ||
        !emulated_look_up(so, "emulation_fault_only", &fault_only) ||
        !emulated_look_up(so, "emulation_fault_name", &fault_name))
        return 1;
    return RUN_TESTS(test_the_fastest_that_is_allowed_is_run, test_inference_times_forward_alone,
                     test_deterministic_times_nothing, test_a_timing_that_fails,
                     test_what_was_timed_cannot_be_run, test_no_workspace);
}
