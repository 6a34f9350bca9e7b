/* tests/kernel_capture_emulated_test.c - tests layers that run as CUDA graphs (kernels/tuning.h:
 * capture). Their bits must be the same as those of layers that run one by one. Also tests the
 * number of remaining calls, and captures that fail or are out of date. Arguments: the folder of
 * the emulation's library. Needs the emulation (tests/emulation), which counts the calls. */
#include "kernels/tuning.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "tests/kernel_bench.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLASSES = 10 };
static void (*fault_set)(long long number);
static void (*fault_only)(const char *name);
static const char *(*fault_name)(void);
static long long (*fault_calls)(void);

/* Creates a plan of the net, with rounded gradients on request. part_elems 0: the bench's. */
static struct bench *open_parts(const struct net *net, uint32_t tuning, uint16_t **grads16,
                                int64_t part_elems)
{
    struct bench *b = bench_create(net);
    if (part_elems > 0)
        b->parts.elems = part_elems;
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    for (int k = 0; grads16 != NULL && k < b->r->n_params; k++)
        grads16[k] = (uint16_t *)b->grads[k];
    cfg.grads16 = grads16;
    cfg.grads_dtype = DTYPE_BF16;
    cfg.tuning = tuning;
    assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
    return b;
}

static struct bench *open_plan(const struct net *net, uint32_t tuning, uint16_t **grads16)
{
    return open_parts(net, tuning, grads16, 0);
}

/* Runs a pass without training, and one that is abandoned half way. */
static void disturb(struct bench *b)
{
    float loss;
    int n_correct;
    bench_forward(b, 0, BENCH_BATCH, 0);
    assert_int_equal(backend->result(b->plan, &loss, &n_correct), ST_OK);
    assert_int_equal(backend->set_input(b->plan, b->image, b->labels, b->position, BENCH_BATCH),
                     ST_OK);
    for (int i = 0; i < b->r->n_layers / 2; i++)
        assert_int_equal(backend->forward(b->plan, i, 1), ST_OK);
}

static void check_net(const struct net *net, uint16_t **grads_a, uint16_t **grads_b)
{
    static const int sizes[] = {BENCH_BATCH, BENCH_BATCH, BENCH_BATCH, 3, BENCH_BATCH, 3};
    struct bench *a = open_plan(net, 0, grads_a), *b = open_plan(net, TUNING_CAPTURE, grads_b);
    for (int k = 0; k < (int)(sizeof sizes / sizeof *sizes); k++) {
        struct bench_outcome of_a = bench_step_of(a, k, sizes[k]),
                             of_b = bench_step_of(b, k, sizes[k]);
        bench_check_same(net, a, of_a, b, of_b);
        disturb(b);
    }
    bench_destroy(a);
    bench_destroy(b);
}

static void test_same_bits(void **state)
{
    uint16_t *grads[2][REFERENCE_MAX_PARAMS];
    for (int k = 0; k < bench_n_nets; k++)
        check_net(&bench_nets[k], NULL, NULL);
    check_net(&bench_nets[BENCH_NORM], grads[0], grads[1]);
}

/* Returns the number of calls of this name in a step; NULL: of all names that can fail. */
static long long calls_of(struct bench *b, const char *name, int n)
{
    fault_only(name);
    fault_set(LLONG_MAX);
    bench_step_of(b, 0, n);
    long long calls = fault_calls();
    fault_set(0);
    fault_only(NULL);
    return calls;
}

/* Returns the largest number of graphs: one for each layer with parameters, and one for the layers
 * before the first of them. */
static int most_graphs(const struct bench *b)
{
    int n = 1;
    for (int i = 0; i < b->r->n_layers; i++)
        n += b->r->layers[i].n_params > 0;
    return n;
}

static void test_calls(void **state)
{
    enum { WHOLE = 1 << 20 }; /* elements of a part: each parameter is copied by one call */
    const struct net *net = &bench_nets[BENCH_DEEP];
    struct bench *a = open_parts(net, 0, NULL, WHOLE),
                 *b = open_parts(net, TUNING_CAPTURE, NULL, WHOLE);
    assert_int_equal(calls_of(b, "cudaGraphLaunch", BENCH_BATCH), 0); /* the first step */
    bench_step_of(b, 0, BENCH_BATCH);
    bench_step_of(a, 0, BENCH_BATCH);
    long long graphs = calls_of(b, "cudaGraphLaunch", BENCH_BATCH);
    assert_in_range(graphs, 2, most_graphs(b) + 1);
    assert_int_equal(calls_of(b, "cudaStreamBeginCapture", BENCH_BATCH), 0);
    assert_int_equal(calls_of(b, "a launch", BENCH_BATCH), 1); /* the launch for the images */
    assert_true(calls_of(a, "a launch", BENCH_BATCH) > 2 * graphs);
    long long all_a = calls_of(a, NULL, BENCH_BATCH), all_b = calls_of(b, NULL, BENCH_BATCH);
    print_message("%lld calls a step, %lld with graphs, %lld of which launch one\n", all_a, all_b,
                  graphs);
    assert_true(3 * all_b < 2 * all_a);
    assert_int_equal(calls_of(b, "cudaGraphLaunch", 3), 0); /* no graph for a smaller batch */
    assert_int_equal(calls_of(b, "cudaGraphLaunch", BENCH_BATCH), graphs);
    assert_int_equal(calls_of(a, "cudaGraphLaunch", BENCH_BATCH), 0);
    bench_destroy(a);
    bench_destroy(b);
}

/* Lets the number-th call of this name in the second step fail: results do not change, and later
 * steps launch no graph. */
static void check_fallback(const char *name, long long number)
{
    const struct net *net = &bench_nets[BENCH_DEEP];
    struct bench *a = open_plan(net, 0, NULL), *b = open_plan(net, TUNING_CAPTURE, NULL);
    for (int k = 0; k < 4; k++) {
        struct bench_outcome of_a = bench_step_of(a, k, BENCH_BATCH);
        if (k == 1) {
            fault_only(name);
            fault_set(number);
        }
        struct bench_outcome of_b = bench_step_of(b, k, BENCH_BATCH);
        if (k == 1 && fault_name() == NULL)
            fail_msg("there are not %lld calls of %s", number, name);
        fault_set(0);
        fault_only(NULL);
        bench_check_same(net, a, of_a, b, of_b);
    }
    assert_int_equal(calls_of(b, "cudaGraphLaunch", BENCH_BATCH), 0);
    bench_destroy(a);
    bench_destroy(b);
}

static void test_fallback(void **state)
{
    static const char *const names[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                        "cudaGraphGetNodes",      "cudaGraphInstantiate",
                                        "a captured launch",      "a captured event or copy"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        check_fallback(names[k], 1);
    check_fallback("cudaStreamEndCapture", 3);
}

/* Returns the number of lines that are logged when the capture of a step fails. */
static int lines_of_failure(uint32_t tuning)
{
    struct bench *b = open_plan(&bench_nets[BENCH_DEEP], tuning, NULL);
    bench_step_of(b, 0, BENCH_BATCH);
    fault_only("cudaStreamEndCapture");
    fault_set(1);
    (void)CAPTURE(bench_step_of(b, 1, BENCH_BATCH).n_correct);
    assert_non_null(fault_name());
    fault_only(NULL);
    fault_set(0);
    int n = 0;
    for (const char *at = capture_text; *at; at++)
        n += *at == '\n';
    bench_destroy(b);
    return n;
}

/* "auto" includes the capture, whose failure is then not logged. */
static void test_auto(void **state)
{
    uint32_t tuning;
    const char *bad;
    int n;
    assert_int_equal(tuning_parse("auto", &tuning, &bad, &n), ST_OK);
    assert_true(tuning & TUNING_CAPTURE);
    assert_int_equal(lines_of_failure(tuning), 0);
    assert_int_equal(lines_of_failure(TUNING_CAPTURE), 1);
}

static void compare_steps(const struct net *net, struct bench *a, struct bench *b, int n)
{
    for (int k = 0; k < n; k++) {
        struct bench_outcome of_a = bench_step_of(a, k, BENCH_BATCH),
                             of_b = bench_step_of(b, k, BENCH_BATCH);
        bench_check_same(net, a, of_a, b, of_b);
    }
}

/* Lets an algorithm fail, in a capture or in a plain pass. The plan does not launch the old capture
 * again, and replaces it after a step without a capture. */
static void check_another(const char *what, uint32_t tuning)
{
    const struct net *net = &bench_nets[BENCH_DEEP];
    for (int n_before = 1; n_before < 4; n_before++) {
        struct bench *a = open_plan(net, 0, NULL), *b = open_plan(net, tuning, NULL);
        compare_steps(net, a, b, n_before);
        fault_only(what);
        fault_set(1);
        if (n_before == 1)
            bench_step_of(b, 0, BENCH_BATCH);
        else
            disturb(b);
        assert_non_null(fault_name());
        fault_set(0);
        if (n_before > 1)
            assert_int_equal(calls_of(b, "cudaGraphLaunch", BENCH_BATCH), 0);
        assert_in_range(calls_of(b, "cudaStreamBeginCapture", BENCH_BATCH), 2, most_graphs(b) + 1);
        assert_in_range(calls_of(b, "cudaGraphLaunch", BENCH_BATCH), 2, most_graphs(b) + 1);
        compare_steps(net, a, b, 2);
        bench_destroy(a);
        bench_destroy(b);
    }
}

static void test_another_algorithm(void **state)
{
    check_another("an algorithm", TUNING_CAPTURE);
    check_another("an engine", TUNING_CAPTURE | TUNING_NHWC);
}

/* Targets need another loss than labels, so the captures of a step with labels do not suit. */
static void test_targets_and_labels(void **state)
{
    const struct net *net = &bench_nets[BENCH_SQUARED];
    struct bench *a = open_plan(net, 0, NULL), *b = open_plan(net, TUNING_CAPTURE, NULL);
    float targets[BENCH_BATCH][CLASSES];
    const float *row[BENCH_BATCH];
    assert_int_equal(a->r->layers[a->r->n_layers - 1].kind, LAYER_SQUARED);
    assert_int_equal(shape_elems(&a->r->layers[a->r->n_layers - 1].in), CLASSES);
    for (int i = 0; i < BENCH_BATCH; i++) {
        row[i] = targets[i];
        for (int c = 0; c < CLASSES; c++)
            targets[i][c] = (float)((i * CLASSES + c) % 7) / 3.0f;
    }
    for (int k = 0; k < 9; k++) {
        struct bench *both[] = {a, b};
        struct bench_outcome o[2];
        for (int p = 0; p < 2; p++) {
            const uint8_t *labels = k / 3 % 2 == 0 ? both[p]->labels : NULL;
            assert_int_equal(backend->set_input(both[p]->plan, both[p]->image, labels,
                                                both[p]->position, BENCH_BATCH),
                             ST_OK);
            if (labels == NULL)
                assert_int_equal(backend->set_targets(both[p]->plan, row, BENCH_BATCH), ST_OK);
            o[p] = bench_step(both[p], k);
        }
        bench_check_same(net, a, o[0], b, o[1]);
    }
    bench_destroy(a);
    bench_destroy(b);
}

/* Returns the largest magnitude of the layer's gradients. */
static float largest_of(const struct bench *b, int layer)
{
    const struct layer *l = &b->r->layers[layer];
    float largest = 0;
    for (int k = 0; k < l->n_params; k++)
        for (int64_t i = 0; i < b->r->param_elems[l->param[k]]; i++)
            largest = fmaxf(largest, fabsf(b->grads[l->param[k]][i]));
    return largest;
}

/* Runs passes, and checks which layers' gradients are suspect. layer: the only suspect one; -1:
 * none, -2: all. */
static void check_suspects(struct bench *b, int layer)
{
    for (int pass = 0; pass < 3; pass++) {
        bench_forward(b, 0, BENCH_BATCH, 1);
        for (int i = b->r->n_layers - 1; i >= 0; i--)
            assert_int_equal(backend->backward(b->plan, i), ST_OK);
        for (int i = b->r->n_layers - 1; i >= 0; i--) {
            bool suspect;
            if (b->r->layers[i].n_params == 0)
                continue;
            assert_int_equal(backend->parts->check(b->plan, i, &suspect), ST_OK);
            assert_int_equal(suspect, layer == -2 || i == layer);
            assert_int_equal(backend->wait_grads(b->plan, i), ST_OK);
        }
    }
}

/* The backend finds gradients above a limit, and those that are not finite, again in each step. */
static void check_parts(uint32_t tuning)
{
    const struct net *net = &bench_nets[BENCH_DEEP];
    struct bench *b = open_plan(net, tuning, NULL);
    struct backend_plan_config cfg = bench_config(b, 1, 0);
    int of = 0, last = b->r->n_params - 1;
    float *bias = b->params[last], value = bias[0]; /* bias of the last layer */
    cfg.tuning = tuning;
    check_suspects(b, -1);
    for (int i = 0; i < b->r->n_layers; i++)
        of = largest_of(b, i) > largest_of(b, of) ? i : of;
    bias[0] = NAN;
    assert_int_equal(backend->load_param(b->plan, last), ST_OK);
    check_suspects(b, -2);
    bias[0] = value;
    assert_int_equal(backend->load_param(b->plan, last), ST_OK);
    check_suspects(b, -1);
    for (int k = 0; k < 2; k++) {
        float largest = largest_of(b, of);
        backend->plan_destroy(b->plan);
        b->parts.largest_grad = k == 0 ? largest : nextafterf(largest, 0);
        assert_int_equal(backend->plan_create(&cfg, &b->plan), ST_OK);
        check_suspects(b, k == 0 ? -1 : of);
    }
    bench_destroy(b);
}

static void test_suspect_gradients_are_found(void **state)
{
    check_parts(0);
    check_parts(TUNING_CAPTURE);
}

int main(int argc, char **argv)
{
    int status;
    void *so = emulated_open(argc > 1 ? argv[1] : WEIR_TEST_DIR, &backend, &status);
    if (so == NULL)
        return status;
    bench_tolerance = bench_tolerance_f32 = reference_tolerance("emulated");
    if (!emulated_look_up(so, "emulation_fault_set", &fault_set) ||
        !emulated_look_up(so, "emulation_fault_only", &fault_only) ||
        !emulated_look_up(so, "emulation_fault_name", &fault_name) ||
        !emulated_look_up(so, "emulation_fault_calls", &fault_calls))
        return 1;
    return RUN_TESTS(test_same_bits, test_calls, test_fallback, test_auto, test_another_algorithm,
                     test_targets_and_labels, test_suspect_gradients_are_found);
}
