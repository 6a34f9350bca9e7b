/* tests/kernel_faults_emulated_test.c - the CUDA backend where a call to CUDA, cuDNN or cuBLAS
 * fails: for each call that a piece of work makes, the work is done with that call failing. Either
 * it is reported, by a line that names the call and, where it is one layer's, the layer, or it is
 * one of the few that the backend can do without, and then the results are those of the undisturbed
 * work. Afterwards the same work is done with those results, and no memory of a card is missing.
 * Arguments: the folder of the emulation's library, and the name of the calls that fail, one by
 * one; left out, all calls do; and a pattern of the tests to run. Needs the emulation
 * (tests/emulation), which counts the calls. */
#include "kernels/backend.h"
#include "kernels/resident.h"
#include "tests/capture.h"
#include "tests/emulated.h"
#include "tests/kernel_reference.h"
#include "tests/kernel_tuning.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BATCH = 4, SIDE = 9, PIXELS = SIDE * SIDE, ITEMS = 8, MAX_RESULTS = 1 << 16, MAX_PLANS = 3 };
static const struct backend *backend;
static int stride = 1; /* of the calls that fail; sanitizers look at some of them */
static int only_one_name;
static void (*fault_set)(long long number);
static const char *(*fault_name)(void);
static size_t (*bytes_taken)(void);

/* What the backend can do without: it copies through staging memory, takes another algorithm, one
 * that is proposed where none is timed, or launches kernel by kernel. */
static const char *const dispensable[] = {"cudnnGetConvolutionForwardWorkspaceSize",
                                          "cudnnGetConvolutionBackwardFilterWorkspaceSize",
                                          "cudnnGetConvolutionBackwardDataWorkspaceSize",
                                          "an algorithm",
                                          "an engine",
                                          "cudnnFindConvolutionForwardAlgorithmEx",
                                          "cudnnFindConvolutionBackwardFilterAlgorithmEx",
                                          "cudnnFindConvolutionBackwardDataAlgorithmEx",
                                          "a captured launch",
                                          "a captured event or copy",
                                          "cudaGraphGetNodes",
                                          "cudaHostRegister",
                                          "cudaStreamBeginCapture",
                                          "cudaStreamEndCapture",
                                          "cudaGraphInstantiate"};

/* What the log has of a call if it is not its name. */
static const struct {
    const char *call, *said;
} said_as[] = {
    {"a launch", " kernel: "},
    {"cudaMalloc", "memory"}, /* what it was wanted for, and how much there is */
    {"cudaMalloc of a broken card", "cudaMalloc: "},
    {"cudaGetDeviceCount", "no device"},
};

static const char *const cleaning[2] = {"cudaSetDevice", "cudaStreamSynchronize"};

/* A network, its plans, and what came of them. */
struct job {
    struct reference *r;
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    uint8_t images[ITEMS * PIXELS], labels[ITEMS];
    struct plan *plan[MAX_PLANS];
    struct backend_group *group;
    struct backend_data *data;
    float result[MAX_RESULTS];
    size_t n_results;
    long long fault; /* the call that fails; 0: none */
    int layer;       /* whose work failed; -1: nobody's alone */
    int limited;     /* device 1 has a limit of memory */
    int may_go_on;   /* without what failed: it is said, */
    int n_silent[2]; /* but for so many calls of cleaning up, of these names */
};

static void build_all(struct reference *r)
{
    reference_conv(r, 3, 4, 2, -1); /* padded on one side more */
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    int skip = reference_last(r);
    reference_conv(r, 3, 3, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_MAX_POOL, 2, 1, -1);
    reference_join(r, LAYER_ADD, 2, (int[]){reference_last(r), skip});
    reference_join(r, LAYER_CONCAT, 2, (int[]){reference_last(r), skip});
    reference_pool(r, LAYER_AVG_POOL, 2, 2, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 12);
    reference_layer(r, LAYER_LAYER_NORM);
    reference_dropout(r, 0.3f);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
}

/* What that one has not, and no more. */
static void build_words(struct reference *r)
{
    reference_embedding(r, 256, 2);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, 0);
    reference_conv(r, 2, 2, 2, 0);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SIGMOID_XENT);
}

static struct job *job_create(void (*build)(struct reference *r))
{
    struct job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    struct reference *r = j->r = reference_create(1, SIDE, SIDE, BATCH, 5);
    build(r);
    j->layer = -1;
    for (int k = 0; k < r->n_params; k++) {
        size_t n = (size_t)r->param_elems[k];
        j->params[k] = calloc(n, sizeof(float));
        j->grads[k] = calloc(n, sizeof(float));
        assert_true(j->params[k] != NULL && j->grads[k] != NULL);
        for (size_t i = 0; i < n; i++)
            j->params[k][i] = 0.1f + 0.01f * (float)((i * 7 + (size_t)k * 3) % 11);
    }
    for (int k = 0; k < ITEMS * PIXELS; k++)
        j->images[k] = (uint8_t)(k * 37 + k / 5);
    for (int k = 0; k < ITEMS; k++)
        j->labels[k] = (uint8_t)(k % 10);
    return j;
}

/* Results stay. */
static void job_end(struct job *j)
{
    for (int p = 0; p < MAX_PLANS; p++)
        if (j->plan[p] != NULL)
            backend->plan_destroy(j->plan[p]);
    if (j->data != NULL)
        backend->data_destroy(j->data);
    if (j->group != NULL)
        backend->group_destroy(j->group);
    if (j->limited)
        assert_int_equal(backend->set_memory(1, 0, 0), ST_OK);
    memset(j->plan, 0, sizeof j->plan);
    j->limited = 0;
    j->data = NULL;
    j->group = NULL;
}

static void job_destroy(struct job *j)
{
    job_end(j);
    for (int k = 0; k < j->r->n_params; k++) {
        free(j->params[k]);
        free(j->grads[k]);
    }
    reference_destroy(j->r);
    free(j);
}

static void note(struct job *j, const float *values, size_t n)
{
    assert_true(j->n_results + n <= MAX_RESULTS);
    memcpy(j->result + j->n_results, values, n * sizeof *values);
    j->n_results += n;
}

static struct backend_plan_config config(struct job *j)
{
    return (struct backend_plan_config){.layers = j->r->layers,
                                        .n_layers = j->r->n_layers,
                                        .batch = BATCH,
                                        .n_threads = 1,
                                        .n_params = j->r->n_params,
                                        .params = (const float *const *)j->params,
                                        .grads = j->grads,
                                        .seed = 5,
                                        .memory_limit_bytes = 6 << 20, /* quickly filled */
                                        .deterministic = test_deterministic(),
                                        .tuning = test_tuning()};
}

/* st: what came of a layer's work. */
static enum status at(struct job *j, int layer, enum status st)
{
    if (st != ST_OK)
        j->layer = layer;
    return st;
}

static enum status plan_create(struct job *j, const struct backend_plan_config *cfg, int p)
{
    enum status st = ST_OK;
    TRY(backend->plan_create(cfg, &j->plan[p]));
    for (int i = 0; i < j->r->n_layers; i++)
        for (int k = 0; (cfg->mine == NULL || cfg->mine[i]) && k < j->r->layers[i].n_params; k++)
            TRY(at(j, i, backend->load_param(j->plan[p], j->r->layers[i].param[k])));
done:
    return st;
}

static enum status forwards(struct job *j, int p, int train)
{
    enum status st = ST_OK;
    for (int i = 0; i < j->r->n_layers; i++)
        TRY(at(j, i, backend->forward(j->plan[p], i, train)));
done:
    return st;
}

static enum status backwards(struct job *j, int p)
{
    enum status st = ST_OK;
    for (int i = j->r->n_layers - 1; i >= 0; i--)
        TRY(at(j, i, backend->backward(j->plan[p], i)));
done:
    return st;
}

static enum status grads_wait(struct job *j, int p)
{
    enum status st = ST_OK;
    for (int i = j->r->n_layers - 1; i >= 0; i--)
        TRY(at(j, i, backend->wait_grads(j->plan[p], i)));
done:
    return st;
}

static enum status result(struct job *j, int p)
{
    float loss;
    int n_correct;
    enum status st = at(j, j->r->n_layers - 1, backend->result(j->plan[p], &loss, &n_correct));
    if (st == ST_OK)
        note(j, &loss, 1);
    return st;
}

static void note_grads(struct job *j)
{
    for (int k = 0; k < j->r->n_params; k++)
        note(j, j->grads[k], (size_t)j->r->param_elems[k]);
}

static enum status output_read(struct job *j, int p, int layer)
{
    float output[BATCH * 10];
    enum status st = at(j, layer, backend->read_output(j->plan[p], layer, output));
    if (st == ST_OK)
        note(j, output, sizeof output / sizeof *output);
    return st;
}

static enum status input_set(struct job *j, struct plan *plan, int first, int n)
{
    const uint8_t *image[BATCH];
    uint64_t position[BATCH];
    for (int i = 0; i < n; i++) {
        image[i] = j->images + (first + i) * PIXELS;
        position[i] = (uint64_t)(first + i);
    }
    return backend->set_input(plan, image, j->labels + first, position, n);
}

/* A pass over samples that are on the host, forward and back; the parameters move a little. */
static enum status pass(struct job *j, int first, int n)
{
    enum status st = ST_OK;
    TRY(input_set(j, j->plan[0], first, n));
    TRY(forwards(j, 0, 1));
    TRY(backwards(j, 0));
    TRY(result(j, 0));
    TRY(grads_wait(j, 0));
    note_grads(j);
    for (int k = 0; k < j->r->n_params; k++) {
        for (int64_t i = 0; i < j->r->param_elems[k]; i++)
            j->params[k][i] -= 0.01f * j->grads[k][i];
        TRY(backend->load_param(j->plan[0], k));
    }
done:
    return st;
}

/* Steps from outside, of two sizes; and outputs that are read, dropped and not. */
static enum status work_outside(struct job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    TRY(plan_create(j, &cfg, 0));
    TRY(pass(j, 0, BATCH));
    TRY(pass(j, 4, BATCH - 1));
    TRY(pass(j, 2, BATCH));
    TRY(output_read(j, 0, j->r->n_layers - 2));
    TRY(forwards(j, 0, 0));
    TRY(output_read(j, 0, j->r->n_layers - 2));
    TRY(backend->finish(j->plan[0]));
done:
    return st;
}

/* A step with gradients that are rounded on the card. */
static enum status rounded(struct job *j, enum backend_precision precision, enum dtype dtype)
{
    enum status st = ST_OK;
    uint16_t *grads[REFERENCE_MAX_PARAMS] = {NULL};
    struct backend_plan_config cfg = config(j);
    cfg.precision = precision;
    cfg.grads16 = grads;
    cfg.grads_dtype = dtype;
    for (int k = 0; k < j->r->n_params; k++)
        grads[k] = (uint16_t *)j->grads[k];
    TRY(plan_create(j, &cfg, 0));
    TRY(input_set(j, j->plan[0], 0, BATCH));
    TRY(forwards(j, 0, 1));
    TRY(backwards(j, 0));
    TRY(grads_wait(j, 0));
    for (int k = 0; k < j->r->n_params; k++)
        note(j, j->grads[k], (size_t)j->r->param_elems[k] / 2);
    TRY(backend->finish(j->plan[0]));
done:
    return st;
}

static enum status work_bf16(struct job *j)
{
    return rounded(j, BACKEND_BF16, DTYPE_BF16);
}

static enum status work_tf32(struct job *j)
{
    return rounded(j, BACKEND_TF32, DTYPE_F16);
}

/* Samples of a data set on the device. */
static enum status work_items(struct job *j)
{
    enum status st = ST_OK;
    struct backend_device info;
    struct backend_plan_config cfg = config(j);
    uint32_t item[BATCH] = {3, 7, 0, 5};
    TRY(backend->device_info(0, &info));
    TRY(plan_create(j, &cfg, 0));
    TRY(backend->data_create(0, j->images, j->labels, ITEMS, PIXELS, &j->data));
    for (int n = BATCH; n > BATCH - 2; n--) {
        TRY(backend->set_items(j->plan[0], j->data, item, NULL, n));
        TRY(forwards(j, 0, 1));
        TRY(backwards(j, 0));
        TRY(result(j, 0));
        TRY(grads_wait(j, 0));
        note_grads(j);
    }
    TRY(backend->finish(j->plan[0]));
done:
    return st;
}

/* On a device whose memory is limited, and taken at once; inference. */
static enum status work_reserved(struct job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    cfg.device = 1;
    cfg.inference_only = 1;
    j->limited = 1;
    TRY(backend->set_memory(1, 6 << 20, 1));
    TRY(plan_create(j, &cfg, 0));
    TRY(input_set(j, j->plan[0], 0, BATCH));
    TRY(forwards(j, 0, 0));
    TRY(result(j, 0));
    TRY(backend->finish(j->plan[0]));
done:
    return st;
}

/* Steps that stay on the device. */
static enum status work_inside(struct job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    float keep[REFERENCE_MAX_PARAMS];
    uint32_t item[ITEMS];
    struct resident_result result;
    for (int k = 0; k < REFERENCE_MAX_PARAMS; k++)
        keep[k] = -1.0f;
    for (uint32_t k = 0; k < ITEMS; k++)
        item[k] = (k * 3) % ITEMS;
    TRY(backend->plan_create(&cfg, &j->plan[0]));
    TRY(backend->data_create(0, j->images, j->labels, ITEMS, PIXELS, &j->data));
    for (int k = 0; k < j->r->n_params; k++)
        TRY(backend->load_param(j->plan[0], k));
    struct resident_config resident = {.data = j->data, .keep = keep, .stride = BATCH, .graphs = 1};
    optim_defaults(OPTIM_ADAM, &resident.optim);
    TRY(backend->resident->begin(j->plan[0], &resident));
    for (uint64_t k = 0; k < 2; k++)
        TRY(backend->resident->order(j->plan[0], k, item));
    for (int k = 0; k < 2; k++) {
        TRY(backend->resident->run(j->plan[0], 2));
        TRY(backend->resident->wait(j->plan[0], &result));
        note(j, &result.loss, 1);
    }
    for (int k = 0; k < j->r->n_params; k++) {
        TRY(backend->resident->read_param(j->plan[0], k, j->params[k]));
        note(j, j->params[k], (size_t)j->r->param_elems[k]);
    }
done:
    return st;
}

static enum status group_create(struct job *j, int n)
{
    int device[MAX_PLANS] = {0, 1, 0};
    float weight[MAX_PLANS] = {0.25f, 0.5f, 0.25f};
    struct backend_group_config cfg = {
        .n = n, .device = device, .weight = weight, .deterministic = 1};
    return backend->group_create(&cfg, &j->group);
}

/* A group finds out whether NCCL works, and does without it; a tower of it. */
static enum status work_trial(struct job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    j->may_go_on = 1;
    j->n_silent[0] = j->n_silent[1] = 2;
    TRY(group_create(j, 2));
    TRY(plan_create(j, &cfg, 0));
    TRY(input_set(j, j->plan[0], 0, BATCH));
    TRY(forwards(j, 0, 1));
    TRY(result(j, 0));
done:
    return st;
}

/* What fails in the end of a plan and of a data set is not the next plan's. */
static enum status work_ends(struct job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    j->may_go_on = 1;
    j->n_silent[0] = 2;
    j->n_silent[1] = 3;
    fault_set(0);
    TRY(plan_create(j, &cfg, 1));
    TRY(plan_create(j, &cfg, 0));
    TRY(backend->data_create(0, j->images, j->labels, ITEMS, PIXELS, &j->data));
    TRY(backend->finish(j->plan[1]));
    fault_set(j->fault);
    backend->plan_destroy(j->plan[1]);
    backend->data_destroy(j->data);
    j->plan[1] = NULL;
    j->data = NULL;
    TRY(input_set(j, j->plan[0], 0, BATCH));
    TRY(forwards(j, 0, 1));
    TRY(result(j, 0));
done:
    return st;
}

/* Three towers on two cards, by one thread. Calls are counted once the group is there. */
static enum status work_group(struct job *j)
{
    enum status st = ST_OK;
    fault_set(0);
    TRY(group_create(j, MAX_PLANS));
    fault_set(j->fault);
    for (int p = 0; p < MAX_PLANS; p++) {
        struct backend_plan_config cfg = config(j);
        cfg.group = j->group;
        cfg.rank = p;
        cfg.device = p % 2;
        TRY(plan_create(j, &cfg, p));
    }
    for (int step = 0; step < 2; step++) {
        for (int p = 0; p < MAX_PLANS; p++) {
            TRY(input_set(j, j->plan[p], p * 2, BATCH));
            TRY(forwards(j, p, 1));
            TRY(backwards(j, p));
        }
        for (int p = 0; p < MAX_PLANS; p++)
            TRY(grads_wait(j, p));
        note_grads(j);
    }
    for (int p = 0; p < MAX_PLANS; p++)
        TRY(backend->finish(j->plan[p]));
done:
    return st;
}

static enum status work_group_host(struct job *j)
{
    setenv("WEIR_EMULATED_NCCL", "absent", 1);
    enum status st = work_group(j);
    unsetenv("WEIR_EMULATED_NCCL");
    return st;
}

/* The first half of the layers on one card, the others on the second. */
static enum status work_split(struct job *j)
{
    enum status st = ST_OK;
    int n = j->r->n_layers, cut = n / 2;
    uint8_t mine[2][REFERENCE_MAX_LAYERS] = {{0}};
    float between[1 << 12];
    for (int i = 0; i < n; i++)
        mine[i > cut][i] = 1;
    assert_true(BATCH * shape_elems(&j->r->layers[cut].out) <= 1 << 12);
    for (int p = 0; p < 2; p++) {
        struct backend_plan_config cfg = config(j);
        cfg.mine = mine[p];
        cfg.device = p;
        TRY(plan_create(j, &cfg, p));
    }
    for (int step = 0; step < 2; step++) {
        for (int p = 0; p < 2; p++)
            TRY(input_set(j, j->plan[p], step, BATCH));
        for (int i = 0; i < n; i++) {
            if (i == cut + 1) {
                TRY(at(j, cut, backend->read_output(j->plan[0], cut, between)));
                TRY(at(j, cut, backend->set_output(j->plan[1], cut, between)));
            }
            TRY(at(j, i, backend->forward(j->plan[i > cut], i, 1)));
        }
        for (int i = n - 1; i >= 0; i--) {
            if (i == cut) {
                TRY(at(j, cut, backend->read_output_grad(j->plan[1], cut, between)));
                TRY(at(j, cut, backend->set_output_grad(j->plan[0], cut, between)));
            }
            TRY(at(j, i, backend->backward(j->plan[i > cut], i)));
        }
        for (int i = n - 1; i >= 0; i--)
            TRY(at(j, i, backend->wait_grads(j->plan[i > cut], i)));
        note_grads(j);
    }
    for (int p = 0; p < 2; p++)
        TRY(backend->finish(j->plan[p]));
done:
    return st;
}

/* Samples and targets of floats, with another loss; and an evaluation beside it. */
static enum status work_floats(struct job *j)
{
    enum status st = ST_OK;
    int last = j->r->n_layers - 1;
    struct backend_plan_config cfg = config(j);
    float samples[BATCH][PIXELS], targets[BATCH][10];
    const float *sample[BATCH], *target[BATCH];
    uint64_t position[BATCH];
    for (int i = 0; i < BATCH; i++) {
        for (int k = 0; k < PIXELS; k++)
            samples[i][k] = (float)(j->images[i * PIXELS + k]) / 100.0f;
        for (int k = 0; k < 10; k++)
            targets[i][k] = (float)((i + k) % 3) / 2.0f;
        sample[i] = samples[i];
        target[i] = targets[i];
        position[i] = (uint64_t)i;
    }
    j->r->layers[last].kind = LAYER_SQUARED;
    for (int p = 0; p < 2; p++) {
        cfg.inference_only = p;
        TRY(plan_create(j, &cfg, p));
        for (int step = 0; step < 2; step++) {
            TRY(backend->set_floats(j->plan[p], sample, NULL, position, BATCH));
            TRY(backend->set_targets(j->plan[p], target, BATCH));
            TRY(forwards(j, p, !p));
            if (p == 0)
                TRY(backwards(j, p));
            TRY(result(j, p));
            if (p == 0)
                TRY(grads_wait(j, p));
        }
        TRY(backend->finish(j->plan[p]));
    }
    note_grads(j);
done:
    return st;
}

static int is_dispensable(const char *name)
{
    for (size_t k = 0; k < sizeof dispensable / sizeof *dispensable; k++)
        if (strcmp(name, dispensable[k]) == 0)
            return 1;
    return 0;
}

/* Results are those of `want`. */
static int same(const struct job *j, const struct job *want)
{
    return j->n_results == want->n_results &&
           memcmp(j->result, want->result, want->n_results * sizeof *want->result) == 0;
}

/* Names what was captured the layer, or the relu or pool behind it that is part of it? */
static int is_layer_said(const struct job *j)
{
    char layer[128];
    for (int i = j->layer; i < j->r->n_layers && i <= j->layer + 2; i++) {
        snprintf(layer, sizeof layer, "layer '%s': ", j->r->layers[i].name);
        if (strstr(capture_text, layer) != NULL)
            return 1;
    }
    return 0;
}

/* Does what was captured name the call, and the layer? */
static int is_said(const struct job *j, const char *name)
{
    char plain[128];
    const char *said = plain;
    snprintf(plain, sizeof plain, "%s: ", name);
    for (size_t k = 0; k < sizeof said_as / sizeof *said_as; k++)
        if (strcmp(name, said_as[k].call) == 0)
            said = said_as[k].said;
    return strstr(capture_text, said) != NULL &&
           (j->layer < 0 || strcmp(name, "cudaSetDevice") == 0 || is_layer_said(j));
}

/* silent: how many failures of the names in `cleaning` were so far. */
static void check_one(const struct job *j, const struct job *want, enum status st, const char *name,
                      int silent[2])
{
    int said = is_dispensable(name) || is_said(j, name);
    if (st == ST_OK && !is_dispensable(name) && !j->may_go_on)
        fail_msg("call %lld, %s, fails and nobody says so", j->fault, name);
    if (st == ST_OK && !same(j, want))
        fail_msg("call %lld, %s, fails, and the results are others", j->fault, name);
    if (!said && (st != ST_OK || !j->may_go_on))
        fail_msg("call %lld, %s, fails, and of that no line names it and its layer:\n%s", j->fault,
                 name, capture_text);
    for (int k = 0; k < 2 && !said; k++)
        said = strcmp(name, cleaning[k]) == 0 && silent[k]++ < j->n_silent[k];
    if (!said)
        fail_msg("call %lld, %s, fails and nobody says so", j->fault, name);
}

/* least: calls that it makes. */
static void check_work(void (*build)(struct reference *r), enum status (*work)(struct job *j),
                       int least)
{
    struct job *want = job_create(build), *again;
    assert_int_equal(work(want), ST_OK);
    job_end(want);
    long long n_failed = 0;
    int silent[2] = {0, 0};
    for (long long number = 1;; number += stride) {
        struct job *j = job_create(build);
        j->fault = number;
        fault_set(number);
        enum status st = CAPTURE(work(j));
        const char *name = fault_name();
        fault_set(0);
        if (name != NULL)
            check_one(j, want, st, name, silent);
        job_destroy(j);
        if (name == NULL) {
            assert_int_equal(st, ST_OK);
            break;
        }
        n_failed++;
        if (bytes_taken() != 0)
            fail_msg("call %lld, %s, fails, and %zu bytes of a card are lost", number, name,
                     bytes_taken());
    }
    again = job_create(build);
    assert_int_equal(work(again), ST_OK);
    assert_true(same(again, want));
    job_destroy(again);
    job_destroy(want);
    assert_int_equal(bytes_taken(), 0);
    assert_true(only_one_name || n_failed * stride >= least);
}

static void test_steps_from_outside(void **state)
{
    (void)state;
    check_work(build_all, work_outside, 400);
}

static void test_bf16(void **state)
{
    (void)state;
    check_work(build_all, work_bf16, 200);
}

static void test_tf32(void **state)
{
    (void)state;
    check_work(build_words, work_tf32, 100);
}

static void test_items(void **state)
{
    (void)state;
    check_work(build_words, work_items, 100);
}

static void test_reserved(void **state)
{
    (void)state;
    check_work(build_words, work_reserved, 50);
}

static void test_steps_inside(void **state)
{
    (void)state;
    check_work(build_all, work_inside, 200);
}

static void test_split(void **state)
{
    (void)state;
    check_work(build_all, work_split, 300);
}

static void test_floats(void **state)
{
    (void)state;
    check_work(build_all, work_floats, 300);
}

static void test_group(void **state)
{
    (void)state;
    check_work(build_words, work_group, 200);
}

static void test_group_on_the_host(void **state)
{
    (void)state;
    check_work(build_words, work_group_host, 200);
}

static void test_trial_of_nccl(void **state)
{
    (void)state;
    if (!WEIR_TEST_NCCL)
        skip_because("this build has no NCCL");
    check_work(build_words, work_trial, 60);
}

static void test_ends(void **state)
{
    (void)state;
    check_work(build_words, work_ends, 15);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trial_of_nccl), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_reserved),      cmocka_unit_test(test_items),
        cmocka_unit_test(test_tf32),          cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_floats),        cmocka_unit_test(test_steps_from_outside),
        cmocka_unit_test(test_steps_inside),  cmocka_unit_test(test_split),
        cmocka_unit_test(test_group),         cmocka_unit_test(test_group_on_the_host),
    };
    const char *slowness = getenv("WEIR_TEST_SLOWNESS");
    if (slowness != NULL && atoi(slowness) > 1)
        stride = 11;
    /* memory of cards comes from the heap again and again, without a fault for each page */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    int status;
    void *so = emulated_open(argc > 1 ? argv[1] : WEIR_TEST_DIR, &backend, &status);
    if (so == NULL)
        return status;
    if (!emulated_look_up(so, "emulation_fault_set", &fault_set) ||
        !emulated_look_up(so, "emulation_fault_name", &fault_name) ||
        !emulated_look_up(so, "emulation_bytes_taken", &bytes_taken))
        return 1;
    if (argc > 2) {
        void (*only)(const char *name);
        void *f = dlsym(so, "emulation_fault_only");
        memcpy(&only, &f, sizeof only);
        only(argv[2]);
        only_one_name = 1;
    }
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
