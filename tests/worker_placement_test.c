/* tests/worker_placement_test.c - chooses the device of each layer: rules, the model file,
 * defaults, missing devices, and valid and invalid spellings. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/place/placement.h"
#include "worker/place/placement_rules.h"
#include <time.h>

enum { N = 9, SOMEBODY = 7 }; /* the tower's own device in calls */

/* layers of the network, in the order of the letters of `spots` */
static const struct layer layers[N] = {
    {.kind = LAYER_CONV2D, .name = "conv1", .n_params = 2, .n_inputs = 1, .input = {-1}},
    {.kind = LAYER_RELU, .name = "relu1", .n_inputs = 1, .input = {0}},
    {.kind = LAYER_CONV2D, .name = "conv2", .n_params = 2, .n_inputs = 1, .input = {1}},
    {.kind = LAYER_RELU, .name = "relu2", .n_inputs = 1, .input = {2}},
    {.kind = LAYER_FLATTEN, .name = "flatten", .n_inputs = 1, .input = {3}},
    {.kind = LAYER_DENSE, .name = "fc1", .n_params = 2, .n_inputs = 1, .input = {4}},
    {.kind = LAYER_RELU, .name = "relu3", .n_inputs = 1, .input = {5}},
    {.kind = LAYER_DENSE, .name = "fc2", .n_params = 2, .n_inputs = 1, .input = {6}},
    {.kind = LAYER_SOFTMAX_XENT, .name = "loss", .n_inputs = 1, .input = {7}},
};

struct row {
    const char *rules;
    const char *device[N]; /* device in the model file */
    int n_gpus, cpu_towers, soft;
    const char *spots; /* a letter per layer: c CPU, o the tower's own, 0.. a GPU; NULL: an error */
    const char *words[4]; /* required in the log; with soft: n_lines lines */
    int n_lines;
    int spans;
};

static const struct row rows[] = {
    /* no request */
    {.spots = "ooooooooo"},
    {.n_gpus = 2, .spots = "ooooooooo"},
    /* rules; a layer without parameters stays with its input */
    {"fc*=cpu:0", {0}, 2, .spots = "ooooocccc"},
    {"conv*=cpu", {0}, 1, .spots = "cccccoooo"},
    {"conv*=cpu", {0}, 0, .spots = "cccccoooo"},
    {"fc?=cpu,relu3=gpu", {0}, 1, .spots = "ooooococc"},
    {"conv[2-9]=CPU", {0}, 1, .spots = "oocccoooo"},
    {" conv1 = /cpu:0 , loss=/device:CPU:0 ", {0}, 1, .spots = "ccooooooc"},
    {"*=gpu", {0}, 3, .spots = "ooooooooo"},
    /* a GPU by number: one tower over several devices */
    {"fc*=cpu:0,conv*=gpu:1", {0}, 2, .spots = "11111cccc", .spans = 1},
    {"fc*=/device:GPU:1", {0}, 2, .spots = "ooooo1111", .spans = 1},
    {"fc2=/Gpu:0", {0}, 1, .spots = "ooooooo00", .spans = 1},
    {"conv1=gpu:12,conv2=gpu:3", {0}, 13, .spots = "<<333oooo", .spans = 1},
    /* the first match counts */
    {"fc1=cpu,fc*=gpu:1", {0}, 2, .spots = "ooooocc11", .spans = 1},
    /* round robin: only layers with parameters count */
    {"*=round_robin", {0}, 2, .spots = "001110011", .spans = 1},
    {"*=Round_Robin", {0}, 3, .spots = "001112200", .spans = 1},
    {"*=round_robin", {0}, 1, .spots = "ooooooooo"},
    {"*=round_robin", {0}, 0, .spots = "ooooooooo"},
    {"conv1=cpu,*=round_robin", {0}, 2, .spots = "cc0001100", .spans = 1},
    {"fc*=round_robin", {0}, 2, .spots = "ooooo0011", .spans = 1},
    /* the model file; the flag has priority */
    {NULL, {[5] = "cpu:0"}, 1, .spots = "oooooccoo"},
    {NULL, {[0] = "gpu:1", [5] = "cpu"}, 2, .spots = "11oooccoo", .spans = 1},
    {"conv1=cpu", {[0] = "gpu:9"}, 1, .spots = "ccooooooo"},
    {"conv*=gpu", {[0] = "cpu", [2] = "cpu"}, 1, .spots = "ooooooooo"},
    /* missing devices */
    {"fc*=gpu:2",
     {0},
     2,
     .words = {"layer 'fc1'", "gpu:2", "rule 'fc*=gpu:2'",
               "/device:CPU:0, /device:GPU:0, /device:GPU:1;"}},
    {"fc*=gpu:0", {0}, 0, .words = {"layer 'fc1'", "gpu:0", "there are /device:CPU:0;", "--gpus"}},
    {"fc*=gpu", {0}, 0, .words = {"layer 'fc1'", "there are /device:CPU:0;"}},
    {"fc2=cpu:1", {0}, 1, .words = {"layer 'fc2'", "cpu:1", "/device:CPU:0, /device:GPU:0;"}},
    {NULL, {[2] = "/gpu:4"}, 1, .words = {"layer 'conv2'", "/gpu:4", "model file"}},
    {"fc2=gpu:4", {0}, 1, .cpu_towers = 1, .words = {"'fc2'", "CPU:0, /device:GPU:0;"}},
    {"fc1=gpu", {0}, 1, .cpu_towers = 1, .words = {"layer 'fc1'", "no GPU of its own"}},
    {"fc1=gpu:0,fc2=gpu", {0}, 1, .cpu_towers = 1, .spots = "ooooo00oo", .spans = 1},
    /* soft placement uses another device */
    {"fc*=gpu:2", {0}, 2, 0, 1, "ooooooooo", {"layer 'fc1'", "layer 'fc2'", "gpu:2"}, .n_lines = 2},
    {"fc*=gpu:2,conv1=gpu:1", {0}, 2, 0, 1, "11ooooooo", {"layer 'fc1'"}, .n_lines = 2, .spans = 1},
    {"*=gpu:0", {0}, 0, 0, 1, "ooooooooo", {"layer 'conv1'", "layer 'loss'"}, .n_lines = 9},
    {"fc2=cpu:3", {0}, 1, 0, 1, "ooooooooo", {"layer 'fc2'", "cpu:3"}, .n_lines = 1},
    {"fc1=gpu", {0}, 1, 1, 1, "ooooooooo", {"layer 'fc1'"}, .n_lines = 1},
    {NULL, {[2] = "/gpu:4"}, 1, 0, 1, "ooooooooo", {"layer 'conv2'", "model file"}, .n_lines = 1},
    /* TensorFlow's whole names; by type */
    {"fc*=/job:localhost/replica:0/task:0/cpu:0", {0}, 2, .spots = "ooooocccc"},
    {"fc*=/job:worker/task:0/device:GPU:1", {0}, 2, .spots = "ooooo1111", .spans = 1},
    {NULL, {[5] = "/job:localhost/replica:0/task:0/device:CPU:0"}, 1, .spots = "oooooccoo"},
    {"fc1=/job:worker/task:3/cpu:0", {0}, 1, .words = {"layer 'fc1'", "this is worker 0"}},
    {"type:dense=cpu", {0}, 1, .spots = "ooooocccc"},
    {"fc2=gpu,type:d*=cpu,type:conv2d=gpu", {0}, 1, .spots = "oooooccoo"},
    {"type:relu=cpu:0", {0}, 1, .spots = "ococcocoo"},
    {"type:densely=cpu", {0}, .words = {"'type:densely=cpu' fits no layer's type", "type:conv2d"}},
    {"*=cpu,type:relu=cpu", {0}, .words = {"'type:relu=cpu' has no effect", "matches 'relu1'"}},
    /* rules without effect */
    {"fcc*=cpu",
     {0},
     .soft = 1,
     .words = {"'fcc*=cpu' fits no layer", "conv1, relu1, conv2", "loss"}},
    {"Conv1=cpu", {0}, .words = {"'Conv1=cpu' fits no layer"}},
    {"*=cpu,fc1=gpu:1", {0}, 2, .words = {"'fc1=gpu:1' has no effect", "'*' matches 'fc1'"}},
    {"fc1=cpu,fc1=cpu", {0}, .words = {"'fc1=cpu' has no effect"}},
    /* soft placement does not allow an invalid device */
    {NULL, {[2] = "gpuu"}, 1, .soft = 1, .words = {"layer 'conv2'", "\"gpuu\"", "model file"}},
    {"fc1=tpu:0", {0}, 1, .soft = 1, .words = {"'tpu:0'", "'fc1'", "not a device"}},
};

static void check_spots(const struct placement *p, const char *spots)
{
    for (int i = 0; i < N; i++) {
        int device = placement_device(p, i, SOMEBODY);
        int want = spots[i] == 'c' ? PLACEMENT_CPU : spots[i] == 'o' ? SOMEBODY : spots[i] - '0';
        if (device != want)
            print_error("layer %s lies on %d instead of %d\n", layers[i].name, device, want);
        assert_int_equal(device, want);
    }
}

static void rules_and_defaults_place_layers(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        struct placement_request r = {
            .layers = layers,
            .n_layers = N,
            .device = row->device,
            .rules = row->rules,
            .n_gpus = row->n_gpus,
            .cpu_towers = row->cpu_towers,
            .soft = row->soft,
        };
        struct placement *p = NULL;
        enum status st = CAPTURE(placement_create(&r, &p));
        print_message("%s: %s", row->rules ? row->rules : "-", *capture_text ? capture_text : "\n");
        assert_int_equal(st, row->spots ? ST_OK : ST_INVALID);
        assert_int_equal(capture_lines(), row->spots ? row->n_lines : 1);
        for (int k = 0; k < 4 && row->words[k]; k++)
            assert_non_null(strstr(capture_text, row->words[k]));
        if (!row->spots) {
            assert_null(p);
            continue;
        }
        check_spots(p, row->spots);
        assert_int_equal(placement_spans(p), row->spans);
        placement_destroy(p);
    }
}

static const struct {
    const char *text;
    enum placement_kind kind;
    int index;
} good_spellings[] = {
    {"cpu", PLACEMENT_ON_CPU, 0},
    {"CPU:0", PLACEMENT_ON_CPU, 0},
    {"/cpu:0", PLACEMENT_ON_CPU, 0},
    {"/device:cpu:1", PLACEMENT_ON_CPU, 1},
    {"gpu", PLACEMENT_ON_OWN_GPU, 0},
    {"/gpu", PLACEMENT_ON_OWN_GPU, 0},
    {"/Device:GPU", PLACEMENT_ON_OWN_GPU, 0},
    {"gpu:0", PLACEMENT_ON_GPU, 0},
    {"/GPU:1", PLACEMENT_ON_GPU, 1},
    {"/device:GPU:17", PLACEMENT_ON_GPU, 17},
    {"gpu:9999", PLACEMENT_ON_GPU, 9999},
    {"round_robin", PLACEMENT_ROUND_ROBIN, 0},
    {"/job:localhost/replica:0/task:0/cpu:0", PLACEMENT_ON_CPU, 0},
    {"/job:localhost/replica:0/task:0/device:GPU:1", PLACEMENT_ON_GPU, 1},
    {"/JOB:worker/task:0/device:gpu:1", PLACEMENT_ON_GPU, 1},
    {"/job:worker/gpu:0", PLACEMENT_ON_GPU, 0},
    {"/job:worker/replica:0/cpu", PLACEMENT_ON_CPU, 0},
    {"/replica:0/task:0/gpu", PLACEMENT_ON_OWN_GPU, 0},
    {"/task:0/gpu:3", PLACEMENT_ON_GPU, 3},
};
static const char *const bad_spellings[] = {
    "",
    "/",
    "gpu:",
    "gpu:-1",
    "gpu:10000",
    "gpu:1x",
    "gpu: 1",
    "gpu1",
    "gpus",
    "//gpu:1",
    "/device:",
    "/device:/gpu",
    "device:GPU:1",
    "gpu:99999999999999999999",
    "gpu:*",
    "gpu:0x1",
    "gpu::1",
    "gpu:1:1",
    "/round_robin",
    "/job:ps/task:0/cpu:0",
    "/job:/gpu:0",
    "/job:worker",
    "/job:workers/gpu:0",
    "/job:localhost/task:1/gpu:0",
    "/job:localhost/replica:1/task:0/gpu:0",
    "/job:localhostgpu:0",
    "/job:worker/task:/gpu:0",
    "/job:worker/task:-1/gpu:0",
    "/job:worker/task:99999999999/gpu:0",
    "/job:worker/task:0",
    "/job:worker/task:0gpu:0",
    "/job:worker/round_robin",
    "/task:0/replica:0/gpu:0",
    "cp",
    "\xff\xfe",
    "gpu:\xd9\xa1",
    "%s%n",
    "round robin",
};

static void devices_read_in_all_spellings(void **state)
{
    struct placement_target want;
    for (size_t i = 0; i < sizeof good_spellings / sizeof *good_spellings; i++) {
        print_message("%s\n", good_spellings[i].text);
        assert_true(placement_rules_read_target(good_spellings[i].text, &want));
        assert_int_equal(want.kind, good_spellings[i].kind);
        assert_int_equal(want.index, good_spellings[i].index);
    }
    for (size_t i = 0; i < sizeof bad_spellings / sizeof *bad_spellings; i++) {
        print_message("%s\n", bad_spellings[i]);
        assert_false(placement_rules_read_target(bad_spellings[i], &want));
    }
}

static void bad_rules_refused(void **state)
{
    static const char *const bad[] = {
        "",         " ",
        ",",        "=",
        "=cpu",     "fc1",
        "fc1=",     "fc1=cpu,",
        ",fc1=cpu", "fc1=cpu,,fc2=cpu",
        "fc1==cpu", "fc1=cpu=gpu",
        " =cpu",    "fc1=cpu;fc2=gpu",
        "fc1 cpu",
    };
    assert_int_equal(placement_check(NULL), ST_OK);
    assert_int_equal(placement_check("a=cpu, b* = gpu:3 ,[x=]*=round_robin"), ST_INVALID);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(CAPTURE(placement_check(bad[i])), ST_INVALID);
        assert_int_equal(capture_lines(), 1);
        assert_non_null(strstr(capture_text, "--placement: '"));
    }
    char *text = malloc(PLACEMENT_MAX_TEXT + 2);
    assert_non_null(text);
    memset(text, ',', PLACEMENT_MAX_TEXT + 1);
    text[PLACEMENT_MAX_TEXT + 1] = '\0';
    assert_int_equal(CAPTURE(placement_check(text)), ST_INVALID);
    assert_non_null(strstr(capture_text, "at most 65536"));
    free(text);
}

/* Any text is accepted, or refused with one line, in little time. */
static void any_text_accepted_or_refused_at_once(void **state)
{
    static const char *const parts[] = {
        "conv1",
        "fc*",
        "*",
        "[",
        "]",
        "[!a-",
        "?",
        "=",
        ",",
        "cpu",
        "gpu",
        ":",
        "/",
        "1",
        "99",
        "device",
        " ",
        "\\",
        "\x80\xff",
        "%n",
        "=cpu,",
        "*=gpu:1",
        "*a*a*a*a*a*a*a*a*a*a*a*b",
        "round_robin",
        "[[:alpha:]]",
        "\n",
        "+(a|b)",
        "type:",
        "/job:worker",
        "/task:1",
        "[[.",
    };
    uint32_t x = 12345;
    int n_good = 0;
    for (int round = 0; round < 20000; round++) {
        char text[256] = "";
        x = x * 1664525u + 1013904223u;
        for (uint32_t n = 1 + (x >> 8) % 7; n > 0; n--) {
            x = x * 1664525u + 1013904223u;
            strcat(text, parts[(x >> 8) % (sizeof parts / sizeof *parts)]);
        }
        struct placement_request r = {.layers = layers,
                                      .n_layers = N,
                                      .rules = text,
                                      .n_gpus = (int)(x >> 30),
                                      .soft = (int)(x >> 29 & 1)};
        struct placement *p = NULL;
        enum status st = CAPTURE(placement_create(&r, &p));
        assert_true(st == ST_OK ? p != NULL : st == ST_INVALID && p == NULL);
        if (st != ST_OK)
            assert_true(strstr(capture_text, "E ") != NULL);
        n_good += st == ST_OK;
        placement_destroy(p);
    }
    assert_true(n_good > 50);
}

/* A careless matcher would try these patterns for ever, until ctest ends the program. */
static void patterns_of_many_stars_match_in_time(void **state)
{
    struct layer l = {.kind = LAYER_DENSE, .n_params = 2};
    memset(l.name, 'a', 63);
    char rule[128] = "";
    for (int i = 0; i < 30; i++)
        strcat(rule, "*a");
    strcat(rule, "*b=cpu");
    struct placement_request r = {.layers = &l, .n_layers = 1, .rules = rule};
    struct placement *p;
    assert_int_equal(CAPTURE(placement_create(&r, &p)), ST_INVALID);
}

/* image -> a -> (b on 0, c) -> d = b + c -> e = d + c -> loss: a layer without parameters stays
 * with the first layer that it reads. The image does not count. */
static void layers_without_parameters_stay_with_input(void **state)
{
    static const struct layer graph[] = {
        {.kind = LAYER_FLATTEN, .name = "a", .n_inputs = 1, .input = {LAYER_INPUT_IMAGE}},
        {.kind = LAYER_DENSE, .name = "b", .n_params = 2, .n_inputs = 1, .input = {0}},
        {.kind = LAYER_DENSE, .name = "c", .n_params = 2, .n_inputs = 1, .input = {0}},
        {.kind = LAYER_ADD, .name = "d", .n_inputs = 2, .input = {1, 2}},
        {.kind = LAYER_ADD, .name = "e", .n_inputs = 3, .input = {LAYER_INPUT_IMAGE, 2, 3}},
        {.kind = LAYER_SOFTMAX_XENT, .name = "loss", .n_inputs = 1, .input = {4}},
    };
    static const int device[] = {SOMEBODY, PLACEMENT_CPU, 1, PLACEMENT_CPU, 1, 1};
    struct placement_request r = {
        .layers = graph, .n_layers = 6, .rules = "b=cpu,c=gpu:1", .n_gpus = 2};
    struct placement *p;
    assert_int_equal(placement_create(&r, &p), ST_OK);
    for (int i = 0; i < 6; i++)
        assert_int_equal(placement_device(p, i, SOMEBODY), device[i]);
    placement_destroy(p);
}

static void placements_logged(void **state)
{
    const char *device[N] = {[0] = "cpu"};
    struct placement_request r = {.layers = layers,
                                  .n_layers = N,
                                  .device = device,
                                  .rules = "fc1=gpu,fc2=gpu:8",
                                  .n_gpus = 1,
                                  .soft = 1};
    struct placement *p;
    assert_int_equal(CAPTURE(placement_create(&r, &p)), ST_OK);
    capture_begin();
    placement_log(p, 0, 1, 0);
    capture_end();
    assert_int_equal(capture_lines(), N);
    static const char *const lines[] = {
        " conv1/weights: /device:CPU:0 (model file)\n",
        " relu1: /device:CPU:0 (default: the device of 'conv1')\n",
        " conv2/weights: /device:GPU:0 (default)\n",
        " fc1/weights: /device:GPU:0 (rule 'fc1=gpu')\n",
        " fc2/weights: /device:GPU:0 (rule 'fc2=gpu:8'; by --allow_soft_placement)\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_non_null(strstr(capture_text, lines[i]));
    capture_begin();
    placement_log(p, 1, 2, 1);
    capture_end();
    assert_non_null(strstr(capture_text, " tower_1/fc1/weights: /device:GPU:1 (rule"));
    placement_destroy(p);
}

/* Lists the GPUs that are requested by number, and GPU 0 if a layer has the tower's own device. */
static void requested_gpu_numbers_listed(void **state)
{
    static const struct {
        const char *rules, *device, *named;
        int highest;
    } forms[] = {
        {NULL, NULL, "1000", -1},       {"fc*=cpu", NULL, "1000", -1},
        {"*=gpu", NULL, "1000", -1},    {"fc*=gpu:0", NULL, "1000", 0},
        {"fc*=gpu:1", NULL, "1100", 1}, {"*=gpu:1", NULL, "0100", 1},
        {"*=/gpu:2", NULL, "0010", 2},  {"fc*=gpu:3,conv*=gpu:1", NULL, "0101", 3},
        {NULL, "gpu:2", "1010", 2},     {"fc1=cpu", "gpu:2", "1000", -1},
        {"*=gpu:9", NULL, "0000", -1},  {"*=round_robin", NULL, "1000", -1},
        {"nonsense", NULL, "0000", -1}, {"fc1=cpu,conv*=cpu,fc2=gpu:1", NULL, "0100", 1},
        {NULL, "nonsense", "1000", -1},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const char *device[N] = {[5] = forms[i].device};
        const struct placement_request r = {
            .layers = layers, .n_layers = N, .device = device, .rules = forms[i].rules};
        uint8_t named[4];
        int highest = 0;
        (void)CAPTURE((highest = placement_numbers(&r, named, 4), ST_OK));
        print_message("%s\n", forms[i].rules ? forms[i].rules : "-");
        assert_int_equal(highest, forms[i].highest);
        for (int k = 0; k < 4; k++)
            assert_int_equal(named[k], forms[i].named[k] == '1');
    }
}

/* Rules for parameters: on the host, or with their layer. */
static void parameters_placed_on_host_or_with_layer(void **state)
{
    static const struct layer two[] = {
        {.kind = LAYER_DENSE,
         .name = "a",
         .n_params = 2,
         .param = {0, 1},
         .input = {-1},
         .n_inputs = 1},
        {.kind = LAYER_DENSE, .name = "b", .n_params = 2, .param = {2, 3}, .n_inputs = 1},
    };
    static const struct net_param params[] = {
        {.name = "a/weights"}, {.name = "a/biases"}, {.name = "b/weights"}, {.name = "b/biases"}};
    static const struct {
        const char *rules;
        int n_gpus, soft, on_host;
        const char *says; /* part of an error, a warning, or the log of placements */
    } forms[] = {
        {"a=cpu", 1, 0, 0, "a/weights: /device:CPU:0 (rule 'a=cpu')"},
        {"*/weights=cpu", 1, 0, 1, "b/weights: /device:CPU:0 (rule '*/weights=cpu')"},
        {"*/weights=cpu", 1, 0, 1, " b: /device:GPU:0 (default)"},
        {"a/*=/job:localhost/replica:0/task:0/cpu:0,*/*=gpu", 1, 0, 1,
         "b/biases: /device:GPU:0 (rule '*/*=gpu')"},
        {"a/weights=gpu:0", 1, 0, 0, "a/weights: /device:GPU:0 (rule 'a/weights=gpu:0')"},
        {"b=gpu:1,b/weights=gpu:1", 2, 0, 0, "b/weights: /device:GPU:1 (rule"},
        {"b=cpu,b/weights=gpu", 1, 0, -1, "parameter 'b/weights' cannot be stored on gpu (rule"},
        {"a/weights=gpu:1", 2, 0, -1,
         "is stored on cpu or with its layer 'a'; place the layer there"},
        {"a/weights=gpu:1", 2, 1, 0, "parameter 'a/weights' cannot be stored on gpu:1"},
        {"a/weights=cpu:1", 1, 0, -1, "parameter 'a/weights' cannot be stored on cpu:1"},
        {"a/weights=gpu", 0, 0, -1, "parameter 'a/weights' cannot be stored on gpu"},
        {"c/*=cpu", 1, 0, -1, "'c/*=cpu' fits no parameter; use, for example, a/weights"},
        {"*/*=cpu,a/biases=gpu", 1, 0, -1,
         "match all its parameters, for example '*/*' matches 'a/biases'"},
        {"a/*=round_robin", 2, 0, -1, "'a/*=round_robin' is for parameters"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const struct placement_request r = {.layers = two,
                                            .n_layers = 2,
                                            .rules = forms[i].rules,
                                            .params = params,
                                            .n_params = 4,
                                            .n_gpus = forms[i].n_gpus,
                                            .soft = forms[i].soft};
        struct placement *p = NULL;
        capture_begin();
        enum status st = placement_create(&r, &p);
        if (st == ST_OK)
            placement_log(p, 0, 1, r.n_gpus > 0 ? 0 : PLACEMENT_CPU);
        capture_end();
        print_message("%s: %s\n", forms[i].rules, capture_text);
        assert_int_equal(st, forms[i].on_host < 0 ? ST_INVALID : ST_OK);
        assert_non_null(strstr(capture_text, forms[i].says));
        if (st == ST_OK)
            assert_int_equal(placement_keeps_on_host(p), forms[i].on_host);
        placement_destroy(p);
    }
}

/* CUDA's numbers of the GPUs are not 0, 1, ... */
static void cuda_numbers_name_gpus(void **state)
{
    const int number[] = {1, 4};
    struct placement_request r = {.layers = layers,
                                  .n_layers = N,
                                  .rules = "conv*=gpu:1,fc*=gpu:4",
                                  .n_gpus = 2,
                                  .number = number};
    struct placement *p;
    assert_int_equal(CAPTURE(placement_create(&r, &p)), ST_OK);
    assert_int_equal(placement_device(p, 0, SOMEBODY), 0);
    assert_int_equal(placement_device(p, 7, SOMEBODY), 1);
    (void)CAPTURE((placement_log(p, 0, 1, 0), ST_OK));
    assert_non_null(strstr(capture_text, "conv1/weights: /device:GPU:1 (rule"));
    assert_non_null(strstr(capture_text, "fc1/weights: /device:GPU:4 (rule"));
    placement_destroy(p);
    r.rules = "fc1=gpu:0";
    assert_int_equal(CAPTURE(placement_create(&r, &p)), ST_INVALID);
    assert_non_null(strstr(capture_text, "there are /device:CPU:0, /device:GPU:1, /device:GPU:4;"));
}

/* The host computes a layer that reads rows of servers, whatever the device of the other layers. */
static void layers_on_host_refused_on_gpus(void **state)
{
    static const struct layer wide[] = {
        {.kind = LAYER_EMBEDDING_BAG, .name = "bags"},
        {.kind = LAYER_SUM, .name = "wide", .n_inputs = 1, .input = {0}},
    };
    const char *in_file[] = {"gpu", NULL};
    static const char *const refused[] = {"*=gpu", "bags=gpu:1", "type:embedding_bag=gpu", NULL};
    static const char *const good[] = {"bags=cpu,*=gpu:1", "bags=cpu:0,wide=gpu:1",
                                       "bags=round_robin,wide=gpu:1"};
    struct placement_request r = {.layers = wide, .n_layers = 2, .n_gpus = 2};
    struct placement *p;
    for (int i = 0; i < 4; i++) {
        r.rules = refused[i];
        r.device = refused[i] ? NULL : in_file;
        r.soft = 0;
        assert_int_equal(CAPTURE(placement_create(&r, &p)), ST_INVALID);
        assert_int_equal(capture_lines(), 1);
        assert_non_null(strstr(capture_text, "layer 'bags' cannot be placed on gpu"));
        assert_non_null(strstr(capture_text, "place it on cpu"));
        r.soft = 1;
        assert_int_equal(CAPTURE(placement_create(&r, &p)), ST_OK);
        assert_int_equal(capture_lines(), 1);
        assert_non_null(strstr(capture_text, "the host computes it"));
        placement_destroy(p);
    }
    r.soft = 0;
    for (int i = 0; i < 3; i++) {
        r.rules = good[i];
        r.device = NULL;
        assert_int_equal(CAPTURE(placement_create(&r, &p)), ST_OK);
        assert_int_equal(capture_lines(), 0);
        assert_int_equal(placement_device(p, 0, SOMEBODY), SOMEBODY);
        assert_int_equal(placement_device(p, 1, SOMEBODY), 1);
        (void)CAPTURE((placement_log(p, 0, 1, 0), ST_OK));
        assert_non_null(strstr(capture_text, "bags: the host (rows of servers)"));
        placement_destroy(p);
    }
    r.rules = NULL;
    assert_int_equal(placement_create(&r, &p), ST_OK);
    (void)CAPTURE((placement_log(p, 0, 1, 0), ST_OK));
    assert_non_null(strstr(capture_text, "wide: /device:GPU:0 (default)\n"));
    placement_destroy(p);
}

int main(void)
{
    log_init("worker", 0, LOG_LEVEL_INFO);
    return RUN_TESTS(requested_gpu_numbers_listed, parameters_placed_on_host_or_with_layer,
                     cuda_numbers_name_gpus, rules_and_defaults_place_layers,
                     devices_read_in_all_spellings, bad_rules_refused,
                     any_text_accepted_or_refused_at_once, patterns_of_many_stars_match_in_time,
                     placements_logged, layers_without_parameters_stay_with_input,
                     layers_on_host_refused_on_gpus);
}
