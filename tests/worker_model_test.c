/* tests/worker_model_test.c - model files: the models that they describe, and refused files. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "worker/model/model.h"
#include <limits.h>
#include <math.h>
#include <sys/stat.h>

#define HEAD "{\"input\": [1, 28, 28],\n \"classes\": 10,\n \"layers\": [\n"
#define TAIL "{\"type\": \"dense\", \"units\": 10},\n{\"type\": \"softmax_cross_entropy\"}]}"

static enum status parse(const char *text, struct model **m)
{
    return model_parse(text, strlen(text), "test.json", 0, m);
}

static const char *models_dir(void)
{
    return WEIR_SOURCE_DIR "/examples/models";
}

static int64_t total_elems(const struct model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += shape_elems(&m->params[i].shape);
    return n;
}

static void examples_have_their_known_sizes(void **state)
{
    static const struct {
        const char *name;
        int64_t elems, trained;
        int n_layers;
    } known[] = {
        {"softmax", 7850, 7850, 3},
        {"mlp", 79510, 79510, 5},
        {"lenet5", 61706, 61706, 13},
        {"deep_mnist", 3274634, 3274634, 12},
        {"deep_mnist_bn", 3274634 + 4 * 1120, 3274634 + 2 * 1120, 15},
        {"resnet_mini", 20138, 19850, 23},
        {"resnet18", 11184970, 11175370, 70},
        {"regression", 54026, 52458, 6},
        {"resnet18_cifar", 11182410, 11172810, 69},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct model *m = NULL;
        int64_t trained = 0;
        assert_int_equal(model_read(known[i].name, models_dir(), 0, &m), ST_OK);
        assert_string_equal(m->name, known[i].name);
        assert_int_equal(m->n_layers, known[i].n_layers);
        assert_int_equal(total_elems(m), known[i].elems);
        for (int p = 0; p < m->n_params; p++)
            trained += m->params[p].rule == PARAM_TRAINED ? shape_elems(&m->params[p].shape) : 0;
        assert_int_equal(trained, known[i].trained);
        struct chunks *chunks = NULL;
        assert_int_equal(chunks_create(m->params, m->n_params, CHUNKS_DEFAULT_BYTES, &chunks),
                         ST_OK);
        assert_int_equal(chunks->n_elems, known[i].elems);
        chunks_destroy(chunks);
        model_destroy(m);
    }
}

static void deep_mnist_matches_tensorflow(void **state)
{
    struct model *m = NULL;
    assert_int_equal(model_read("deep_mnist", models_dir(), 0, &m), ST_OK);
    const struct layer *conv = &m->layers[3], *pool = &m->layers[5], *fc1 = &m->layers[7];
    assert_int_equal(conv->kind, LAYER_CONV2D);
    assert_string_equal(conv->name, "conv2");
    assert_int_equal(conv->in.dim[0], 32);
    assert_int_equal(conv->out.dim[0], 64);
    assert_int_equal(conv->out.dim[1], 14);
    assert_int_equal(conv->pad_lo[0], 2);
    assert_int_equal(conv->pad_hi[1], 2);
    assert_string_equal(m->params[conv->param[0]].name, "conv2/weights");
    assert_string_equal(m->params[conv->param[1]].name, "conv2/biases");
    assert_int_equal(m->params[conv->param[0]].shape.n_dims, 4);
    assert_int_equal(m->params[conv->param[0]].shape.dim[1], 32);
    assert_int_equal(pool->out.dim[2], 7);
    assert_int_equal(fc1->in.dim[0], 3136);
    assert_int_equal(m->params[fc1->param[0]].shape.dim[0], 1024);
    assert_int_equal(m->params[fc1->param[0]].shape.dim[1], 3136);
    assert_true(m->layers[9].rate == 0.5f);
    assert_string_equal(m->layers[1].name, "relu1");
    assert_string_equal(m->layers[11].name, "softmax_cross_entropy1");
    model_destroy(m);
}

static void batch_norm_statistics_are_averages(void **state)
{
    struct model *m = NULL;
    assert_int_equal(parse(HEAD "{\"type\": \"batch_norm\", \"name\": \"b\", \"momentum\": 0.75},"
                                "{\"type\": \"flatten\"}," TAIL,
                           &m),
                     ST_OK);
    assert_int_equal(m->layers[0].n_params, 4);
    assert_true(m->layers[0].epsilon == 1e-5f);
    assert_string_equal(m->params[1].name, "b/beta");
    assert_int_equal(m->params[1].rule, PARAM_TRAINED);
    assert_string_equal(m->params[2].name, "b/moving_mean");
    assert_int_equal(m->params[2].rule, PARAM_AVERAGE);
    assert_true(m->params[3].keep == 0.75f);
    float flat[4 + 7850];
    assert_int_equal(total_elems(m), 4 + 7850);
    model_init_params(m, 1, flat);
    assert_true(flat[0] == 1 && flat[1] == 0 && flat[2] == 0 && flat[3] == 1);
    model_destroy(m);
}

/* Checks the extents of one window on an input of `in` x 64; padding: as JSON. */
static void check_window(int in, int k, int s, const char *padding, const int want[3])
{
    char text[512];
    struct model *m = NULL;
    snprintf(
        text, sizeof text,
        "{\"input\": [1, %d, 64], \"classes\": 2, \"layers\": [{\"type\": \"max_pool\", \"kernel\": [%d, 1], \"stride\": [%d, 1], \"padding\": %s}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 2}, {\"type\": \"softmax_cross_entropy\"}]}",
        in, k, s, padding);
    assert_int_equal(parse(text, &m), ST_OK);
    assert_int_equal(m->layers[0].out.dim[1], want[0]);
    assert_int_equal(m->layers[0].pad_lo[0], want[1]);
    assert_int_equal(m->layers[0].pad_hi[0], want[2]);
    assert_int_equal(m->layers[0].out.dim[2], 64);
    model_destroy(m);
}

static void padding_follows_tensorflow(void **state)
{
    check_window(28, 5, 1, "\"same\"", (int[]){28, 2, 2});
    check_window(28, 2, 2, "\"same\"", (int[]){14, 0, 0});
    check_window(7, 2, 2, "\"same\"", (int[]){4, 0, 1});
    check_window(28, 4, 1, "\"same\"", (int[]){28, 1, 2});
    check_window(13, 6, 5, "\"same\"", (int[]){3, 1, 2});
    check_window(13, 6, 5, "\"valid\"", (int[]){2, 0, 0});
    check_window(5, 1, 3, "\"same\"", (int[]){2, 0, 0});
    check_window(5, 5, 5, "\"valid\"", (int[]){1, 0, 0});
}

static void padding_by_number_follows_pytorch(void **state)
{
    check_window(28, 3, 1, "[1, 0]", (int[]){28, 1, 1});
    check_window(28, 3, 2, "[1, 0]", (int[]){14, 1, 1});
    check_window(7, 4, 3, "[2, 0]", (int[]){3, 2, 2});
    struct model *m = NULL;
    assert_int_equal(parse(HEAD "{\"type\": \"conv2d\", \"filters\": 2, \"kernel\": 3, "
                                "\"padding\": [4, 1]}, {\"type\": \"flatten\"}," TAIL,
                           &m),
                     ST_OK);
    assert_int_equal(m->layers[0].out.dim[1], 34);
    assert_int_equal(m->layers[0].out.dim[2], 28);
    model_destroy(m);
}

static void activations_keep_the_shape(void **state)
{
    static const char *const names[] = {"sigmoid", "tanh", "gelu", "silu", "leaky_relu"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[512];
        struct model *m = NULL;
        snprintf(text, sizeof text, HEAD "{\"type\": \"%s\"}, {\"type\": \"flatten\"}," TAIL,
                 names[i]);
        assert_int_equal(parse(text, &m), ST_OK);
        assert_int_equal(m->layers[0].kind, LAYER_SIGMOID + i);
        assert_int_equal(m->layers[0].out.dim[2], 28);
        assert_int_equal(m->layers[0].n_params, 0);
        assert_true(m->layers[0].slope == (m->layers[0].kind == LAYER_LEAKY_RELU ? 0.01f : 0.0f));
        model_destroy(m);
    }
}

static void layers_without_bias_have_weights_alone(void **state)
{
    struct model *m = NULL;
    assert_int_equal(parse(HEAD "{\"type\": \"conv2d\", \"filters\": 2, \"kernel\": 3, "
                                "\"bias\": false}, {\"type\": \"flatten\"},"
                                "{\"type\": \"dense\", \"units\": 3, \"bias\": false},"
                                "{\"type\": \"dense\", \"units\": 3, \"bias\": true}," TAIL,
                           &m),
                     ST_OK);
    assert_int_equal(m->n_params, 6);
    assert_int_equal(m->layers[0].n_params, 1);
    assert_int_equal(m->layers[2].n_params, 1);
    assert_int_equal(m->layers[3].n_params, 2);
    assert_string_equal(m->params[2].name, "dense2/weights");
    model_destroy(m);
}

static void pool_stride_defaults_to_kernel(void **state)
{
    struct model *m = NULL;
    assert_int_equal(parse(HEAD "{\"type\": \"avg_pool\", \"kernel\": [4, 7]},"
                                "{\"type\": \"flatten\"}," TAIL,
                           &m),
                     ST_OK);
    assert_int_equal(m->layers[0].stride[0], 4);
    assert_int_equal(m->layers[0].stride[1], 7);
    assert_int_equal(m->layers[1].out.dim[0], 28);
    model_destroy(m);
}

/* A text, and pieces of the expected log line. */
struct bad {
    const char *text;
    const char *want[4];
};

static void check_bad(const struct bad *bad)
{
    struct model *m = NULL;
    enum status st = CAPTURE(parse(bad->text, &m));
    if (st != ST_INVALID)
        fail_msg("status %s for: %s", status_name(st), bad->text);
    assert_null(m);
    assert_int_equal(capture_lines(), 1);
    for (int i = 0; i < 4 && bad->want[i]; i++) {
        if (!strstr(capture_text, bad->want[i]))
            fail_msg("no \"%s\" in: %s", bad->want[i], capture_text);
    }
}

static void global_pools_cover_whole_input(void **state)
{
    static const struct bad bad[] = {
        {"{\"input\": [1, 1, 1025], \"classes\": 10, \"layers\": [\n"
         "{\"type\": \"max_pool\", \"kernel\": \"global\"}," TAIL,
         {"line 2, layer 1", "input is 1x1025, and a global pool has sides of at most 1024"}},
        {HEAD "{\"type\": \"max_pool\", \"kernel\": \"all\"}," TAIL, {"\"kernel\" is \"all\""}},
        {HEAD "{\"type\": \"conv2d\", \"filters\": 2, \"kernel\": \"global\"}," TAIL,
         {"\"kernel\" is \"global\", but must be a whole number"}},
    };
    struct model *m = NULL;
    assert_int_equal(parse("{\"input\": [3, 5, 7], \"classes\": 10, \"layers\": ["
                           "{\"type\": \"avg_pool\", \"kernel\": \"global\"},"
                           "{\"type\": \"flatten\"}," TAIL,
                           &m),
                     ST_OK);
    assert_int_equal(m->layers[0].kernel[0], 5);
    assert_int_equal(m->layers[0].kernel[1], 7);
    assert_int_equal(m->layers[1].out.dim[0], 3);
    model_destroy(m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad(&bad[i]);
}

static void hidden_units_replace_the_first_dense(void **state)
{
    struct model *m = NULL;
    assert_int_equal(model_read("mlp", models_dir(), 37, &m), ST_OK);
    assert_int_equal(total_elems(m), 785 * 37 + 38 * 10);
    model_destroy(m);
    m = NULL;
    assert_int_equal(CAPTURE(model_read("softmax", models_dir(), 37, &m)), ST_INVALID);
    assert_non_null(strstr(capture_text, "no hidden dense layer"));
    assert_int_equal(CAPTURE(model_read("mlp", models_dir(), -1, &m)), ST_INVALID);
    assert_non_null(strstr(capture_text, "--hidden_units=-1"));
    assert_null(m);
}

/* Computes mean and standard deviation of n values, and the largest distance from 0. */
static void moments(const float *v, int64_t n, double out[3])
{
    double sum = 0, squares = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += v[i];
        squares += (double)v[i] * v[i];
        most = fabs(v[i]) > most ? fabs(v[i]) : most;
    }
    out[0] = sum / (double)n;
    out[1] = sqrt(squares / (double)n - out[0] * out[0]);
    out[2] = most;
}

static void check_init(const char *init, double stddev, double most)
{
    char text[512];
    struct model *m = NULL;
    double got[3];
    snprintf(
        text, sizeof text,
        HEAD
        "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 200, \"init\": %s, \"bias_init\": -0.25}," TAIL,
        init);
    assert_int_equal(parse(text, &m), ST_OK);
    int64_t n = total_elems(m);
    float *flat = malloc((size_t)n * sizeof *flat), *other = malloc((size_t)n * sizeof *flat);
    assert_non_null(flat);
    assert_non_null(other);
    model_init_params(m, 7, flat);
    model_init_params(m, 7, other);
    assert_memory_equal(flat, other, (size_t)n * sizeof *flat);
    moments(flat, 784 * 200, got);
    assert_true(fabs(got[0]) < stddev * 0.02 + 1e-12);
    assert_true(fabs(got[1] - stddev) < stddev * 0.02 + 1e-12);
    assert_true(got[2] <= most * (1 + 1e-6));
    assert_true(flat[784 * 200] == -0.25f && flat[784 * 200 + 199] == -0.25f);
    assert_true(flat[n - 1] == 0);
    if (stddev > 0) {
        model_init_params(m, 8, other);
        assert_memory_not_equal(flat, other, 64);
    }
    free(flat);
    free(other);
    model_destroy(m);
}

static void initialisers_have_their_moments(void **state)
{
    /* A standard normal that is truncated at two sigma has a deviation of 0.87963. */
    check_init("{\"type\": \"truncated_normal\", \"stddev\": 0.1}", 0.087963, 0.2);
    check_init("{\"type\": \"truncated_normal\"}", 0.87963 / 28, 2.0 / 28);
    check_init("{\"type\": \"normal\", \"stddev\": 0.5}", 0.5, 4);
    check_init("{\"type\": \"uniform\", \"limit\": 0.3}", 0.3 / sqrt(3), 0.3);
    check_init("\"glorot_uniform\"", sqrt(2.0 / 984), sqrt(6.0 / 984));
    check_init("{\"type\": \"he_normal\"}", sqrt(2.0 / 784), 0.4);
    check_init("\"zeros\"", 0, 0);
}

static void constants_have_configured_values(void **state)
{
    struct model *m = NULL;
    assert_int_equal(
        parse("{\"input\": [1, 1, 2], \"classes\": 2, \"layers\": [{\"type\": \"flatten\"},"
              "{\"type\": \"dense\", \"units\": 3, \"init\": {\"type\": \"constant\", \"value\": "
              "-2}}, {\"type\": \"dense\", \"units\": 2, \"init\": \"ones\"},"
              "{\"type\": \"softmax_cross_entropy\"}]}",
              &m),
        ST_OK);
    float flat[17];
    assert_int_equal(total_elems(m), 17);
    model_init_params(m, 3, flat);
    assert_true(flat[0] == -2 && flat[5] == -2 && flat[6] == 0 && flat[9] == 1 && flat[16] == 0);
    model_destroy(m);
}

static void bad_syntax_names_line_and_column(void **state)
{
    static const struct bad list[] = {
        {"{\"input\": [1, 28, 28],\n \"classes\": 10,\n \"layers\": [ {\"type\" \"relu\"} ]}",
         {"test.json, line 3, column", "not valid JSON"}},
        {"", {"line 1", "not valid JSON"}},
        {"{\"classes\": 10,\n\"classes\": 10}", {"line 2", "duplicate"}},
        {HEAD "{\"type\": \"relu\",\n\"type\": \"relu\"}]}", {"line 5", "duplicate"}},
        {HEAD TAIL "}", {"line 5", "not valid JSON"}},
        {"[]", {"line 1", "one object"}},
        {"{\"input\": [1, 28, 28], \"classes\": 1e999}", {"not valid JSON"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_bad(&list[i]);
}

static void bad_layers_name_line_and_layer(void **state)
{
    static const struct bad list[] = {
        {HEAD "{\"type\": \"relu\"},\n{\"type\": \"max_pol\", \"kernel\": 2}]}",
         {"test.json, line 5, layer 2:", "unknown layer type \"max_pol\"",
          "did you mean \"max_pool\"?", "known: conv2d max_pool avg_pool dense"}},
        {HEAD "{\"type\": \"lstm\"}]}", {"line 4, layer 1:", "unknown layer type \"lstm\" (known"}},
        {HEAD
         "{\"type\": \"flatten\"},\n{\"type\": \"dense\",\n \"name\": \"fc\",\n \"unit\": 10},\n" TAIL,
         {"line 7, layer 2 'fc' (dense)", "unknown key \"unit\"", "did you mean \"units\"?"}},
        {HEAD "{\"type\": \"flatten\"},\n{\"type\": \"dense\"},\n" TAIL,
         {"line 5, layer 2 'dense1' (dense)", "the key \"units\" is missing"}},
        {HEAD "{\"name\": \"x\"}]}", {"line 4, layer 1", "the key \"type\" is missing"}},
        {HEAD "7]}", {"line 4, layer 1", "must be an object"}},
        {HEAD "{\"type\": \"conv2d\", \"kernel\": 3}," TAIL, {"layer 1", "\"filters\" is missing"}},
        {HEAD "{\"type\": \"conv2d\", \"filters\": 3}," TAIL, {"layer 1", "\"kernel\" is missing"}},
        {HEAD "{\"type\": \"dropout\"}," TAIL, {"layer 1", "\"rate\" is missing"}},
        {HEAD "{\"type\": \"leaky_relu\", \"slope\": -0.1}," TAIL,
         {"\"slope\" is -0.1, but must be a number from 0 to 1"}},
        {HEAD "{\"type\": \"dropout\", \"rate\": \"half\"}," TAIL, {"\"rate\" is \"half\", but"}},
        {HEAD "{\"type\": \"dropout\", \"rate\": 1}," TAIL,
         {"\"rate\" is 1, but must be a number"}},
        {HEAD "{\"type\": 3}," TAIL, {"\"type\" is 3, but must be a string"}},
        {HEAD "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 0}," TAIL,
         {"\"units\" is 0, but must be a whole number from 1 to 65536"}},
        {HEAD "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 65537}," TAIL,
         {"\"units\" is 65537"}},
        {HEAD "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 1.5}," TAIL,
         {"\"units\" is 1.5"}},
        {HEAD "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": [1]}," TAIL,
         {"\"units\" is a list of 1"}},
        {HEAD "{\"type\": \"max_pool\", \"kernel\": [2]}," TAIL, {"\"kernel\" is a list of 1"}},
        {HEAD "{\"type\": \"max_pool\", \"kernel\": 2, \"stride\": [1, 0]}," TAIL,
         {"\"stride\" is a list of 2, but"}},
        {HEAD "{\"type\": \"max_pool\", \"kernel\": 2, \"padding\": \"full\"}," TAIL,
         {"\"padding\" is \"full\", but must be \"same\", \"valid\", a number or [height, width]"}},
        {HEAD "{\"type\": \"max_pool\", \"kernel\": 2, \"padding\": -1}," TAIL,
         {"\"padding\" is -1, but must be a whole number from 0 to 1024 or a list of two"}},
        {HEAD "{\"type\": \"max_pool\", \"kernel\": [4, 3], \"padding\": 2}," TAIL,
         {"\"padding\" is 2, but a pool of kernel 3 can have at most half of that"}},
        {HEAD "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 3, \"bias\": 0}," TAIL,
         {"\"bias\" is 0, but must be true or false"}},
        {HEAD "{\"type\": \"conv2d\", \"filters\": 3, \"kernel\": 2, \"bias\": false,\n"
              "\"bias_init\": 1}," TAIL,
         {"line 5, layer 1", "\"bias_init\" has no effect if \"bias\" is false"}},
        {HEAD "{\"type\": \"batch_norm\", \"momentum\": 2}," TAIL, {"\"momentum\" is 2"}},
        {HEAD "{\"type\": \"relu\", \"name\": \"a b\"}," TAIL, {"\"name\" is \"a b\""}},
        {HEAD
         "{\"type\": \"relu\", \"name\": \"a\"},\n{\"type\": \"relu\",\n\"name\": \"a\"}," TAIL,
         {"line 6, layer 2 'a' (relu)", "layer 1 in line 4 has this name already"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_bad(&list[i]);
}

static void bad_initialisers_are_refused(void **state)
{
#define DENSE(init)                                                                                \
    HEAD "{\"type\": \"flatten\"},\n{\"type\": \"dense\", \"units\": 9,\n" init "}," TAIL
    static const struct bad list[] = {
        {DENSE("\"init\": \"glorot\""), {"line 6, layer 2", "\"init\": unknown initialiser"}},
        {DENSE("\"init\": {\"type\": \"zeroes\"}"), {"line 6", "did you mean \"zeros\"?"}},
        {DENSE("\"init\": {}"), {"line 6", "\"init\": the key \"type\" is missing"}},
        {DENSE("\"init\": {\"type\": \"normal\", \"stdev\": 1}"), {"did you mean \"stddev\"?"}},
        {DENSE("\"init\": {\"type\": \"normal\", \"stddev\": -1}"), {"\"stddev\" is -1, but"}},
        {DENSE("\"init\": {\"type\": \"uniform\"}"), {"the key \"limit\" is missing"}},
        {DENSE("\"init\": {\"type\": \"constant\"}"), {"the key \"value\" is missing"}},
        {DENSE("\"init\": 0.1"), {"\"init\" must be the name of an initialiser"}},
        {DENSE("\"bias_init\": \"zeros\""), {"\"bias_init\" is \"zeros\", but must be a number"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_bad(&list[i]);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    static const struct bad list[] = {
        {HEAD "{\"type\": \"relu\"},\n" TAIL,
         {"line 5, layer 2 'dense1' (dense)",
          "needs a flat input, but layer 1 'relu1' has the output (1, 28, 28)",
          "put a flatten before it"}},
        {HEAD TAIL, {"layer 1", "but the input has the output (1, 28, 28): put a flatten"}},
        {HEAD "{\"type\": \"flatten\"}, {\"type\": \"max_pool\", \"kernel\": 2}," TAIL,
         {"layer 2 'max_pool1'", "needs an input of (channels, height, width)",
          "has the output (784)"}},
        {HEAD "{\"type\": \"conv2d\", \"filters\": 1, \"kernel\": 29}," TAIL,
         {"the 29x29 kernel does not fit in an input of 28x28"}},
        {HEAD "{\"type\": \"flatten\"},\n{\"type\": \"dense\", \"units\": 12},\n"
              "{\"type\": \"softmax_cross_entropy\"}]}",
         {"line 6, layer 3", "layer 2 'dense1' has 12 outputs, but \"classes\" is 10",
          "set the last dense layer's \"units\" to 10"}},
        {HEAD "{\"type\": \"flatten\"},\n{\"type\": \"dense\", \"units\": 10}]}",
         {"line 5, layer 2", "must be a loss: add {\"type\": \"softmax_cross_entropy\"}"}},
        {HEAD "{\"type\": \"flatten\"},\n{\"type\": \"softmax_cross_entropy\"},\n" TAIL,
         {"line 5, layer 2", "must be the last layer, but is layer 2 of 4"}},
        {"{\"input\": [1, 2, 5], \"classes\": 10, \"layers\": [{\"type\": \"flatten\"},"
         "{\"type\": \"softmax_cross_entropy\"}]}",
         {"no parameters to train"}},
        {"{\"input\": [1, 256, 256], \"classes\": 10, \"layers\": [{\"type\": \"flatten\"},"
         "{\"type\": \"dense\", \"units\": 32768}," TAIL,
         {"layer 2", "more than 2^31 parameters"}},
        {"{\"input\": [1, 4096, 4096], \"classes\": 10, \"layers\": [{\"type\": \"conv2d\", "
         "\"filters\": 17, \"kernel\": 1}," TAIL,
         {"layer 1", "larger than 2^28 values"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_bad(&list[i]);
}

/* Tests layer norm, embedding and the losses, with all their keys, and with faults. */
static void losses_and_embeddings_are_read(void **state)
{
    static const char text[] = HEAD
        "{\"type\": \"embedding\", \"vocabulary\": 200, \"units\": 6},{\"type\": \"layer_norm\", \"epsilon\": 0.25}, {\"type\": \"flatten\"},{\"type\": \"dense\", \"units\": 10},{\"type\": \"softmax_cross_entropy\", \"label_smoothing\": 0.125}]}";
    struct model *m = NULL;
    assert_int_equal(parse(text, &m), ST_OK);
    assert_int_equal(m->layers[0].kind, LAYER_EMBEDDING);
    assert_int_equal(m->layers[0].vocabulary, 200);
    assert_int_equal(m->layers[0].out.dim[0], 6);
    assert_int_equal(m->layers[0].out.dim[2], 28);
    assert_string_equal(m->params[0].name, "embedding1/weights");
    assert_int_equal(m->params[0].n_elems, 1200);
    assert_string_equal(m->params[1].name, "layer_norm1/gamma");
    assert_int_equal(m->params[1].shape.n_dims, 3);
    assert_int_equal(m->params[2].n_elems, 6 * 28 * 28);
    assert_true(m->layers[1].epsilon == 0.25f);
    assert_true(m->layers[4].smoothing == 0.125f);
    model_destroy(m);
#define ENDS(loss) HEAD "{\"type\": \"flatten\"},{\"type\": \"dense\", \"units\": 10}," loss "]}"
    assert_int_equal(parse(ENDS("{\"type\": \"sigmoid_cross_entropy\"}"), &m), ST_OK);
    assert_int_equal(m->layers[2].kind, LAYER_SIGMOID_XENT);
    model_destroy(m);
    assert_int_equal(parse(ENDS("{\"type\": \"mean_squared_error\"}"), &m), ST_OK);
    assert_int_equal(m->layers[2].kind, LAYER_SQUARED);
    model_destroy(m);
    static const struct bad list[] = {
        {HEAD "{\"type\": \"embedding\", \"vocabulary\": 1048577, \"units\": 6}," TAIL,
         {"layer 1", "\"vocabulary\" is 1048577, but must be a whole number from 1 to 1048576"}},
        {HEAD "{\"type\": \"relu\"},\n{\"type\": \"embedding\", \"vocabulary\": 9}," TAIL,
         {"line 5, layer 2", "must read \"image\""}},
        {"{\"input\": [3, 2, 5], \"classes\": 10, \"layers\": [{\"type\": \"embedding\"}," TAIL,
         {"layer 1", "of one channel", "(3, 2, 5)"}},
        {ENDS("{\"type\": \"softmax_cross_entropy\", \"label_smoothing\": 1}"),
         {"\"label_smoothing\" is 1, but must be a number"}},
        {ENDS("{\"type\": \"mean_squared_error\", \"label_smoothing\": 0.1}"),
         {"\"label_smoothing\""}},
        {ENDS("{\"type\": \"mean_squared_error\"},{\"type\": \"sigmoid_cross_entropy\"}"),
         {"layer 3", "must be the last layer, but is layer 3 of 4"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_bad(&list[i]);
}

/* ---- layers that name their inputs ---- */

#define LAYER(type, rest) "{\"type\": \"" type "\"" rest "},\n"
#define NAMED(type, name, rest) LAYER(type, ", \"name\": \"" name "\"" rest)
#define FROM(name) ", \"input\": \"" name "\""
#define LOSS "{\"type\": \"softmax_cross_entropy\"}]}"
#define DENSE_10 LAYER("flatten", "") LAYER("dense", ", \"units\": 10")

static void assert_order(const struct model *m, const char *const *names, int n)
{
    assert_int_equal(m->n_layers, n);
    for (int i = 0; i < n; i++)
        assert_string_equal(m->layers[i].name, names[i]);
}

/* The file names layers before it defines them; parameters are numbered in the order of
 * execution. */
static void layers_are_put_in_order(void **state)
{
    static const char text[] = HEAD LAYER("flatten", FROM("sum")) LAYER(
        "dense", ", \"units\": 10") NAMED("add", "sum",
                                          ", \"inputs\": [\"b\", \"image\", \"a\", \"b\"]")
        NAMED("conv2d", "b", FROM("a") ", \"filters\": 1, \"kernel\": 1") NAMED(
            "conv2d", "a",
            FROM(
                "image") ", \"filters\": 1, \"kernel\": 1") "{\"type\": \"softmax_cross_entropy\", "
                                                            "\"input\": \"dense1\"}]}";
    static const char *const order[] = {"a",        "b",      "sum",
                                        "flatten1", "dense1", "softmax_cross_entropy1"};
    struct model *m = NULL;
    assert_int_equal(parse(text, &m), ST_OK);
    assert_order(m, order, 6);
    assert_int_equal(m->layers[0].n_inputs, 1);
    assert_int_equal(m->layers[0].input[0], LAYER_INPUT_IMAGE);
    assert_int_equal(m->layers[2].kind, LAYER_ADD);
    assert_int_equal(m->layers[2].n_inputs, 4);
    static const int inputs[] = {1, LAYER_INPUT_IMAGE, 0, 1};
    assert_memory_equal(m->layers[2].input, inputs, sizeof inputs);
    assert_string_equal(m->params[0].name, "a/weights");
    assert_string_equal(m->params[2].name, "b/weights");
    assert_string_equal(m->params[4].name, "dense1/weights");
    for (int i = 0, next = 0; i < m->n_layers; i++)
        for (int k = 0; k < m->layers[i].n_params; k++)
            assert_int_equal(m->layers[i].param[k], next++);
    assert_int_equal(m->n_after, 0);
    assert_null(m->device[0]);
    model_destroy(m);
}

static void products_keep_and_sums_drop_channels(void **state)
{
    static const char text[] = HEAD NAMED("conv2d", "c", ", \"filters\": 3, \"kernel\": 1")
        NAMED("multiply", "m", ", \"inputs\": [\"c\", \"c\"]") LAYER("sum", "")
            LAYER("dense", ", \"units\": 4") NAMED("sum", "one", "")
                LAYER("dense", ", \"units\": 10") LOSS;
    struct model *m = NULL;
    assert_int_equal(parse(text, &m), ST_OK);
    assert_int_equal(m->layers[1].kind, LAYER_MULTIPLY);
    assert_int_equal(m->layers[1].n_inputs, 2);
    assert_int_equal(m->layers[1].out.n_dims, 3);
    assert_int_equal(m->layers[1].out.dim[0], 3);
    assert_int_equal(m->layers[2].kind, LAYER_SUM);
    assert_int_equal(m->layers[2].out.n_dims, 1);
    assert_int_equal(m->layers[2].out.dim[0], 784);
    assert_int_equal(m->layers[4].out.n_dims, 1);
    assert_int_equal(m->layers[4].out.dim[0], 1);
    model_destroy(m);
}

static void concat_adds_up_channels(void **state)
{
    static const char text[] = HEAD LAYER("conv2d", ", \"filters\": 3, \"kernel\": 1")
        NAMED("conv2d", "c", FROM("image") ", \"filters\": 5, \"kernel\": 3, \"padding\": \"same\"")
            NAMED("concat", "j", ", \"inputs\": [\"conv2d1\", \"image\", \"c\"]")
                DENSE_10 NAMED("concat", "j2", ", \"inputs\": [\"dense1\", \"flatten1\"]")
                    LAYER("dense", ", \"units\": 10") LOSS;
    struct model *m = NULL;
    assert_int_equal(parse(text, &m), ST_OK);
    assert_int_equal(m->layers[2].in.dim[0], 3);
    assert_int_equal(m->layers[2].out.dim[0], 9);
    assert_int_equal(m->layers[2].out.dim[1], 28);
    assert_int_equal(m->layers[2].out.n_dims, 3);
    assert_int_equal(m->layers[5].out.n_dims, 1);
    assert_int_equal(m->layers[5].out.dim[0], 10 + 9 * 784);
    model_destroy(m);
}

/* `after` moves a layer behind other layers that it does not read. It is kept in the text, like
 * `device`. */
static void after_and_device_are_kept(void **state)
{
    static const char text[] =
        HEAD NAMED("relu", "a", ", \"after\": [\"b\", \"c\"], \"device\": \"cpu:0\"")
            NAMED("relu", "b", FROM("image"))
                NAMED("relu", "c", FROM("image") ", \"after\": [\"b\"]")
                    NAMED("add", "d", ", \"inputs\": [\"a\", \"b\", \"c\"], \"device\": \"gpu:1\"")
                        DENSE_10 LOSS;
    static const char *const order[] = {
        "b", "c", "a", "d", "flatten1", "dense1", "softmax_cross_entropy1"};
    struct model *m = NULL;
    assert_int_equal(parse(text, &m), ST_OK);
    assert_order(m, order, 7);
    assert_int_equal(m->n_after, 3);
    static const struct model_after after[] = {{0, 1}, {0, 2}, {1, 2}};
    assert_memory_equal(m->after, after, sizeof after);
    assert_null(m->device[1]);
    assert_string_equal(m->device[2], "cpu:0");
    assert_string_equal(m->device[3], "gpu:1");
    model_destroy(m);
}

static void circles_name_their_layers(void **state)
{
    static const struct bad list[] = {
        {HEAD NAMED("relu", "a", FROM("c")) NAMED("relu", "b", FROM("a"))
             NAMED("add", "c", ", \"inputs\": [\"image\", \"b\"]") DENSE_10 LOSS,
         {"test.json, line 4, layer 1 'a' (relu): waits for itself: a reads c, c reads b, b reads "
          "a, remove one of these"}},
        {HEAD NAMED("relu", "x", "") NAMED("relu", "a", ", \"after\": [\"b\"]")
             NAMED("relu", "b", "") DENSE_10 LOSS,
         {"line 5, layer 2 'a' (relu): waits for itself: a is after b, b reads a, remove"}},
        {HEAD NAMED("relu", "a", FROM("a")) DENSE_10 LOSS, {"line 4", "itself: a reads a, remove"}},
        {HEAD NAMED("relu", "a", ", \"after\": [\"softmax_cross_entropy1\"]") DENSE_10 LOSS,
         {"a is after softmax_cross_entropy1, softmax_cross_entropy1 reads dense1, dense1 reads "
          "flatten1, flatten1 reads a, remove"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_bad(&list[i]);
}

static void bad_inputs_name_line_and_layer(void **state)
{
    static const struct bad list[] = {
        {HEAD NAMED("relu", "first", "") LAYER("flatten", ",\n\"input\": \"frist\"")
             LAYER("dense", ", \"units\": 10") LOSS,
         {"line 6, layer 2 'flatten1'", "\"input\": there is no layer \"frist\", did you mean "
                                        "\"first\"?"}},
        {HEAD NAMED("relu", "a", ", \"after\": [\"nobody\"]") DENSE_10 LOSS,
         {"line 4, layer 1 'a'", "\"after\": there is no layer \"nobody\" (a layer is named by"}},
        {HEAD NAMED("relu", "a", ", \"after\": [\"image\"]") DENSE_10 LOSS,
         {"the image is always available"}},
        {HEAD NAMED("relu", "a", ", \"after\": \"flatten1\"") DENSE_10 LOSS,
         {"\"after\" must be a list of 1 to 16 names"}},
        {HEAD NAMED("relu", "a", "") NAMED("relu", "b", FROM("image")) DENSE_10 LOSS,
         {"line 4, layer 1 'a' (relu): no layer reads its output", "or remove it"}},
        {HEAD NAMED("relu", "a", "") NAMED("relu", "b", ", \"input\": [\"a\"]") DENSE_10 LOSS,
         {"line 5, layer 2 'b'", "\"input\" is a list of 1, but must be a string"}},
        {HEAD NAMED("relu", "a", ", \"inputs\": [\"image\"]") DENSE_10 LOSS,
         {"unknown key \"inputs\", did you mean \"input\"?"}},
        {HEAD NAMED("add", "a", FROM("image")) DENSE_10 LOSS,
         {"unknown key \"input\", did you mean \"inputs\"? (an add has"}},
        {HEAD NAMED("add", "a", "") DENSE_10 LOSS,
         {"line 4, layer 1 'a' (add): \"inputs\" must be a list of 2 to 16 names"}},
        {HEAD NAMED("concat", "a", ", \"inputs\": [\"image\"]") DENSE_10 LOSS,
         {"\"inputs\" must be a list of 2 to 16 names"}},
        {HEAD NAMED("concat", "a", ", \"inputs\": [\"image\", 3]") DENSE_10 LOSS,
         {"\"inputs\" must be a list of 2 to 16 names"}},
        {HEAD NAMED("relu", "image", "") DENSE_10 LOSS, {"choose another name"}},
        {HEAD NAMED("max_pool", "p", ", \"kernel\": 2")
             NAMED("add", "a", ", \"inputs\": [\"p\", \"image\"]") DENSE_10 LOSS,
         {"line 5, layer 2 'a' (add): layer 1 'p' has the output (1, 14, 14), but the input has (1, 28, 28): add needs inputs of equal shape"}},
        {HEAD NAMED("max_pool", "p", ", \"kernel\": 2")
             NAMED("concat", "a", ", \"inputs\": [\"image\", \"p\"]") DENSE_10 LOSS,
         {"(concat): the input has the output (1, 28, 28), but layer 1 'p' has (1, 14, 14): concat "
          "needs"}},
        {HEAD NAMED("max_pool", "p", ", \"kernel\": 2")
             NAMED("multiply", "a", ", \"inputs\": [\"p\", \"image\"]") DENSE_10 LOSS,
         {"(multiply): layer 1 'p' has the output (1, 14, 14), but the input has (1, 28, 28): "
          "multiply needs inputs of equal shape"}},
        {HEAD NAMED("flatten", "f", "") NAMED("concat", "a", ", \"inputs\": [\"image\", \"f\"]")
             DENSE_10 LOSS,
         {"layer 1 'f' has (784): concat needs"}},
        {HEAD NAMED("flatten", "f", "") NAMED("dense", "d", ", \"units\": 10")
             LAYER("softmax_cross_entropy", FROM("d"))
                 NAMED("dense", "e", FROM("f") ", \"units\": 10") LOSS,
         {"line 6, layer 3", "no layer reads its output"}},
        {HEAD DENSE_10 "{\"type\": \"softmax_cross_entropy\", \"device\": \"\"}]}",
         {"\"device\" must be a device such as \"cpu:0\""}},
        {HEAD DENSE_10 "{\"type\": \"softmax_cross_entropy\", \"device\": 0}]}",
         {"\"device\" is 0, but must be a string"}},
        {HEAD DENSE_10 "{\"type\": \"softmax_cross_entropy\", \"device\": "
                       "\"/job:worker/task:10/device:GPU:00000000000000000000000000000000000000"
                       "00000000000000000000000000000\"}]}",
         {"at most 95 plain characters"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_bad(&list[i]);
}

static void bad_top_level_is_refused(void **state)
{
    static const struct bad list[] = {
        {"{\n\"classes\": 10, \"layers\": [" TAIL, {"line 1", "the key \"input\" is missing"}},
        {"{\"input\": [1, 28, 28], \"layers\": [" TAIL, {"the key \"classes\" is missing"}},
        {"{\"input\": [1, 28, 28], \"classes\": 10}", {"the key \"layers\" is missing"}},
        {"{\"input\": [28, 28], \"classes\": 10, \"layers\": [" TAIL, {"\"input\" must be"}},
        {"{\"input\": [1, 0, 28], \"classes\": 10, \"layers\": [" TAIL, {"\"input\" must be"}},
        {"{\"input\": [65536, 65536, 65536], \"classes\": 10, \"layers\": [" TAIL,
         {"\"input\" is larger"}},
        {"{\"input\": [1, 28, 28],\n\"classes\": 65537, \"layers\": [" TAIL,
         {"line 2", "\"classes\" is 65537, but must be a whole number from 1 to 65536"}},
        {"{\"input\": [1, 28, 28], \"classes\": \"10\", \"layers\": [" TAIL, {"\"classes\" is"}},
        {"{\"input\": [1, 28, 28], \"classes\": 10, \"layers\": []}", {"a list of 1 to 1024"}},
        {"{\"input\": [1, 28, 28], \"classes\": 10, \"layers\": {}}", {"a list of 1 to 1024"}},
        {"{\"inptu\": [1, 28, 28]}", {"unknown key \"inptu\", did you mean \"input\"?"}},
        {"{\"name\": \"\\u00e9\", \"input\": [1, 28, 28]}", {"\"name\" is \"??\""}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_bad(&list[i]);
}

static void too_many_layers_are_refused(void **state)
{
    static const char relu[] = "{\"type\": \"relu\"},";
    char *text = malloc(100000);
    struct model *m = NULL;
    assert_non_null(text);
    for (int n = MODEL_MAX_LAYERS - 3; n <= MODEL_MAX_LAYERS - 2; n++) {
        size_t used = (size_t)sprintf(text, HEAD);
        for (int i = 0; i < n; i++)
            used += (size_t)sprintf(text + used, "%s", relu);
        sprintf(text + used, "{\"type\": \"flatten\"}," TAIL);
        if (n == MODEL_MAX_LAYERS - 3) {
            assert_int_equal(parse(text, &m), ST_OK);
            model_destroy(m);
            m = NULL;
        } else {
            assert_int_equal(CAPTURE(parse(text, &m)), ST_INVALID);
            assert_non_null(strstr(capture_text, "a list of 1 to 1024"));
        }
    }
    free(text);
}

static void files_are_found_or_named(void **state)
{
    char dir[] = "/tmp/weir_model_XXXXXX", path[64];
    struct model *m = NULL;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(CAPTURE(model_read("lenet", models_dir(), 0, &m)), ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, "no model named \"lenet\" in "));
    assert_non_null(strstr(capture_text, "deep_mnist, deep_mnist_bn, deepfm, lenet5, mlp, "
                                         "regression, resnet18, resnet18_cifar, resnet_mini, "
                                         "softmax, wide_deep"));
    assert_int_equal(CAPTURE(model_read("lenet5", dir, 0, &m)), ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, "(it has: none)"));
    assert_int_equal(CAPTURE(model_read("no_such_model", NULL, 0, &m)), ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, "/../share/weir/models and "));
    assert_non_null(strstr(capture_text, "/../../examples/models"));
    snprintf(path, sizeof path, "%s/m.json", dir);
    assert_int_equal(CAPTURE(model_read(path, NULL, 0, &m)), ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, path));
    assert_int_equal(CAPTURE(model_read(dir, NULL, 0, &m)), ST_INVALID);
    assert_non_null(strstr(capture_text, "not a regular file"));
    static const char good[] = HEAD "{\"type\": \"flatten\"}," TAIL;
    folder_rig_save(path, good, sizeof good - 1);
    assert_int_equal(model_read(path, NULL, 0, &m), ST_OK);
    model_destroy(m);
    m = NULL;
    folder_rig_save(path, good, 40);
    assert_int_equal(CAPTURE(model_read(path, NULL, 0, &m)), ST_INVALID);
    assert_non_null(strstr(capture_text, path));
    assert_non_null(strstr(capture_text, "line 3"));
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    assert_int_equal(CAPTURE(model_read(path, NULL, 0, &m)), ST_INVALID);
    assert_non_null(strstr(capture_text, "a model file has at most"));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(CAPTURE(model_read(path, NULL, 0, &m)), ST_INVALID);
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    return RUN_TESTS(
        examples_have_their_known_sizes, deep_mnist_matches_tensorflow,
        batch_norm_statistics_are_averages, padding_follows_tensorflow,
        padding_by_number_follows_pytorch, layers_without_bias_have_weights_alone,
        activations_keep_the_shape, pool_stride_defaults_to_kernel, global_pools_cover_whole_input,
        hidden_units_replace_the_first_dense, initialisers_have_their_moments,
        constants_have_configured_values, bad_syntax_names_line_and_column,
        bad_layers_name_line_and_layer, bad_initialisers_are_refused,
        shapes_that_do_not_fit_are_refused, losses_and_embeddings_are_read, layers_are_put_in_order,
        concat_adds_up_channels, products_keep_and_sums_drop_channels, after_and_device_are_kept,
        circles_name_their_layers, bad_inputs_name_line_and_layer, bad_top_level_is_refused,
        too_many_layers_are_refused, files_are_found_or_named);
}
