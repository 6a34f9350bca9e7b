/* tests/worker_host_layer_test.c - a tower with two layers on the host: the loss equals that of
 * plain loops over their outputs, and the gradients of their outputs are differences of the loss.
 * Arguments: the backend and its folder; without them, the CPU backend. */
#include "base/log.h"
#include "base/rng.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/skip.h"
#include "worker/place/split_tower.h"
#include <math.h>
#include <string.h>

enum { BATCH = 3, DENSE = 2, FIELDS = 2, UNITS = 3, BAG = FIELDS * UNITS, N = 7 };

/* sizes of the bags `wide` (1 unit), and of `deep`: all values that `out` reads */
enum { WIDE = FIELDS, JOINED = WIDE + BAG + DENSE, CLASSES = 2 };

/* bags wide and deep -> flat; [flat wide, flat deep, image] -> dense -> loss */
static struct layer layers[N] = {
    {.kind = LAYER_EMBEDDING_BAG, .name = "wide", .in = {1, {DENSE}}, .out = {3, {FIELDS, 1, 1}}},
    {.kind = LAYER_EMBEDDING_BAG, .name = "deep", .out = {3, {FIELDS, 1, UNITS}}},
    {.kind = LAYER_FLATTEN,
     .name = "flat1",
     .in = {3, {FIELDS, 1, 1}},
     .out = {1, {WIDE}},
     .n_inputs = 1,
     .input = {0}},
    {.kind = LAYER_FLATTEN,
     .name = "flat2",
     .in = {3, {FIELDS, 1, UNITS}},
     .out = {1, {BAG}},
     .n_inputs = 1,
     .input = {1}},
    {.kind = LAYER_CONCAT,
     .name = "join",
     .in = {1, {WIDE}},
     .out = {1, {JOINED}},
     .n_inputs = 3,
     .input = {2, 3, LAYER_INPUT_IMAGE}},
    {.kind = LAYER_DENSE,
     .name = "dense",
     .in = {1, {JOINED}},
     .out = {1, {CLASSES}},
     .n_params = 1,
     .n_inputs = 1,
     .input = {4}},
    {.kind = LAYER_SOFTMAX_XENT,
     .name = "loss",
     .in = {1, {CLASSES}},
     .out = {1, {CLASSES}},
     .n_inputs = 1,
     .input = {5}},
};

static int n_dense = DENSE; /* numbers of a sample; 0: the network reads only keys */

static float weights[CLASSES * JOINED], grads[CLASSES * JOINED];
static float samples[BATCH][DENSE], wide[BATCH * WIDE], deep[BATCH * BAG];
static const int32_t labels[BATCH] = {1, 0, 1};

static void fill(float *to, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        to[i] = rng_uniform(stream, i) - 0.5f;
}

static double output_of(int sample, int class)
{
    const float *w = weights + class * (WIDE + BAG + n_dense);
    double sum = 0;
    for (int i = 0; i < WIDE; i++)
        sum += (double)w[i] * (double)wide[sample * WIDE + i];
    for (int i = 0; i < BAG; i++)
        sum += (double)w[WIDE + i] * (double)deep[sample * BAG + i];
    for (int i = 0; i < n_dense; i++)
        sum += (double)w[WIDE + BAG + i] * (double)samples[sample][i];
    return sum;
}

static double expected_loss(int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += log(exp(output_of(i, 0)) + exp(output_of(i, 1))) - output_of(i, labels[i]);
    return sum / n;
}

/* Runs a step with n samples, and compares it with plain loops. */
static void run_step(struct split_tower *s, int n, int64_t step)
{
    const float *rows[BATCH] = {samples[0], samples[1], samples[2]};
    static const uint64_t position[BATCH] = {0, 1, 2};
    float loss, wide_grad[BATCH * WIDE], deep_grad[BATCH * BAG];
    int right;
    fill(wide, BATCH * WIDE, 7 + (uint64_t)step);
    fill(deep, BATCH * BAG, 8 + (uint64_t)step);
    assert_int_equal(split_tower_load_param(s, 0), ST_OK);
    assert_int_equal(split_tower_set_floats(s, n_dense > 0 ? rows : NULL, labels, position, n),
                     ST_OK);
    split_tower_set_host_output(s, 0, wide);
    split_tower_set_host_output(s, 1, deep);
    for (int i = 0; i < N; i++)
        assert_int_equal(split_tower_forward(s, i, step), ST_OK);
    for (int i = N - 1; i >= 0; i--)
        assert_int_equal(split_tower_backward(s, i, step), ST_OK);
    for (int i = N - 1; i >= 0; i--)
        assert_int_equal(split_tower_wait_grads(s, i), ST_OK);
    assert_int_equal(split_tower_result(s, &loss, &right), ST_OK);
    assert_true(fabs((double)loss - expected_loss(n)) < 1e-5);
    assert_int_equal(split_tower_read_host_grad(s, 0, wide_grad), ST_OK);
    assert_int_equal(split_tower_read_host_grad(s, 1, deep_grad), ST_OK);
    for (int i = 0; i < n * (WIDE + BAG); i++) {
        float *value = i < n * WIDE ? &wide[i] : &deep[i - n * WIDE];
        float grad = i < n * WIDE ? wide_grad[i] : deep_grad[i - n * WIDE], old = *value;
        *value = old + 0.01f;
        double above = expected_loss(n);
        *value = old - 0.01f;
        double below = expected_loss(n);
        *value = old;
        assert_true(fabs((above - below) / 0.02 - (double)grad) < 1e-4);
    }
}

static struct split_tower_config config(const struct tower_device *device)
{
    static const float *params[1] = {weights};
    static float *const grads_of[1] = {grads};
    return (struct split_tower_config){.plan = {.layers = layers,
                                                .n_layers = N,
                                                .batch = BATCH,
                                                .n_params = 1,
                                                .params = params,
                                                .grads = grads_of},
                                       .device = device,
                                       .n = 1};
}

static const struct backend *backend;

static void test_step_equals_plain_loops(void **state)
{
    const struct tower_device device = {.backend = backend, .n_threads = 1};
    struct split_tower_config cfg = config(&device);
    struct split_tower *s;
    fill(weights, CLASSES * JOINED, 5);
    fill(&samples[0][0], BATCH * DENSE, 6);
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    assert_null(split_tower_only_plan(s));
    run_step(s, BATCH, 0);
    run_step(s, 2, 1);
    run_step(s, BATCH, 2);
    split_tower_destroy(s);
}

/* Without a dense input there are no samples. */
static void test_network_of_keys_needs_no_samples(void **state)
{
    const struct tower_device device = {.backend = backend, .n_threads = 1};
    struct split_tower_config cfg = config(&device);
    struct split_tower *s;
    struct layer net[N];
    memcpy(net, layers, sizeof net);
    net[0].in = (struct shape){0};
    net[4].n_inputs = 2;
    net[4].out = net[5].in = (struct shape){1, {WIDE + BAG}};
    cfg.plan.layers = net;
    n_dense = 0;
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    run_step(s, BATCH, 3);
    split_tower_destroy(s);
    n_dense = DENSE;
}

static void test_inference_reads_host_output(void **state)
{
    const struct tower_device device = {.backend = backend, .n_threads = 1};
    struct split_tower_config cfg = config(&device);
    struct split_tower *s;
    const float *rows[1] = {samples[0]};
    static const uint64_t position[1] = {0};
    float out[CLASSES];
    cfg.plan.inference_only = 1;
    cfg.plan.n_layers = N - 1;
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    assert_int_equal(split_tower_load_param(s, 0), ST_OK);
    assert_int_equal(split_tower_set_floats(s, rows, NULL, position, 1), ST_OK);
    split_tower_set_host_output(s, 0, wide);
    split_tower_set_host_output(s, 1, deep);
    for (int i = 0; i < N - 1; i++)
        assert_int_equal(split_tower_forward_inference(s, i), ST_OK);
    assert_int_equal(split_tower_output(s, out), ST_OK);
    for (int class = 0; class < CLASSES; class ++)
        assert_true(fabs((double)out[class] - output_of(0, class)) < 1e-5);
    split_tower_destroy(s);
}

/* No plan computes such a layer, so a network that is one plan is refused. */
static void test_plan_of_all_layers_is_refused(void **state)
{
    const struct tower_device device = {.backend = backend, .n_threads = 1};
    struct split_tower_config cfg = config(&device);
    struct backend_plan_config plan = cfg.plan;
    struct plan *p = NULL;
    plan.n_threads = 1;
    assert_int_equal(CAPTURE(backend->plan_create(&plan, &p)), ST_UNSUPPORTED);
    assert_non_null(strstr(capture_text, "layer 'wide': the host computes layers of its kind"));
}

int main(int argc, char **argv)
{
    log_init("worker", 0, LOG_LEVEL_INFO);
    if (backend_open(argc > 1 ? argv[1] : "cpu", argc > 2 ? argv[2] : WEIR_TEST_BACKEND_DIR,
                     &backend) != ST_OK)
        return argc > 1 ? 1 : skip_program("the CPU backend was not built");
    return RUN_TESTS(test_step_equals_plain_loops, test_network_of_keys_needs_no_samples,
                     test_inference_reads_host_output, test_plan_of_all_layers_is_refused);
}
