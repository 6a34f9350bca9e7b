/* tests/worker_split_test.c - a network that is split over several plans computes the same values
 * as one plan, except for rounding (a library sums in another order if a tensor's layout differs),
 * and the same bits each time. The plans are on the CPU, or on emulated GPUs and the CPU. The
 * network has all kinds of layers, branches, an output with three readers, and an output that is
 * read twice. */
#include "base/log.h"
#include "base/rng.h"
#include "tests/check.h"
#include "tests/skip.h"
#include "worker/place/split_tower.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 6, PIXELS = 144, CLASSES = 5, MAX_PARAMS = 64, MAX_LAYERS = 32, N_DEVICES = 3 };

static const char text[] =
    "{\"input\": [1, 12, 12], \"classes\": 5, \"layers\": ["
    "{\"type\": \"conv2d\", \"name\": \"c1\", \"filters\": 4, \"kernel\": 3, \"padding\": "
    "\"same\"},"
    "{\"type\": \"batch_norm\"}, {\"type\": \"relu\", \"name\": \"r1\"},"
    "{\"type\": \"max_pool\", \"name\": \"p1\", \"kernel\": 2},"
    "{\"type\": \"conv2d\", \"name\": \"left\", \"filters\": 4, \"kernel\": 3, \"padding\": "
    "\"same\"},"
    "{\"type\": \"relu\", \"name\": \"r2\"},"
    "{\"type\": \"conv2d\", \"name\": \"right\", \"input\": \"p1\", \"filters\": 4, \"kernel\": 1},"
    "{\"type\": \"add\", \"name\": \"sum\", \"inputs\": [\"r2\", \"right\", \"p1\"]},"
    "{\"type\": \"avg_pool\", \"name\": \"small\", \"input\": \"image\", \"kernel\": 2},"
    "{\"type\": \"concat\", \"name\": \"all\", \"inputs\": [\"sum\", \"right\", \"small\", "
    "\"sum\"]},"
    "{\"type\": \"relu\", \"name\": \"r3\"}, {\"type\": \"flatten\"},"
    "{\"type\": \"dropout\", \"rate\": 0.3}, {\"type\": \"dense\", \"name\": \"d1\", \"units\": 7},"
    "{\"type\": \"relu\", \"name\": \"r4\"}, {\"type\": \"dense\", \"name\": \"d2\", \"units\": 5},"
    "{\"type\": \"softmax_cross_entropy\", \"after\": [\"r4\"]}]}";

static const struct backend *cpu, *emulated;

struct rig {
    struct model *model;
    float *values, *grads; /* all parameters, one after the other */
    size_t n_elems;
    const float *params[MAX_PARAMS];
    float *grad_of[MAX_PARAMS];
    uint8_t pixels[BATCH][PIXELS], labels[BATCH];
    const uint8_t *images[BATCH];
    uint64_t position[BATCH];
};

struct outcome {
    float loss[3]; /* whole batch, part of it, inference */
    int n_correct[3];
    float *grads[2];
};

static void rig_make(struct rig *r)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(model_parse(text, sizeof text - 1, "test", 0, &r->model), ST_OK);
    assert_true(r->model->n_layers <= MAX_LAYERS && r->model->n_params <= MAX_PARAMS);
    for (int i = 0; i < r->model->n_params; i++)
        r->n_elems += (size_t)r->model->params[i].n_elems;
    r->values = calloc(r->n_elems, sizeof(float));
    r->grads = calloc(r->n_elems, sizeof(float));
    assert_true(r->values && r->grads);
    model_init_params(r->model, 5, r->values);
    size_t at = 0;
    for (int i = 0; i < r->model->n_params; i++) {
        r->params[i] = r->values + at;
        r->grad_of[i] = r->grads + at;
        at += (size_t)r->model->params[i].n_elems;
    }
    for (uint64_t i = 0; i < BATCH; i++) {
        for (uint64_t k = 0; k < PIXELS; k++)
            r->pixels[i][k] = (uint8_t)rng_below(1, i * PIXELS + k, 256);
        r->labels[i] = (uint8_t)rng_below(2, i, CLASSES);
        r->images[i] = r->pixels[i];
        r->position[i] = 100 + i;
    }
}

static void rig_free(struct rig *r)
{
    model_destroy(r->model);
    free(r->values);
    free(r->grads);
}

static void pass(struct rig *r, struct split_tower *s, int n, int train)
{
    int n_layers = r->model->n_layers;
    for (int i = 0; i < r->model->n_params; i++)
        assert_int_equal(split_tower_load_param(s, i), ST_OK);
    assert_int_equal(split_tower_set_input(s, r->images, r->labels, r->position, n), ST_OK);
    for (int i = 0; i < n_layers; i++)
        assert_int_equal(train ? split_tower_forward(s, i, 0) : split_tower_forward_inference(s, i),
                         ST_OK);
    for (int i = n_layers - 1; train && i >= 0; i--)
        assert_int_equal(split_tower_backward(s, i, 0), ST_OK);
    for (int i = n_layers - 1; train && i >= 0; i--)
        if (r->model->layers[i].n_params > 0)
            assert_int_equal(split_tower_wait_grads(s, i), ST_OK);
}

/* Runs two steps, the second with a part of the batch, and an evaluation by other plans. */
static void compute(struct rig *r, const struct tower_device *devices, const uint8_t *stage_of,
                    struct outcome *out)
{
    struct split_tower_config cfg = {
        .plan = {.layers = r->model->layers,
                 .n_layers = r->model->n_layers,
                 .batch = BATCH,
                 .n_params = r->model->n_params,
                 .params = r->params,
                 .grads = r->grad_of,
                 .seed = 3,
                 .deterministic = 1},
        .device = devices,
        .n = N_DEVICES,
        .after = r->model->after,
        .n_after = r->model->n_after,
        .stage_of = stage_of,
    };
    struct split_tower *s;
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < r->n_elems; i++)
            r->grads[i] = NAN;
        pass(r, s, k == 0 ? BATCH : BATCH - 2, 1);
        assert_int_equal(split_tower_result(s, &out->loss[k], &out->n_correct[k]), ST_OK);
        out->grads[k] = malloc(r->n_elems * sizeof(float));
        assert_non_null(out->grads[k]);
        memcpy(out->grads[k], r->grads, r->n_elems * sizeof(float));
    }
    split_tower_destroy(s);
    cfg.plan.inference_only = 1;
    cfg.plan.grads = NULL;
    assert_int_equal(split_tower_create(&cfg, &s), ST_OK);
    pass(r, s, BATCH, 0);
    assert_int_equal(split_tower_result(s, &out->loss[2], &out->n_correct[2]), ST_OK);
    split_tower_destroy(s);
}

static void outcome_free(struct outcome *o)
{
    free(o->grads[0]);
    free(o->grads[1]);
}

/* Splits at random. In round 0 each layer goes to the next device. */
static void deal(uint8_t *stage_of, int n_layers, int round)
{
    for (int i = 0; i < n_layers; i++)
        stage_of[i] =
            (uint8_t)(round == 0 ? i % N_DEVICES
                                 : (int)rng_below((uint64_t)round, (uint64_t)i, N_DEVICES));
}

static void check_splits(const struct tower_device *devices, int n_rounds, float tolerance)
{
    struct rig r;
    struct outcome whole, split, again;
    const struct tower_device alone[N_DEVICES] = {{.backend = cpu, .n_threads = 1},
                                                  {.backend = cpu, .n_threads = 1},
                                                  {.backend = cpu, .n_threads = 1}};
    rig_make(&r);
    compute(&r, alone, NULL, &whole);
    for (int round = 0; round < n_rounds; round++) {
        uint8_t stage_of[MAX_LAYERS];
        deal(stage_of, r.model->n_layers, round);
        compute(&r, devices, stage_of, &split);
        compute(&r, devices, stage_of, &again);
        assert_memory_equal(split.loss, again.loss, sizeof split.loss);
        for (int k = 0; k < 2; k++)
            assert_memory_equal(split.grads[k], again.grads[k], r.n_elems * sizeof(float));
        outcome_free(&again);
        for (int k = 0; k < 3; k++) {
            assert_true(fabsf(split.loss[k] - whole.loss[k]) <= tolerance);
            assert_int_equal(split.n_correct[k], whole.n_correct[k]);
        }
        for (int k = 0; k < 2; k++)
            for (size_t i = 0; i < r.n_elems; i++)
                if (!(fabsf(split.grads[k][i] - whole.grads[k][i]) <= tolerance))
                    fail_msg("split %d, step %d, gradient %zu: %g instead of %g", round, k, i,
                             (double)split.grads[k][i], (double)whole.grads[k][i]);
        outcome_free(&split);
    }
    outcome_free(&whole);
    rig_free(&r);
}

static void test_splits_of_the_cpu(void **state)
{
    const struct tower_device devices[N_DEVICES] = {{.backend = cpu, .n_threads = 1},
                                                    {.backend = cpu, .n_threads = 1},
                                                    {.backend = cpu, .n_threads = 1}};
    /* A whole plan stores tensors in blocks, unlike some splits, so sums of terms around 1 round
     * differently (seen with AVX2, not with AVX-512). */
    check_splits(devices, 20, 5e-6f);
}

static void test_gpus_and_the_cpu(void **state)
{
    const struct tower_device devices[N_DEVICES] = {{.backend = emulated, .device = 0},
                                                    {.backend = emulated, .device = 1},
                                                    {.backend = cpu, .n_threads = 1}};
    if (!emulated)
        skip_because("the emulated CUDA backend is not in this build");
    assert_non_null(emulated->set_output);
    check_splits(devices, 8, 2e-5f);
}

int main(void)
{
    log_init("worker", 0, LOG_LEVEL_INFO);
    if (backend_open("cpu", WEIR_TEST_BACKEND_DIR, &cpu) != ST_OK)
        return 1;
    /* missing if the build has no CUDA headers */
    if (backend_open("emulated", WEIR_TEST_BACKEND_DIR "/../tests", &emulated) != ST_OK)
        emulated = NULL;
    return RUN_TESTS(test_splits_of_the_cpu, test_gpus_and_the_cpu);
}
