/* tests/worker_split_tower_test.c - a network on three devices, over a backend that records its
 * calls: which tensors cross between devices, when, how often, and with which values. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/place/split_tower.h"

enum { BATCH = 3, N = 6, MAX_SAID = 4096 };

/* calls since the last check, as "0 forward a; 1 set_output a; " */
static char said[MAX_SAID];
static int fail_at; /* counts down the calls: the one at 0 fails; -1: none */

struct plan {
    struct backend_plan_config cfg;
    int n;
};

static int n_plans;

static enum status say(const struct plan *p, const char *what, int layer)
{
    size_t used = strlen(said);
    int n = snprintf(said + used, sizeof said - used, "%d %s %s; ", p->cfg.device, what,
                     layer < 0 ? "-" : p->cfg.layers[layer].name);
    assert_true(n > 0 && (size_t)n < sizeof said - used);
    return fail_at >= 0 && fail_at-- == 0 ? ST_INTERNAL : ST_OK;
}

static void was_said(const char *expected)
{
    assert_string_equal(said, expected);
    said[0] = '\0';
}

static enum status fake_create(const struct backend_plan_config *cfg, struct plan **out)
{
    struct plan *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->cfg = *cfg;
    if (fail_at >= 0 && fail_at-- == 0) {
        free(p);
        return ST_NOMEM;
    }
    n_plans++;
    *out = p;
    return ST_OK;
}

static void fake_destroy(struct plan *p)
{
    n_plans--;
    free(p);
}

static size_t fake_memory(const struct plan *p)
{
    return (size_t)(100 + p->cfg.device);
}

static enum status fake_load(struct plan *p, int param)
{
    int layer = 0;
    while (p->cfg.layers[layer].n_params == 0 || p->cfg.layers[layer].param[0] != param)
        layer++;
    return say(p, "load", layer);
}

static enum status fake_input(struct plan *p, const uint8_t *const *images, const uint8_t *labels,
                              const uint64_t *position, int n)
{
    assert_true(images && labels && position);
    p->n = n;
    return say(p, "input", -1);
}

static void check_mine(const struct plan *p, int layer, int mine)
{
    assert_int_equal(p->cfg.mine ? p->cfg.mine[layer] : 1, mine);
}

static enum status fake_forward(struct plan *p, int layer, int train)
{
    check_mine(p, layer, 1);
    return say(p, train ? "forward" : "infer", layer);
}

static enum status fake_backward(struct plan *p, int layer)
{
    check_mine(p, layer, 1);
    return say(p, "backward", layer);
}

static enum status fake_result(struct plan *p, float *loss, int *n_correct)
{
    *loss = (float)p->cfg.device;
    *n_correct = p->n;
    return say(p, "result", -1);
}

static size_t elems(const struct plan *p, int layer)
{
    return (size_t)p->n * (size_t)shape_elems(&p->cfg.layers[layer].out);
}

/* Element k of layer i's output is 1000 i + k. Its gradient on a device is this value plus the
 * device's number / 8. */
static enum status fake_read_output(struct plan *p, int layer, float *dst)
{
    check_mine(p, layer, 1);
    for (size_t k = 0; k < elems(p, layer); k++)
        dst[k] = (float)(1000 * (size_t)layer + k);
    return say(p, "read_output", layer);
}

static enum status fake_set_output(struct plan *p, int layer, const float *src)
{
    check_mine(p, layer, 0);
    for (size_t k = 0; k < elems(p, layer); k++)
        assert_true(src[k] == (float)(1000 * (size_t)layer + k));
    return say(p, "set_output", layer);
}

static enum status fake_read_grad(struct plan *p, int layer, float *dst)
{
    check_mine(p, layer, 0);
    for (size_t k = 0; k < elems(p, layer); k++)
        dst[k] = (float)(1000 * (size_t)layer + k) + (float)p->cfg.device / 8;
    return say(p, "read_grad", layer);
}

static enum status fake_set_grad(struct plan *p, int layer, const float *src)
{
    char what[32];
    float from = (src[0] - (float)(1000 * layer)) * 8;
    check_mine(p, layer, 1);
    for (size_t k = 0; k < elems(p, layer); k++)
        assert_true(src[k] == (float)(1000 * (size_t)layer + k) + from / 8);
    snprintf(what, sizeof what, "add_grad(%d)", (int)from);
    return say(p, what, layer);
}

static enum status fake_finish(struct plan *p)
{
    return say(p, "finish", -1);
}

static enum status fake_wait(struct plan *p, int layer)
{
    check_mine(p, layer, 1);
    return say(p, "wait", layer);
}

#define FAKE                                                                                       \
    .name = "fake", .description = "fake", .plan_create = fake_create,                             \
    .plan_destroy = fake_destroy, .plan_memory_bytes = fake_memory, .load_param = fake_load,       \
    .set_input = fake_input, .forward = fake_forward, .backward = fake_backward,                   \
    .result = fake_result, .read_output = fake_read_output, .set_output = fake_set_output,         \
    .set_output_grad = fake_set_grad, .read_output_grad = fake_read_grad

static const struct backend queueing = {FAKE, .finish = fake_finish, .wait_grads = fake_wait};
static const struct backend prompt = {FAKE};
static const struct backend whole = {
    .name = "whole", .plan_create = fake_create, .plan_destroy = fake_destroy};

/* image -> a -> b, c, d -> e = b + c + d -> loss; b and c share a device, d and each other layer
 * have their own */
static const struct layer layers[N] = {
    {.kind = LAYER_DENSE,
     .name = "a",
     .out = {1, {5}},
     .n_params = 1,
     .param = {0},
     .n_inputs = 1,
     .input = {LAYER_INPUT_IMAGE}},
    {.kind = LAYER_DENSE, .name = "b", .out = {1, {7}}, .n_params = 1, .param = {1}, .n_inputs = 1},
    {.kind = LAYER_RELU, .name = "c", .out = {1, {7}}, .n_inputs = 1},
    {.kind = LAYER_DENSE, .name = "d", .out = {1, {7}}, .n_params = 1, .param = {2}, .n_inputs = 1},
    {.kind = LAYER_ADD, .name = "e", .out = {1, {7}}, .n_inputs = 3, .input = {1, 2, 3}},
    {.kind = LAYER_SOFTMAX_XENT, .name = "loss", .out = {1, {7}}, .n_inputs = 1, .input = {4}},
};
static const struct tower_device devices[3] = {{.backend = &queueing, .n_threads = 1},
                                               {.backend = &queueing, .device = 1, .n_threads = 1},
                                               {.backend = &prompt, .device = 2, .n_threads = 4}};
static const uint8_t apart[N] = {0, 1, 1, 2, 0, 0};

static struct split_tower_config config(const struct layer *net, const uint8_t *stage_of)
{
    return (struct split_tower_config){
        .plan = {.layers = net, .n_layers = N, .batch = BATCH, .n_params = 3},
        .device = devices,
        .n = 3,
        .stage_of = stage_of};
}

static void set_input(struct split_tower *s, int n)
{
    static const uint8_t pixel, *const images[BATCH] = {&pixel, &pixel, &pixel};
    static const uint8_t labels[BATCH];
    static const uint64_t position[BATCH];
    assert_int_equal(split_tower_set_input(s, images, labels, position, n), ST_OK);
}

static void forwards(struct split_tower *s)
{
    for (int i = 0; i < N; i++)
        assert_int_equal(split_tower_forward(s, i, 0), ST_OK);
}

static void test_a_step(void **state)
{
    struct split_tower_config cfg = config(layers, apart);
    struct split_tower *s;
    float loss;
    int n_correct;
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    assert_int_equal(n_plans, 3);
    assert_int_equal(split_tower_memory_bytes(s), 303);
    assert_int_equal(split_tower_backward_lead(s), 1);
    for (int step = 0; step < 2; step++) { /* the second step equals the first: no state is kept */
        for (int i = 0; i < 3; i++)
            assert_int_equal(split_tower_load_param(s, i), ST_OK);
        was_said("0 load a; 1 load b; 2 load d; ");
        set_input(s, BATCH - step);
        was_said("0 input -; 1 input -; 2 input -; ");
        forwards(s);
        was_said("0 forward a; 0 read_output a; 1 set_output a; 1 forward b; 1 forward c; "
                 "2 set_output a; 2 forward d; 1 read_output b; 0 set_output b; 1 read_output c; "
                 "0 set_output c; 2 read_output d; 0 set_output d; 0 forward e; 0 forward loss; ");
        for (int i = N - 1; i >= 0; i--)
            assert_int_equal(split_tower_backward(s, i, step), ST_OK);
        was_said("0 backward loss; 0 backward e; 0 read_grad d; 2 add_grad(0) d; 2 backward d; "
                 "0 read_grad c; 1 add_grad(0) c; 1 backward c; 0 read_grad b; 1 add_grad(0) b; "
                 "1 backward b; 1 read_grad a; 0 add_grad(1) a; 2 read_grad a; 0 add_grad(2) a; "
                 "0 backward a; ");
        for (int i = N - 1; i >= 0; i--)
            assert_int_equal(split_tower_wait_grads(s, i), ST_OK);
        was_said("0 wait loss; 0 wait e; 1 wait c; 1 wait b; 0 wait a; ");
        assert_int_equal(split_tower_result(s, &loss, &n_correct), ST_OK);
        assert_int_equal(n_correct, BATCH - step);
        was_said("0 result -; ");
    }
    split_tower_destroy(s);
    assert_int_equal(n_plans, 0);
}

static void test_inference(void **state)
{
    static const uint8_t stage_of[N] = {1, 1, 1, 1, 2, 2};
    struct split_tower_config cfg = config(layers, stage_of);
    struct split_tower *s;
    cfg.plan.inference_only = 1;
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    assert_int_equal(n_plans, 2); /* no plan for the device without a layer */
    set_input(s, 1);
    for (int i = 0; i < N; i++)
        assert_int_equal(split_tower_forward_inference(s, i), ST_OK);
    was_said("1 input -; 2 input -; 1 infer a; 1 infer b; 1 infer c; 1 infer d; 1 read_output b; "
             "2 set_output b; 1 read_output c; 2 set_output c; 1 read_output d; 2 set_output d; "
             "2 infer e; 2 infer loss; ");
    split_tower_destroy(s);
}

/* One device has all layers: no tensor crosses. */
static void test_one_device(void **state)
{
    static const uint8_t all_on_2[N] = {2, 2, 2, 2, 2, 2};
    for (int k = 0; k < 2; k++) {
        struct split_tower_config cfg = config(layers, k ? all_on_2 : NULL);
        struct split_tower *s;
        assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
        assert_int_equal(n_plans, 1);
        assert_int_equal(split_tower_backward_lead(s), k == 0 ? N : 0);
        set_input(s, 2);
        said[0] = '\0';
        forwards(s);
        for (int i = N - 1; i >= 0; i--)
            assert_int_equal(split_tower_backward(s, i, 0), ST_OK);
        assert_null(strstr(said, "grad"));
        assert_null(strstr(said, "output"));
        said[0] = '\0';
        split_tower_destroy(s);
    }
}

/* If no layer before the crossing learns, no gradient crosses back. */
static void test_nothing_to_learn(void **state)
{
    struct layer net[N];
    struct split_tower *s;
    memcpy(net, layers, sizeof net);
    net[0].n_params = 0; /* c depends only on a */
    struct split_tower_config cfg = config(net, apart);
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    set_input(s, 2);
    forwards(s);
    said[0] = '\0';
    for (int i = N - 1; i >= 0; i--)
        assert_int_equal(split_tower_backward(s, i, 0), ST_OK);
    was_said("0 backward loss; 0 backward e; 0 read_grad d; 2 add_grad(0) d; 2 backward d; "
             "1 backward c; 0 read_grad b; 1 add_grad(0) b; 1 backward b; 0 backward a; ");
    split_tower_destroy(s);
}

/* The model orders d after c, and e after b. A device then waits for another device, which only
 * queues its work. */
static void test_control_dependency(void **state)
{
    static const struct model_after after[] = {{2, 3}, {0, 2}, {3, 4}, {4, 5}};
    struct split_tower_config cfg = config(layers, apart);
    struct split_tower *s;
    cfg.after = after;
    cfg.n_after = 4;
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    set_input(s, 2);
    said[0] = '\0';
    forwards(s);
    was_said("0 forward a; 0 read_output a; 1 set_output a; 1 forward b; 0 finish -; 1 forward c; "
             "2 set_output a; 1 finish -; 2 forward d; 1 read_output b; 0 set_output b; "
             "1 read_output c; 0 set_output c; 2 read_output d; 0 set_output d; 0 forward e; "
             "0 forward loss; ");
    split_tower_destroy(s);
}

/* Layer a is on the host: no device computes it, and the gradients of its two readers are added. */
static void test_layer_on_host(void **state)
{
    struct layer net[N];
    struct split_tower *s;
    float out[BATCH * 5], grad[BATCH * 5];
    memcpy(net, layers, sizeof net);
    net[0].kind = LAYER_EMBEDDING_BAG;
    net[0].n_params = net[0].n_inputs = 0;
    struct split_tower_config cfg = config(net, apart);
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    for (int k = 0; k < BATCH * 5; k++)
        out[k] = (float)k;
    for (int step = 0; step < 2; step++) {
        set_input(s, 2);
        said[0] = '\0';
        split_tower_set_host_output(s, 0, out);
        forwards(s);
        was_said("1 set_output a; 1 forward b; 1 forward c; 2 set_output a; 2 forward d; "
                 "1 read_output b; 0 set_output b; 1 read_output c; 0 set_output c; "
                 "2 read_output d; 0 set_output d; 0 forward e; 0 forward loss; ");
        for (int i = N - 1; i >= 0; i--)
            assert_int_equal(split_tower_backward(s, i, step), ST_OK);
        assert_int_equal(split_tower_wait_grads(s, 0), ST_OK);
        was_said("0 backward loss; 0 backward e; 0 read_grad d; 2 add_grad(0) d; 2 backward d; "
                 "0 read_grad c; 1 add_grad(0) c; 1 backward c; 0 read_grad b; 1 add_grad(0) b; "
                 "1 backward b; ");
        assert_int_equal(split_tower_read_host_grad(s, 0, grad), ST_OK);
        was_said("1 read_grad a; 2 read_grad a; ");
        for (int k = 0; k < 2 * 5; k++)
            assert_true(grad[k] == (float)(2 * k) + 3.0f / 8);
    }
    split_tower_destroy(s);
}

static void test_failures(void **state)
{
    struct split_tower_config cfg = config(layers, apart);
    struct split_tower *s = NULL;
    struct tower_device one_whole[3] = {
        devices[0], devices[1], {.backend = &whole, .device = 2, .n_threads = 1}};
    for (int i = 0; i < 3; i++) { /* the creation of plan i fails */
        fail_at = i;
        assert_int_equal(split_tower_create(&cfg, &s), ST_NOMEM);
        assert_null(s);
        assert_int_equal(n_plans, 0);
    }
    fail_at = -1;
    cfg.device = one_whole;
    assert_int_equal(CAPTURE(split_tower_create(&cfg, &s)), ST_UNSUPPORTED);
    assert_non_null(strstr(capture_text, "backend whole cannot compute a part of a network"));
    assert_int_equal(n_plans, 0);
    cfg.device = devices;
    for (int i = 0; i < 31; i++) { /* every call of a step fails once */
        enum status st = ST_OK;
        assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
        set_input(s, 2);
        fail_at = i;
        for (int k = 0; k < N && st == ST_OK; k++)
            st = split_tower_forward(s, k, 0);
        for (int k = N - 1; k >= 0 && st == ST_OK; k--)
            st = split_tower_backward(s, k, 0);
        assert_int_equal(st, ST_INTERNAL);
        split_tower_destroy(s);
        fail_at = -1;
        said[0] = '\0';
    }
}

int main(void)
{
    fail_at = -1;
    log_init("worker", 0, LOG_LEVEL_INFO);
    return RUN_TESTS(test_a_step, test_inference, test_one_device, test_nothing_to_learn,
                     test_control_dependency, test_layer_on_host, test_failures);
}
