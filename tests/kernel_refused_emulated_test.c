/* tests/kernel_refused_emulated_test.c - tests plans and calls that the CUDA backend refuses, each
 * with its own status and a log line that names the fault. Afterwards no memory of a card may be
 * missing. Needs the emulation (tests/emulation). Argument: the folder of its library. */
#include "kernels/backend.h"
#include "kernels/device_updates.h"
#include "kernels/parts.h"
#include "kernels/resident.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "tests/kernel_reference.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 2, SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 10, MANY = 17, ILLEGAL_ADDRESS = 700 };
static const struct backend *backend;
static size_t (*bytes_taken)(void);
static void (*lose)(int device, int code); /* code: cudaError_t */

/* A network with one layer of each kind whose shapes the backend checks, and its plan. */
enum { CONV, POOL, FLATTEN, DENSE, DROPOUT, LOSS };
struct bench {
    struct reference *r;
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    struct backend_plan_config cfg;
    struct plan *plan;
};

static struct bench *bench_create(void)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    struct reference *r = b->r = reference_create(1, SIDE, SIDE, BATCH, 5);
    reference_conv(r, 2, 3, 1, -1);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, 0);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, CLASSES);
    reference_dropout(r, 0.5f);
    reference_layer(r, LAYER_SOFTMAX_XENT);
    for (int k = 0; k < r->n_params; k++) {
        b->params[k] = calloc((size_t)r->param_elems[k], sizeof(float));
        b->grads[k] = calloc((size_t)r->param_elems[k], sizeof(float));
        assert_true(b->params[k] != NULL && b->grads[k] != NULL);
    }
    b->cfg = (struct backend_plan_config){.layers = r->layers,
                                          .n_layers = r->n_layers,
                                          .batch = BATCH,
                                          .n_threads = 1,
                                          .n_params = r->n_params,
                                          .params = (const float *const *)b->params,
                                          .grads = b->grads};
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
    free(b);
    assert_int_equal(bytes_taken(), 0);
}

/* Checks that the log of the last call contains the text. */
static void assert_said(const char *text)
{
    if (strstr(capture_text, text) == NULL)
        fail_msg("no line has \"%s\":\n%s", text, capture_text);
}

/* Checks that a plan of b->cfg is refused. */
static void refused(struct bench *b, enum status why, const char *text)
{
    struct plan *none = NULL;
    assert_int_equal(CAPTURE(backend->plan_create(&b->cfg, &none)), why);
    assert_null(none);
    assert_said(text);
}

static void plan_create(struct bench *b)
{
    assert_int_equal(backend->plan_create(&b->cfg, &b->plan), ST_OK);
}

/* Reduces the network to this layer, which reads an image of the shape `in` and has the output
 * `out`. The plan is for inference, because the network has no loss. */
static void only(struct bench *b, int layer, struct shape in, struct shape out)
{
    struct layer *l = &b->r->layers[0];
    *l = b->r->layers[layer];
    l->input[0] = LAYER_INPUT_IMAGE;
    l->in = in;
    l->out = out;
    b->cfg.n_layers = 1;
    b->cfg.inference_only = 1;
}

static void test_empty(void **state)
{
    struct bench *b = bench_create();
    b->cfg.batch = 0;
    refused(b, ST_UNSUPPORTED, "batch 0");
    b->cfg.batch = BATCH;
    b->cfg.n_layers = 0;
    refused(b, ST_UNSUPPORTED, "0 layers");
    bench_destroy(b);
}

static void test_device(void **state)
{
    struct bench *b = bench_create();
    b->cfg.device = backend->n_devices();
    refused(b, ST_NOT_FOUND, "no device");
    b->cfg.device = -1;
    refused(b, ST_NOT_FOUND, "no device -1");
    setenv("WEIR_EMULATED_DEVICES", "200", 1);
    b->cfg.device = 199;
    refused(b, ST_UNSUPPORTED, "device 199: only 128 devices are supported");
    assert_int_equal(CAPTURE(backend->set_memory(199, 1 << 20, 0)), ST_UNSUPPORTED);
    assert_said("device 199: only 128 devices are supported");
    unsetenv("WEIR_EMULATED_DEVICES");
    bench_destroy(b);
}

static void test_precision(void **state)
{
    struct bench *b = bench_create();
    b->cfg.precision = (enum backend_precision)(BACKEND_BF16 + 1);
    refused(b, ST_UNSUPPORTED, "precision 3 is unknown");
    b->cfg.precision = BACKEND_BF16;
    setenv("WEIR_EMULATED_CC", "7.5", 1);
    assert_false(CAPTURE(backend->has_precision(BACKEND_BF16)));
    refused(b, ST_UNSUPPORTED, "has compute capability 7.5");
    unsetenv("WEIR_EMULATED_CC");
    assert_true(backend->has_precision(BACKEND_BF16));
    plan_create(b);
    bench_destroy(b);
}

static void test_group(void **state)
{
    struct bench *b = bench_create();
    int device[MANY] = {0};
    uint8_t mine[REFERENCE_MAX_LAYERS];
    uint16_t *grads16[REFERENCE_MAX_PARAMS] = {NULL};
    float weight[MANY] = {1};
    struct backend_group_config cfg = {.n = MANY, .device = device, .weight = weight};
    struct backend_group *group = NULL;
    struct parts_config parts = {.elems = 8};
    assert_int_equal(CAPTURE(backend->group_create(&cfg, &group)), ST_UNSUPPORTED);
    assert_said("more than 16 towers on device 0");
    cfg.n = 1;
    device[0] = backend->n_devices();
    assert_int_equal(CAPTURE(backend->group_create(&cfg, &group)), ST_NOT_FOUND);
    assert_said("there is no device");
    device[0] = 0;
    assert_int_equal(backend->group_create(&cfg, &group), ST_OK);
    b->cfg.group = group;
    memset(mine, 1, sizeof mine);
    b->cfg.mine = mine;
    refused(b, ST_UNSUPPORTED, "a part of the layers cannot be in a group");
    b->cfg.mine = NULL;
    b->cfg.grads16 = grads16;
    b->cfg.grads_dtype = DTYPE_BF16;
    refused(b, ST_UNSUPPORTED, "gradients in bf16 of a group");
    b->cfg.grads16 = NULL;
    b->cfg.parts = &parts;
    refused(b, ST_UNSUPPORTED, "parts of 8 elements of a group are not supported");
    b->cfg.parts = NULL;
    b->cfg.rank = 1;
    refused(b, ST_INVALID, "is not rank 1 of its group");
    b->cfg.rank = 0;
    b->cfg.inference_only = 1;
    refused(b, ST_INVALID, "not for training");
    b->cfg.group = NULL;
    b->cfg.inference_only = 0;
    b->cfg.grads16 = grads16;
    b->cfg.grads_dtype = DTYPE_F32;
    refused(b, ST_UNSUPPORTED, "a plan outside a group supports bf16 and fp16");
    b->cfg.grads16 = NULL;
    b->cfg.parts = &parts;
    parts.elems = 0;
    refused(b, ST_UNSUPPORTED, "parts of 0 elements are not supported");
    parts = (struct parts_config){.elems = 8, .largest_grad = -1};
    refused(b, ST_UNSUPPORTED, "parts of 8 elements are not supported");
    bench_destroy(b);
    backend->group_destroy(group);
}

static void test_shapes(void **state)
{
    const struct shape image = {3, {1, SIDE, SIDE}}, half = {3, {1, SIDE / 2, SIDE / 2}},
                       flat = {1, {PIXELS}}, classes = {1, {CLASSES}}, two = {2, {SIDE, SIDE}},
                       none = {3, {1, 0, SIDE}}, vast = {1, {(int64_t)INT32_MAX + 1}};
    struct {
        int layer;
        struct shape in, out;
        const char *text;
    } const wrong[] = {
        {CONV, flat, image, "a convolution needs images"},
        {CONV, image, flat, "a convolution needs images"},
        {POOL, flat, half, "a pool needs images"},
        {POOL, image, flat, "a pool needs images"},
        {DENSE, image, classes, "a dense layer needs a flat input"},
        {DENSE, flat, image, "a dense layer needs a flat input"},
        {FLATTEN, two, flat, "a tensor of 2 dimensions"},
        {FLATTEN, image, two, "a tensor of 2 dimensions"},
        {FLATTEN, none, flat, "and 0 values"},
        {FLATTEN, vast, vast, "and 2147483648 values"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        struct bench *b = bench_create();
        char named[128];
        only(b, wrong[k].layer, wrong[k].in, wrong[k].out);
        refused(b, ST_UNSUPPORTED, wrong[k].text);
        snprintf(named, sizeof named, "layer '%s': ", b->r->layers[0].name);
        assert_said(named);
        bench_destroy(b);
    }
}

static void test_rate(void **state)
{
    const float wrong[] = {1.0f, -0.25f, NAN};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        struct bench *b = bench_create();
        b->r->layers[DROPOUT].rate = wrong[k];
        refused(b, ST_UNSUPPORTED, "the rate of a dropout");
        bench_destroy(b);
    }
}

static void test_shared_parameter(void **state)
{
    struct bench *b = bench_create();
    struct layer *l = b->r->layers;
    l[DENSE].param[1] = l[CONV].param[1];
    refused(b, ST_UNSUPPORTED, "shares parameter 1 with layer 'conv0'");
    bench_destroy(b);
}

static void test_no_algorithm(void **state)
{
    struct bench *b = bench_create();
    setenv("WEIR_EMULATED_CONV", "none", 1);
    refused(b, ST_NOMEM, "layer 'conv0': cuDNN has no algorithm for this convolution's forward");
    b->cfg.deterministic = 1;
    refused(b, ST_NOMEM, "no deterministic algorithm");
    b->cfg.memory_limit_bytes = 8 << 20;
    refused(b, ST_RANGE, "no deterministic algorithm");
    unsetenv("WEIR_EMULATED_CONV");
    plan_create(b);
    bench_destroy(b);
}

static void test_memory(void **state)
{
    struct bench *b = bench_create();
    b->cfg.memory_limit_bytes = 4096;
    refused(b, ST_RANGE, "layer 'conv0': out of GPU memory: its ");
    b->cfg.memory_limit_bytes = 0;
    assert_int_equal(CAPTURE(backend->set_memory(0, (uint64_t)1 << 40, 1)), ST_NOMEM);
    assert_said("must be free at once");
    plan_create(b);
    assert_int_equal(CAPTURE(backend->set_memory(0, 64 << 20, 0)), ST_BUSY);
    assert_said("before the first plan of the device is created");
    bench_destroy(b);
}

static void test_steps(void **state)
{
    struct bench *b = bench_create();
    uint8_t image[PIXELS] = {0};
    const uint8_t *images[BATCH] = {image, image};
    float loss, output[BATCH * CLASSES];
    int n_correct;
    plan_create(b);
    assert_int_equal(backend->set_input(b->plan, images, NULL, NULL, BATCH), ST_OK);
    for (int i = 0; i <= LOSS; i++)
        assert_int_equal(backend->forward(b->plan, i, 1), ST_OK);
    assert_int_equal(CAPTURE(backend->result(b->plan, &loss, &n_correct)), ST_UNSUPPORTED);
    assert_said("results need labels, and a loss");
    assert_int_equal(CAPTURE(backend->backward(b->plan, LOSS)), ST_UNSUPPORTED);
    assert_said("a backward pass needs a training plan and labels");
    backend->plan_destroy(b->plan);
    b->cfg.inference_only = 1;
    plan_create(b);
    assert_int_equal(CAPTURE(backend->backward(b->plan, DENSE)), ST_UNSUPPORTED);
    assert_said("a backward pass needs a training plan and labels");
    assert_int_equal(backend->finish(b->plan), ST_OK);
    backend->plan_destroy(b->plan);
    /* a plan that computes only some of the layers */
    b->cfg.mine = (const uint8_t[]){1, 1, 1, 1, 0, 0};
    plan_create(b);
    assert_int_equal(backend->set_input(b->plan, images, NULL, NULL, BATCH), ST_OK);
    assert_int_equal(CAPTURE(backend->set_output_grad(b->plan, DENSE, output)), ST_UNSUPPORTED);
    assert_said("there is no gradient with respect to its output: the plan is for inference");
    backend->plan_destroy(b->plan);
    b->cfg.mine = NULL;
    /* a relu in place overwrites its input */
    b->r->layers[DROPOUT].kind = LAYER_RELU;
    plan_create(b);
    assert_int_equal(CAPTURE(backend->read_output(b->plan, DENSE, output)), ST_UNSUPPORTED);
    assert_said("the relu after it overwrites the output");
    bench_destroy(b);
}

/* Calls with items of a data set, for a pass and for training that stays on the device. */
static void test_items(void **state)
{
    struct bench *b = bench_create();
    uint8_t images[BATCH * PIXELS] = {0}, labels[BATCH] = {0};
    uint32_t beyond[BATCH] = {0, BATCH};
    float keep[REFERENCE_MAX_PARAMS];
    struct backend_data *data;
    for (int k = 0; k < REFERENCE_MAX_PARAMS; k++)
        keep[k] = -1;
    assert_int_equal(backend->data_create(0, images, labels, BATCH, PIXELS, &data), ST_OK);
    struct resident_config resident = {.data = data, .keep = keep, .stride = BATCH};
    optim_defaults(OPTIM_SGD, &resident.optim);
    plan_create(b);
    assert_int_equal(CAPTURE(backend->set_items(b->plan, data, beyond, NULL, BATCH)), ST_RANGE);
    assert_said("sample index 2 is out of range: the data set has 2 samples");
    assert_int_equal(backend->resident->begin(b->plan, &resident), ST_OK);
    assert_int_equal(CAPTURE(backend->resident->order(b->plan, 0, beyond)), ST_RANGE);
    assert_said("sample index 2 is out of range: the data set has 2 samples");
    backend->plan_destroy(b->plan);
    b->cfg.inference_only = 1;
    plan_create(b);
    assert_int_equal(CAPTURE(backend->resident->begin(b->plan, &resident)), ST_UNSUPPORTED);
    assert_said("training without copies to the host needs a training plan of a whole network");
    backend->plan_destroy(b->plan);
    b->plan = NULL;
    backend->data_destroy(data);
    bench_destroy(b);
}

/* Updates on the device need a training plan of a whole network, outside a group, with gradients of
 * floats. Each plan below lacks one of these. */
static void test_updates(void **state)
{
    struct bench *b = bench_create();
    struct backend_plan_config whole = b->cfg;
    uint8_t mine[REFERENCE_MAX_LAYERS];
    uint16_t *grads16[REFERENCE_MAX_PARAMS];
    float keep[REFERENCE_MAX_PARAMS], weight = 1;
    int device = 0;
    struct backend_group_config one = {.n = 1, .device = &device, .weight = &weight};
    struct backend_group *group;
    struct device_updates_config updates = {.keep = keep, .weight = BATCH};
    optim_defaults(OPTIM_SGD, &updates.optim);
    memset(mine, 1, sizeof mine);
    for (int k = 0; k < REFERENCE_MAX_PARAMS; k++) {
        keep[k] = -1;
        grads16[k] = (uint16_t *)b->grads[k];
    }
    assert_int_equal(backend->group_create(&one, &group), ST_OK);
    for (int k = 0; k < 4; k++) {
        b->cfg = whole;
        b->cfg.inference_only = k == 0;
        b->cfg.mine = k == 1 ? mine : NULL;
        b->cfg.group = k == 2 ? group : NULL;
        b->cfg.grads16 = k == 3 ? grads16 : NULL;
        b->cfg.grads_dtype = k == 3 ? DTYPE_BF16 : DTYPE_F32;
        plan_create(b);
        assert_int_equal(CAPTURE(backend->updates->begin(b->plan, &updates)), ST_UNSUPPORTED);
        assert_said("updates on the device need a training plan of a whole network");
        backend->plan_destroy(b->plan);
        b->plan = NULL;
    }
    backend->group_destroy(group);
    bench_destroy(b);
}

/* Only the first call that fails on a lost card logs it. */
static void test_lost_card(void **state)
{
    struct bench *b = bench_create();
    b->cfg.device = backend->n_devices() - 1;
    plan_create(b);
    assert_int_equal(CAPTURE(backend->load_param(b->plan, 0)), ST_OK);
    lose(b->cfg.device, ILLEGAL_ADDRESS);
    assert_int_equal(CAPTURE(backend->load_param(b->plan, 0)), ST_INTERNAL);
    assert_said("emulated error");
    for (int k = 0; k < b->r->n_params; k++) {
        assert_int_equal(CAPTURE(backend->load_param(b->plan, k)), ST_INTERNAL);
        assert_string_equal(capture_text, "");
    }
    bench_destroy(b);
}

int main(int argc, char **argv)
{
    int status;
    void *so = emulated_open(argc > 1 ? argv[1] : WEIR_TEST_DIR, &backend, &status);
    if (so == NULL)
        return status;
    if (!emulated_look_up(so, "emulation_bytes_taken", &bytes_taken) ||
        !emulated_look_up(so, "emulation_lose", &lose))
        return 1;
    return RUN_TESTS(test_empty, test_device, test_precision, test_group, test_shapes, test_rate,
                     test_shared_parameter, test_no_algorithm, test_memory, test_steps, test_items,
                     test_updates, test_lost_card);
}
