/* tests/kernel_faults.c - see the header. */
#include "tests/kernel_faults.h"
#include "kernels/device_report.h"
#include "kernels/device_updates.h"
#include "kernels/parts.h"
#include "kernels/resident.h"
#include "kernels/vector/digest.h"
#include "kernels/vector/dtype.h"
#include "tests/check.h"
#include "tests/kernel_tuning.h"
#include <stdlib.h>
#include <string.h>

static const struct parts_config parts = {.elems = 30, .largest_grad = 1e30f};
static const struct backend *tested;
static void (*fault_set)(long long number);

void fault_begin(const struct backend *backend, void (*set)(long long number))
{
    tested = backend;
    fault_set = set;
}

void fault_build_all(struct reference *r)
{
    reference_conv(r, 3, 4, 2, -1); /* padded more on one side */
    reference_layer(r, LAYER_BATCH_NORM);
    reference_layer(r, LAYER_RELU);
    int skip = reference_last(r);
    reference_conv(r, 3, 2, 1, -1); /* padded in the same way, with a gradient by its input */
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

void fault_build_words(struct reference *r)
{
    reference_embedding(r, 256, 2);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, 0);
    reference_conv(r, 2, 2, 2, 0);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 10);
    reference_layer(r, LAYER_SIGMOID_XENT);
}

struct fault_job *fault_job_create(void (*build)(struct reference *r))
{
    struct fault_job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    struct reference *r = j->r = reference_create(1, FAULT_SIDE, FAULT_SIDE, FAULT_BATCH, 5);
    build(r);
    j->layer = -1;
    j->tolerance = 1e-5;
    for (int k = 0; k < r->n_params; k++) {
        size_t n = (size_t)r->param_elems[k];
        j->params[k] = calloc(n, sizeof(float));
        j->grads[k] = calloc(n, sizeof(float));
        assert_true(j->params[k] != NULL && j->grads[k] != NULL);
        for (size_t i = 0; i < n; i++)
            j->params[k][i] = 0.1f + 0.01f * (float)((i * 7 + (size_t)k * 3) % 11);
    }
    for (int k = 0; k < FAULT_ITEMS * FAULT_PIXELS; k++)
        j->images[k] = (uint8_t)(k * 37 + k / 5);
    for (int k = 0; k < FAULT_ITEMS; k++)
        j->labels[k] = (uint8_t)(k % 10);
    return j;
}

void fault_job_end(struct fault_job *j)
{
    for (int p = 0; p < FAULT_MAX_PLANS; p++)
        if (j->plan[p] != NULL)
            tested->plan_destroy(j->plan[p]);
    for (int d = 0; d < 2; d++)
        if (j->data[d] != NULL)
            tested->data_destroy(j->data[d]);
    if (j->group != NULL)
        tested->group_destroy(j->group);
    if (j->limited)
        assert_int_equal(tested->set_memory(1, 0, 0), ST_OK);
    memset(j->plan, 0, sizeof j->plan);
    memset(j->data, 0, sizeof j->data);
    j->limited = 0;
    j->group = NULL;
}

void fault_job_destroy(struct fault_job *j)
{
    fault_job_end(j);
    for (int k = 0; k < j->r->n_params; k++) {
        free(j->params[k]);
        free(j->grads[k]);
    }
    reference_destroy(j->r);
    free(j);
}

static void note(struct fault_job *j, const float *values, size_t n)
{
    assert_true(j->n_results + n <= FAULT_MAX_RESULTS && j->n_notes < FAULT_MAX_NOTES);
    memcpy(j->result + j->n_results, values, n * sizeof *values);
    j->n_results += n;
    j->end[j->n_notes++] = j->n_results;
}

/* Returns a limit, in bytes, that a plan soon reaches. It includes the workspaces of two streams if
 * the tuning needs two. */
static uint64_t memory_limit(void)
{
    return (uint64_t)(test_tuning() & TUNING_BRANCHES ? 48 : 6) << 20;
}

static struct backend_plan_config config(struct fault_job *j)
{
    return (struct backend_plan_config){.layers = j->r->layers,
                                        .n_layers = j->r->n_layers,
                                        .batch = FAULT_BATCH,
                                        .n_threads = 1,
                                        .n_params = j->r->n_params,
                                        .params = (const float *const *)j->params,
                                        .grads = j->grads,
                                        .seed = 5,
                                        .memory_limit_bytes = memory_limit(),
                                        .deterministic = test_deterministic(),
                                        .tuning = test_tuning()};
}

/* Records the layer if `st`, the result of its work, is an error. Returns st. */
static enum status at(struct fault_job *j, int layer, enum status st)
{
    if (st != ST_OK)
        j->layer = layer;
    return st;
}

static enum status plan_create(struct fault_job *j, const struct backend_plan_config *cfg, int p)
{
    enum status st = ST_OK;
    TRY(tested->plan_create(cfg, &j->plan[p]));
    for (int i = 0; i < j->r->n_layers; i++)
        for (int k = 0; (cfg->mine == NULL || cfg->mine[i]) && k < j->r->layers[i].n_params; k++)
            TRY(at(j, i, tested->load_param(j->plan[p], j->r->layers[i].param[k])));
done:
    return st;
}

static enum status forwards(struct fault_job *j, int p, int train)
{
    enum status st = ST_OK;
    for (int i = 0; i < j->r->n_layers; i++)
        TRY(at(j, i, tested->forward(j->plan[p], i, train)));
done:
    return st;
}

static enum status backwards(struct fault_job *j, int p)
{
    enum status st = ST_OK;
    for (int i = j->r->n_layers - 1; i >= 0; i--)
        TRY(at(j, i, tested->backward(j->plan[p], i)));
done:
    return st;
}

static enum status grads_wait(struct fault_job *j, int p)
{
    enum status st = ST_OK;
    for (int i = j->r->n_layers - 1; i >= 0; i--)
        TRY(at(j, i, tested->wait_grads(j->plan[p], i)));
done:
    return st;
}

static enum status parts_wait(struct fault_job *j, int p)
{
    enum status st = ST_OK;
    for (int i = j->r->n_layers - 1; i >= 0; i--) {
        const struct layer *l = &j->r->layers[i];
        bool suspect = true;
        if (l->n_params == 0)
            continue;
        TRY(at(j, i, tested->parts->check(j->plan[p], i, &suspect)));
        assert_false(suspect);
        for (int k = 0; k < l->n_params; k++)
            for (int64_t n = 0; n * parts.elems < j->r->param_elems[l->param[k]]; n++)
                TRY(at(j, i, tested->parts->wait(j->plan[p], l->param[k], n)));
    }
done:
    return st;
}

static enum status parts_load(struct fault_job *j, int p, int param)
{
    enum status st = ST_OK;
    for (int64_t n = 0; n * parts.elems < j->r->param_elems[param]; n++)
        TRY(tested->parts->load(j->plan[p], param, n));
done:
    return st;
}

static enum status result(struct fault_job *j, int p)
{
    float loss;
    int n_correct;
    enum status st = at(j, j->r->n_layers - 1, tested->result(j->plan[p], &loss, &n_correct));
    if (st == ST_OK)
        note(j, &loss, 1);
    return st;
}

static void note_grads(struct fault_job *j)
{
    for (int k = 0; k < j->r->n_params; k++)
        note(j, j->grads[k], (size_t)j->r->param_elems[k]);
}

static enum status output_read(struct fault_job *j, int p, int layer)
{
    float output[FAULT_BATCH * 10];
    enum status st = at(j, layer, tested->read_output(j->plan[p], layer, output));
    if (st == ST_OK)
        note(j, output, sizeof output / sizeof *output);
    return st;
}

static enum status input_set(struct fault_job *j, struct plan *plan, int first, int n)
{
    const uint8_t *image[FAULT_BATCH];
    uint64_t position[FAULT_BATCH];
    for (int i = 0; i < n; i++) {
        image[i] = j->images + (first + i) * FAULT_PIXELS;
        position[i] = (uint64_t)(first + i);
    }
    return tested->set_input(plan, image, j->labels + first, position, n);
}

/* Runs a pass over samples on the host, forward and backward; the parameters change a little. */
static enum status pass(struct fault_job *j, int first, int n)
{
    enum status st = ST_OK;
    TRY(input_set(j, j->plan[0], first, n));
    TRY(forwards(j, 0, 1));
    TRY(backwards(j, 0));
    TRY(result(j, 0));
    TRY(first == 0 ? grads_wait(j, 0) : parts_wait(j, 0));
    note_grads(j);
    for (int k = 0; k < j->r->n_params; k++) {
        for (int64_t i = 0; i < j->r->param_elems[k]; i++)
            j->params[k][i] -= 0.01f * j->grads[k][i];
        TRY(first == 0 ? tested->load_param(j->plan[0], k) : parts_load(j, 0, k));
    }
done:
    return st;
}

enum status fault_work_outside(struct fault_job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    cfg.parts = &parts;
    TRY(plan_create(j, &cfg, 0));
    TRY(pass(j, 0, FAULT_BATCH));
    TRY(pass(j, 4, FAULT_BATCH - 1));
    TRY(pass(j, 2, FAULT_BATCH));
    TRY(output_read(j, 0, j->r->n_layers - 2));
    TRY(forwards(j, 0, 0));
    TRY(output_read(j, 0, j->r->n_layers - 2));
    TRY(tested->finish(j->plan[0]));
done:
    return st;
}

/* Runs a step with gradients that are rounded on the card. */
static enum status rounded(struct fault_job *j, enum backend_precision precision, enum dtype dtype)
{
    enum status st = ST_OK;
    uint16_t *grads[REFERENCE_MAX_PARAMS] = {NULL};
    struct backend_plan_config cfg = config(j);
    cfg.parts = &parts;
    cfg.precision = precision;
    cfg.grads16 = grads;
    cfg.grads_dtype = dtype;
    j->tolerance = precision == BACKEND_BF16 ? 0x1p-6 : 0x1p-9;
    for (int k = 0; k < j->r->n_params; k++)
        grads[k] = (uint16_t *)j->grads[k];
    TRY(plan_create(j, &cfg, 0));
    TRY(input_set(j, j->plan[0], 0, FAULT_BATCH));
    TRY(forwards(j, 0, 1));
    TRY(backwards(j, 0));
    TRY(parts_wait(j, 0));
    for (int k = 0; k < j->r->n_params; k++) {
        float decoded[1 << 12];
        size_t n = (size_t)j->r->param_elems[k];
        assert_true(n <= sizeof decoded / sizeof *decoded);
        dtype_decode(dtype, decoded, grads[k], n);
        note(j, decoded, n);
    }
    TRY(tested->finish(j->plan[0]));
done:
    return st;
}

enum status fault_work_bf16(struct fault_job *j)
{
    return rounded(j, BACKEND_BF16, DTYPE_BF16);
}

enum status fault_work_tf32(struct fault_job *j)
{
    return rounded(j, BACKEND_TF32, DTYPE_F16);
}

enum status fault_work_items(struct fault_job *j)
{
    enum status st = ST_OK;
    struct backend_device info;
    struct backend_plan_config cfg = config(j);
    uint32_t item[FAULT_BATCH] = {3, 7, 0, 5};
    TRY(tested->device_info(0, &info));
    TRY(plan_create(j, &cfg, 0));
    TRY(tested->data_create(0, j->images, j->labels, FAULT_ITEMS, FAULT_PIXELS, &j->data[0]));
    for (int n = FAULT_BATCH; n > FAULT_BATCH - 2; n--) {
        TRY(tested->set_items(j->plan[0], j->data[0], item, NULL, n));
        TRY(forwards(j, 0, 1));
        TRY(backwards(j, 0));
        TRY(result(j, 0));
        TRY(grads_wait(j, 0));
        note_grads(j);
    }
    TRY(tested->finish(j->plan[0]));
done:
    return st;
}

enum status fault_work_copies(struct fault_job *j)
{
    struct copy_rates rates;
    return tested->report->copy_rates(1, 1 << 20, &rates);
}

enum status fault_work_reserved(struct fault_job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    cfg.device = 1;
    cfg.inference_only = 1;
    j->limited = 1;
    TRY(tested->set_memory(1, 6 << 20, 1));
    TRY(plan_create(j, &cfg, 0));
    TRY(input_set(j, j->plan[0], 0, FAULT_BATCH));
    TRY(forwards(j, 0, 0));
    TRY(result(j, 0));
    TRY(tested->finish(j->plan[0]));
done:
    return st;
}

/* Trains on the device, with plan 0 and its `n_peers` peers. */
static enum status train_inside(struct fault_job *j, const struct resident_peer *peers, int n_peers)
{
    enum status st = ST_OK;
    float keep[REFERENCE_MAX_PARAMS];
    uint32_t item[FAULT_ITEMS];
    struct resident_result result;
    struct resident_config cfg = {.data = j->data[0],
                                  .keep = keep,
                                  .stride = FAULT_BATCH * (1 + (uint64_t)n_peers),
                                  .graphs = 1,
                                  .peers = peers,
                                  .n_peers = n_peers};
    for (int k = 0; k < REFERENCE_MAX_PARAMS; k++)
        keep[k] = -1.0f;
    for (uint32_t k = 0; k < FAULT_ITEMS; k++)
        item[k] = (k * 3) % FAULT_ITEMS;
    optim_defaults(OPTIM_ADAM, &cfg.optim);
    TRY(tested->resident->begin(j->plan[0], &cfg));
    for (uint64_t k = 0; k < 2; k++)
        TRY(tested->resident->order(j->plan[0], k, item));
    for (int k = 0; k < 2; k++) {
        TRY(tested->resident->run(j->plan[0], 2));
        TRY(tested->resident->wait(j->plan[0], &result));
        note(j, &result.loss, 1);
    }
    for (int k = 0; k < j->r->n_params; k++) {
        TRY(tested->resident->read_param(j->plan[0], k, j->params[k]));
        note(j, j->params[k], (size_t)j->r->param_elems[k]);
    }
done:
    return st;
}

enum status fault_work_inside(struct fault_job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    TRY(tested->plan_create(&cfg, &j->plan[0]));
    TRY(tested->data_create(0, j->images, j->labels, FAULT_ITEMS, FAULT_PIXELS, &j->data[0]));
    for (int k = 0; k < j->r->n_params; k++)
        TRY(tested->load_param(j->plan[0], k));
    TRY(train_inside(j, NULL, 0));
done:
    return st;
}

/* Trains two steps with updates on the device between them. */
enum status fault_work_updates(struct fault_job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    float keep[REFERENCE_MAX_PARAMS];
    const uint64_t *digest;
    for (int k = 0; k < REFERENCE_MAX_PARAMS; k++)
        keep[k] = -1.0f;
    struct device_updates_config updates = {.keep = keep, .weight = FAULT_BATCH};
    optim_defaults(OPTIM_ADAM, &updates.optim);
    cfg.parts = &parts;
    TRY(plan_create(j, &cfg, 0));
    TRY(tested->updates->begin(j->plan[0], &updates));
    for (uint64_t step = 1; step <= 2; step++) {
        TRY(input_set(j, j->plan[0], 0, FAULT_BATCH));
        TRY(forwards(j, 0, 1));
        TRY(backwards(j, 0));
        TRY(tested->updates->run(j->plan[0], step));
        for (int k = 0; k < j->r->n_params; k++)
            for (int64_t n = 0; n * parts.elems < j->r->param_elems[k]; n++)
                TRY(tested->updates->fetch(j->plan[0], k, n));
        TRY(parts_wait(j, 0));
        note_grads(j);
        for (int k = 0; k < j->r->n_params; k++) {
            int64_t all = j->r->param_elems[k];
            size_t n = (size_t)(all < parts.elems ? all : parts.elems);
            TRY(tested->updates->digests(j->plan[0], k, 0, step, &digest));
            TRY(tested->resident->read_param(j->plan[0], k, j->params[k]));
            assert_true(n <= DEVICE_UPDATES_BLOCK && digest[0] == vector_digest(j->params[k], n));
            note(j, j->params[k], (size_t)all);
        }
    }
    TRY(tested->finish(j->plan[0]));
done:
    return st;
}

static enum status group_create(struct fault_job *j, int n)
{
    int device[FAULT_MAX_PLANS] = {0, 1, 0};
    float weight[FAULT_MAX_PLANS] = {0.25f, 0.5f, 0.25f};
    struct backend_group_config cfg = {.n = n, .device = device, .weight = weight};
    return tested->group_create(&cfg, &j->group);
}

enum status fault_work_trial(struct fault_job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    j->may_go_on = 1;
    j->n_silent[0] = j->n_silent[1] = 2;
    TRY(group_create(j, 2));
    TRY(plan_create(j, &cfg, 0));
    TRY(input_set(j, j->plan[0], 0, FAULT_BATCH));
    TRY(forwards(j, 0, 1));
    TRY(result(j, 0));
done:
    return st;
}

enum status fault_work_ends(struct fault_job *j)
{
    enum status st = ST_OK;
    struct backend_plan_config cfg = config(j);
    j->may_go_on = 1;
    j->n_silent[0] = 2;
    j->n_silent[1] = 3;
    fault_set(0);
    TRY(plan_create(j, &cfg, 1));
    TRY(plan_create(j, &cfg, 0));
    TRY(tested->data_create(0, j->images, j->labels, FAULT_ITEMS, FAULT_PIXELS, &j->data[0]));
    TRY(tested->finish(j->plan[1]));
    fault_set(j->fault);
    tested->plan_destroy(j->plan[1]);
    tested->data_destroy(j->data[0]);
    j->plan[1] = NULL;
    j->data[0] = NULL;
    TRY(input_set(j, j->plan[0], 0, FAULT_BATCH));
    TRY(forwards(j, 0, 1));
    TRY(result(j, 0));
done:
    return st;
}

enum status fault_work_group(struct fault_job *j)
{
    enum status st = ST_OK;
    fault_set(0);
    TRY(group_create(j, FAULT_MAX_PLANS));
    fault_set(j->fault);
    for (int p = 0; p < FAULT_MAX_PLANS; p++) {
        struct backend_plan_config cfg = config(j);
        cfg.group = j->group;
        cfg.rank = p;
        cfg.device = p % 2;
        TRY(plan_create(j, &cfg, p));
    }
    for (int step = 0; step < 2; step++) {
        for (int p = 0; p < FAULT_MAX_PLANS; p++) {
            TRY(input_set(j, j->plan[p], p * 2, FAULT_BATCH));
            TRY(forwards(j, p, 1));
            TRY(backwards(j, p));
        }
        for (int p = 0; p < FAULT_MAX_PLANS; p++)
            TRY(grads_wait(j, p));
        note_grads(j);
    }
    for (int p = 0; p < FAULT_MAX_PLANS; p++)
        TRY(tested->finish(j->plan[p]));
done:
    return st;
}

enum status fault_work_group_host(struct fault_job *j)
{
    setenv("WEIR_EMULATED_NCCL", "absent", 1);
    enum status st = fault_work_group(j);
    unsetenv("WEIR_EMULATED_NCCL");
    return st;
}

enum status fault_work_cards(struct fault_job *j)
{
    enum status st = ST_OK;
    j->may_go_on = 1;
    fault_set(0);
    TRY(group_create(j, 2));
    fault_set(j->fault);
    for (int p = 0; p < 2; p++) {
        struct backend_plan_config cfg = config(j);
        cfg.group = j->group;
        cfg.rank = cfg.device = p;
        TRY(tested->plan_create(&cfg, &j->plan[p]));
        TRY(tested->data_create(p, j->images, j->labels, FAULT_ITEMS, FAULT_PIXELS, &j->data[p]));
        for (int k = 0; k < j->r->n_params; k++)
            TRY(tested->load_param(j->plan[p], k));
    }
    struct resident_peer peer = {j->plan[1], j->data[1], FAULT_BATCH};
    TRY(train_inside(j, &peer, 1));
done:
    return st;
}

enum status fault_work_split(struct fault_job *j)
{
    enum status st = ST_OK;
    int n = j->r->n_layers, cut = n / 2;
    uint8_t mine[2][REFERENCE_MAX_LAYERS] = {{0}};
    float between[1 << 12];
    for (int i = 0; i < n; i++)
        mine[i > cut][i] = 1;
    assert_true(FAULT_BATCH * shape_elems(&j->r->layers[cut].out) <= 1 << 12);
    for (int p = 0; p < 2; p++) {
        struct backend_plan_config cfg = config(j);
        cfg.mine = mine[p];
        cfg.device = p;
        TRY(plan_create(j, &cfg, p));
    }
    for (int step = 0; step < 2; step++) {
        for (int p = 0; p < 2; p++)
            TRY(input_set(j, j->plan[p], step, FAULT_BATCH));
        for (int i = 0; i < n; i++) {
            if (i == cut + 1) {
                TRY(at(j, cut, tested->read_output(j->plan[0], cut, between)));
                TRY(at(j, cut, tested->set_output(j->plan[1], cut, between)));
            }
            TRY(at(j, i, tested->forward(j->plan[i > cut], i, 1)));
        }
        for (int i = n - 1; i >= 0; i--) {
            if (i == cut) {
                TRY(at(j, cut, tested->read_output_grad(j->plan[1], cut, between)));
                TRY(at(j, cut, tested->set_output_grad(j->plan[0], cut, between)));
            }
            TRY(at(j, i, tested->backward(j->plan[i > cut], i)));
        }
        for (int i = n - 1; i >= 0; i--)
            TRY(at(j, i, tested->wait_grads(j->plan[i > cut], i)));
        note_grads(j);
    }
    for (int p = 0; p < 2; p++)
        TRY(tested->finish(j->plan[p]));
done:
    return st;
}

enum status fault_work_floats(struct fault_job *j)
{
    enum status st = ST_OK;
    int last = j->r->n_layers - 1;
    struct backend_plan_config cfg = config(j);
    float samples[FAULT_BATCH][FAULT_PIXELS], targets[FAULT_BATCH][10];
    const float *sample[FAULT_BATCH], *target[FAULT_BATCH];
    uint64_t position[FAULT_BATCH];
    for (int i = 0; i < FAULT_BATCH; i++) {
        for (int k = 0; k < FAULT_PIXELS; k++)
            samples[i][k] = (float)(j->images[i * FAULT_PIXELS + k]) / 100.0f;
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
            TRY(tested->set_floats(j->plan[p], sample, NULL, position, FAULT_BATCH));
            TRY(tested->set_targets(j->plan[p], target, FAULT_BATCH));
            TRY(forwards(j, p, !p));
            if (p == 0)
                TRY(backwards(j, p));
            TRY(result(j, p));
            if (p == 0)
                TRY(grads_wait(j, p));
        }
        TRY(tested->finish(j->plan[p]));
    }
    note_grads(j);
done:
    return st;
}
