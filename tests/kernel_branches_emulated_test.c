/* tests/kernel_branches_emulated_test.c - tests gradients by parameters that are computed on a
 * second stream (kernels/tuning.h: branches). Their bits must be the same as on one stream, with
 * CUDA graphs and without. Also tests the number of events and waits, and a plan without memory for
 * a second stream. Argument: the folder of the emulation's library. Needs the emulation
 * (tests/emulation), which counts the parallel nodes of graphs. Its order of execution
 * (WEIR_EMULATION_ORDER) reveals missing waits. */
#include "kernels/tuning.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "tests/kernel_bench.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 20 << 20 }; /* bytes: enough for a plan, but not for a second stream */

static int (*branch_nodes)(void);
static void (*fault_set)(long long number);
static void (*fault_only)(const char *name);
static long long (*fault_calls)(void);

/* Both streams sum the gradient of a bias in two runs (bias_grad.cu) at the same time. The first
 * convolution has no gradient by its input, so its work stays on the first stream. */
static void build_runs(struct reference *r)
{
    reference_conv(r, 2, 3, 1, -1);
    reference_conv(r, 2, 3, 1, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}
static const struct net runs = {"sums in two runs", 1, 32, 32, build_runs};

/* The net has gradients that move from buffer to buffer, gradients of two layers that share a
 * buffer until one of the layers adds to it, and sums of gradients. */
static void build_readers(struct reference *r)
{
    reference_conv(r, 4, 3, 1, -1);
    int skip = reference_last(r);
    reference_conv(r, 4, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_conv(r, 4, 3, 1, -1);
    reference_join(r, LAYER_ADD, 2, (int[]){reference_last(r), skip});
    skip = reference_last(r);
    reference_conv(r, 4, 2, 1, -1); /* padded more on one side */
    reference_join(r, LAYER_CONCAT, 2, (int[]){reference_last(r), skip});
    reference_conv(r, 3, 3, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 20);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}
static const struct net readers = {"many readers", 1, 8, 8, build_readers};

static struct bench *open_plan(const struct net *net, uint32_t tuning,
                               enum backend_precision precision, uint64_t limit)
{
    struct bench *b = bench_create(net);
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    cfg.tuning = tuning;
    cfg.precision = precision;
    cfg.memory_limit_bytes = limit;
    assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
    return b;
}

/* Counts the layers with gradients both by their parameters and by their inputs. */
static int n_branches(const struct bench *b)
{
    int n = 0, trained[REFERENCE_MAX_LAYERS] = {0};
    for (int i = 0; i < b->r->n_layers; i++) {
        const struct layer *l = &b->r->layers[i];
        for (int k = 0; k < l->n_inputs; k++)
            trained[i] |= l->input[k] >= 0 && trained[l->input[k]];
        n += trained[i] && (l->kind == LAYER_CONV2D || l->kind == LAYER_DENSE);
        trained[i] |= l->n_params > 0;
    }
    return n;
}

/* Runs the same step as bench_step_of, but waits for the first stream before any gradient, so that
 * the other stream is late. */
static struct bench_outcome step_of_first(struct bench *b, int round, int n)
{
    struct bench_outcome o;
    int last = b->r->n_layers - 1;
    float *output = calloc((size_t)(n * shape_elems(&b->r->layers[last].out)), sizeof *output);
    assert_non_null(output);
    bench_params(b, round);
    for (int k = 0; k < b->r->n_params; k++)
        assert_int_equal(backend->load_param(b->plan, k), ST_OK);
    bench_forward(b, 0, n, 1);
    for (int i = last; i >= 0; i--)
        assert_int_equal(backend->backward(b->plan, i), ST_OK);
    assert_int_equal(backend->read_output(b->plan, last, output), ST_OK);
    assert_int_equal(backend->result(b->plan, &o.loss, &o.n_correct), ST_OK);
    for (int i = last; i >= 0; i--)
        assert_int_equal(backend->wait_grads(b->plan, i), ST_OK);
    free(output);
    return o;
}

static void check_net(const struct net *net, uint32_t tuning, enum backend_precision precision)
{
    static const int sizes[] = {BENCH_BATCH, BENCH_BATCH, BENCH_BATCH, 3, BENCH_BATCH};
    struct bench *a = open_plan(net, tuning, precision, 0);
    struct bench *b = open_plan(net, tuning | TUNING_BRANCHES, precision, 0);
    assert_int_equal(backend->plan_memory_bytes(a->plan) < backend->plan_memory_bytes(b->plan),
                     n_branches(b) > 0);
    branch_nodes();
    for (int k = 0; k < (int)(sizeof sizes / sizeof *sizes); k++) {
        struct bench_outcome of_a = bench_step_of(a, k, sizes[k]);
        struct bench_outcome of_b =
            k % 2 == 0 ? bench_step_of(b, k, sizes[k]) : step_of_first(b, k, sizes[k]);
        bench_check_same(net, a, of_a, b, of_b);
    }
    /* three of the steps run as graphs; each branch has two nodes: a product, and the signal that
     * gradients are ready */
    int nodes = branch_nodes(), least = tuning & TUNING_CAPTURE ? 3 * 2 * n_branches(b) : 0;
    if (nodes < least || (least == 0 && nodes > 0))
        fail_msg("net '%s': graphs have %d nodes in branches", net->name, nodes);
    bench_destroy(a);
    bench_destroy(b);
}

static void test_same_bits(void **state)
{
    static const uint32_t others[] = {0, TUNING_CAPTURE, TUNING_EPILOGUES | TUNING_CAPTURE,
                                      TUNING_NHWC, TUNING_NHWC | TUNING_CAPTURE};
    for (size_t t = 0; t < sizeof others / sizeof *others; t++) {
        for (int k = 0; k < bench_n_nets && t < 2; k++)
            check_net(&bench_nets[k], others[t], BACKEND_FP32);
        check_net(&runs, others[t], BACKEND_FP32);
        check_net(&readers, others[t], BACKEND_FP32);
        check_net(&readers, others[t], BACKEND_BF16);
        check_net(&bench_nets[BENCH_DEEP], others[t], BACKEND_BF16);
    }
}

static long long calls_of(struct bench *b, const char *name)
{
    fault_only(name);
    fault_set(LLONG_MAX);
    bench_step_of(b, 0, BENCH_BATCH);
    long long calls = fault_calls();
    fault_set(0);
    fault_only(NULL);
    return calls;
}

/* A plan with branches records two events for each layer that has a branch. It waits at each fork,
 * before it reuses a buffer if it has not waited for a later branch, and at the end. */
static void test_calls(void **state)
{
    const struct net *net = &bench_nets[BENCH_DEEP];
    struct bench *a = open_plan(net, 0, BACKEND_FP32, 0);
    struct bench *b = open_plan(net, TUNING_BRANCHES, BACKEND_FP32, 0);
    int n = n_branches(b);
    assert_int_equal(n, 3);
    assert_int_equal(calls_of(b, "cudaEventRecord") - calls_of(a, "cudaEventRecord"), 2 * n);
    long long waits = calls_of(b, "cudaStreamWaitEvent") - calls_of(a, "cudaStreamWaitEvent");
    assert_in_range(waits, n + 1, 2 * n);
    bench_destroy(a);
    bench_destroy(b);
}

/* One log line reports the missing memory for a second stream, and the results are the same. */
static void test_no_memory(void **state)
{
    const struct net *net = &bench_nets[BENCH_DEEP];
    struct bench *a = open_plan(net, 0, BACKEND_FP32, SMALL);
    struct bench *b = CAPTURE(open_plan(net, TUNING_BRANCHES, BACKEND_FP32, SMALL));
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "--gpu_tuning=branches: "));
    assert_int_equal(backend->plan_memory_bytes(a->plan), backend->plan_memory_bytes(b->plan));
    assert_int_equal(calls_of(b, "cudaEventRecord"), calls_of(a, "cudaEventRecord"));
    struct bench_outcome of_a = bench_step_of(a, 1, BENCH_BATCH);
    bench_check_same(net, a, of_a, b, bench_step_of(b, 1, BENCH_BATCH));
    bench_destroy(a);
    bench_destroy(b);
}

int main(int argc, char **argv)
{
    int status;
    void *so = emulated_open(argc > 1 ? argv[1] : WEIR_TEST_DIR, &backend, &status);
    if (so == NULL)
        return status;
    bench_tolerance = bench_tolerance_f32 = reference_tolerance("emulated");
    if (!emulated_look_up(so, "emulation_branch_nodes", &branch_nodes) ||
        !emulated_look_up(so, "emulation_fault_set", &fault_set) ||
        !emulated_look_up(so, "emulation_fault_only", &fault_only) ||
        !emulated_look_up(so, "emulation_fault_calls", &fault_calls))
        return 1;
    return RUN_TESTS(test_same_bits, test_calls, test_no_memory);
}
