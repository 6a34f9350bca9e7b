/* worker/self_test/self_test_net.c - builds the test network, runs it on a backend and in double
 * precision, and compares the gradients. */
#include "worker/self_test/self_test_net.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "kernels/reference.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_STEPS = 4 };

static const char network[] =
    "{\"name\": \"self_test\", \"input\": [1, 12, 12], \"classes\": 10, \"layers\": ["
    " {\"type\": \"conv2d\", \"filters\": 8, \"kernel\": 5, \"padding\": \"same\"},"
    " {\"type\": \"relu\"},"
    " {\"type\": \"batch_norm\"},"
    " {\"type\": \"max_pool\", \"name\": \"pool\", \"kernel\": 2, \"stride\": 2},"
    " {\"type\": \"conv2d\", \"name\": \"inner\", \"filters\": 8, \"kernel\": 3, \"padding\": "
    "\"same\"},"
    " {\"type\": \"add\", \"name\": \"sum\", \"inputs\": [\"inner\", \"pool\"]},"
    " {\"type\": \"concat\", \"inputs\": [\"sum\", \"pool\"]},"
    " {\"type\": \"conv2d\", \"filters\": 16, \"kernel\": 3, \"stride\": 2, \"padding\": \"same\","
    "  \"bias_init\": 0.1},"
    " {\"type\": \"relu\"},"
    " {\"type\": \"avg_pool\", \"kernel\": 3, \"stride\": 1, \"padding\": \"same\"},"
    " {\"type\": \"flatten\"},"
    " {\"type\": \"dense\", \"units\": 32, \"bias_init\": 0.1},"
    " {\"type\": \"relu\"},"
    " {\"type\": \"dropout\", \"rate\": 0.25},"
    " {\"type\": \"conv2d\", \"name\": \"columns\", \"input\": \"pool\", \"filters\": 4, "
    "\"kernel\": [6, 1]},"
    " {\"type\": \"factorization_machine\", \"name\": \"pairs\"},"
    " {\"type\": \"sum\", \"name\": \"total\", \"input\": \"columns\"},"
    " {\"type\": \"multiply\", \"inputs\": [\"total\", \"total\"]},"
    " {\"type\": \"concat\", \"inputs\": [\"dropout1\", \"pairs\", \"multiply1\"]},"
    " {\"type\": \"dense\", \"units\": 10},"
    " {\"type\": \"softmax_cross_entropy\"}]}";

static void fill_batch(struct self_test_net *t)
{
    size_t pixels = (size_t)shape_elems(&t->model->input);
    uint64_t key = rng_key(SELF_TEST_SEED, RNG_TEST, 0);
    for (size_t i = 0; i < SELF_TEST_BATCH; i++) {
        t->images[i] = t->pixels + i * pixels;
        t->labels[i] = (uint8_t)(i % (size_t)t->model->classes);
        t->position[i] = i;
        for (size_t k = 0; k < pixels; k++)
            t->pixels[i * pixels + k] = (uint8_t)rng_u64(key, i * pixels + k);
    }
}

enum status self_test_net_create(struct self_test_net *out)
{
    enum status st = ST_OK;
    struct self_test_net t = {0};
    TRY(model_parse(network, sizeof network - 1, "of the self test", 0, &t.model));
    for (int i = 0; i < t.model->n_params; i++)
        t.n_elems += shape_elems(&t.model->params[i].shape);
    t.flat = calloc((size_t)t.n_elems, sizeof *t.flat);
    t.params = calloc((size_t)t.model->n_params, sizeof *t.params);
    t.pixels = calloc(SELF_TEST_BATCH, (size_t)shape_elems(&t.model->input));
    t.labels = calloc(SELF_TEST_BATCH, 1);
    t.images = calloc(SELF_TEST_BATCH, sizeof *t.images);
    t.position = calloc(SELF_TEST_BATCH, sizeof *t.position);
    if (!t.flat || !t.params || !t.pixels || !t.labels || !t.images || !t.position) {
        LOG_E("self test: no memory");
        TRY(ST_NOMEM);
    }
    model_init_params(t.model, SELF_TEST_SEED, t.flat);
    int64_t at = 0;
    for (int i = 0; i < t.model->n_params; i++) {
        t.params[i] = t.flat + at;
        at += shape_elems(&t.model->params[i].shape);
    }
    fill_batch(&t);
    *out = t;
done:
    if (st != ST_OK)
        self_test_net_destroy(&t);
    return st;
}

void self_test_net_destroy(struct self_test_net *t)
{
    model_destroy(t->model);
    free(t->flat);
    free(t->params);
    free(t->pixels);
    free(t->labels);
    free(t->images);
    free(t->position);
    *t = (struct self_test_net){0};
}

static enum status run_step(const struct self_test_net *t, const struct backend *k,
                            struct plan *plan, float *loss)
{
    enum status st = ST_OK;
    int n_correct, n = t->model->n_layers;
    for (int i = 0; i < t->model->n_params; i++)
        TRY(k->load_param(plan, i));
    TRY(k->set_input(plan, t->images, t->labels, t->position, SELF_TEST_BATCH));
    for (int i = 0; i < n; i++)
        TRY(k->forward(plan, i, 1));
    for (int i = n - 1; i >= 0; i--)
        TRY(k->backward(plan, i));
    TRY(k->result(plan, loss, &n_correct));
    for (int i = n - 1; i >= 0 && k->wait_grads != NULL; i--)
        if (t->model->layers[i].n_params > 0)
            TRY(k->wait_grads(plan, i));
done:
    return st;
}

/* Allocates gradients as NaN, so that gradients that the backend does not write are detected. */
static float *grads_take(int64_t n)
{
    float *flat = malloc((size_t)n * sizeof *flat);
    for (int64_t i = 0; flat && i < n; i++)
        flat[i] = NAN;
    return flat;
}

enum status self_test_net_run(const struct self_test_net *t, const struct backend *backend,
                              int device, struct self_test_values *out)
{
    enum status st = ST_OK;
    struct plan *plan = NULL;
    struct self_test_values v = {.step_ms = INFINITY, .flat = grads_take(t->n_elems)};
    float **grads = calloc((size_t)t->model->n_params, sizeof *grads);
    if (!v.flat || !grads) {
        LOG_E("self test: no memory");
        TRY(ST_NOMEM);
    }
    for (int i = 0; i < t->model->n_params; i++)
        grads[i] = v.flat + (t->params[i] - t->flat);
    struct backend_plan_config cfg = {
        .layers = t->model->layers,
        .n_layers = t->model->n_layers,
        .batch = SELF_TEST_BATCH,
        .device = device,
        .n_threads = 1,
        .n_params = t->model->n_params,
        .params = t->params,
        .grads = grads,
        .seed = SELF_TEST_SEED,
    };
    TRY(backend->plan_create(&cfg, &plan));
    for (int i = 0; i < N_STEPS; i++) {
        int64_t begin = clock_now_ns();
        TRY(run_step(t, backend, plan, &v.loss));
        v.step_ms = fmin(v.step_ms, (double)(clock_now_ns() - begin) / 1e6);
    }
    v.memory_bytes = backend->plan_memory_bytes(plan);
done:
    if (plan)
        backend->plan_destroy(plan);
    free(grads);
    if (st == ST_OK)
        *out = v;
    else
        self_test_net_values_free(&v);
    return st;
}

static enum status reference_fill(const struct self_test_net *t, struct reference *r)
{
    enum status st = ST_OK;
    for (int k = 0; k < t->model->n_params; k++) {
        TRY(reference_param_add(r, shape_elems(&t->model->params[k].shape)));
        for (int64_t i = 0; i < r->param_elems[k]; i++)
            r->param[k][i] = (double)t->params[k][i];
    }
    for (int i = 0; i < t->model->n_layers; i++)
        TRY(reference_layer_add(r, &t->model->layers[i]));
done:
    return st;
}

enum status self_test_net_reference(const struct self_test_net *t, struct self_test_values *out)
{
    enum status st = ST_OK;
    struct reference *r = NULL;
    struct self_test_values v = {.flat = grads_take(t->n_elems)};
    if (!v.flat) {
        LOG_E("self test: no memory");
        TRY(ST_NOMEM);
    }
    TRY(reference_begin(&t->model->input, SELF_TEST_BATCH, SELF_TEST_SEED, &r));
    TRY(reference_fill(t, r));
    reference_forward(r, t->pixels, t->labels, t->position, SELF_TEST_BATCH, 1);
    reference_backward(r);
    v.loss = (float)r->loss;
    for (int k = 0; k < t->model->n_params; k++)
        for (int64_t i = 0; i < r->param_elems[k]; i++)
            v.flat[t->params[k] - t->flat + i] = (float)r->grad[k][i];
done:
    reference_destroy(r);
    if (st == ST_OK)
        *out = v;
    else
        self_test_net_values_free(&v);
    return st;
}

void self_test_net_values_free(struct self_test_values *v)
{
    free(v->flat);
    v->flat = NULL;
}

static void compare_tensor(const char *name, const float *want, const float *got, int64_t n,
                           struct self_test_difference *out)
{
    double error = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        error = d <= error ? error : d; /* NaN stays NaN */
        largest = fmax(largest, fabs((double)want[i]));
        if (isnan(d))
            break;
    }
    double part = error / (largest + SELF_TEST_FLOOR / SELF_TEST_TOLERANCE);
    if (isnan(part))
        part = INFINITY;
    if (part <= out->worst)
        return;
    out->worst = part;
    out->differs = part > SELF_TEST_TOLERANCE;
    snprintf(out->name, sizeof out->name, "%s", name);
}

void self_test_net_compare(const struct self_test_net *t, const struct self_test_values *want,
                           const struct self_test_values *got, struct self_test_difference *out)
{
    *out = (struct self_test_difference){0};
    compare_tensor("loss", &want->loss, &got->loss, 1, out);
    for (int i = 0; i < t->model->n_params; i++) {
        char name[96];
        int64_t at = t->params[i] - t->flat;
        snprintf(name, sizeof name, "gradient of %.80s", t->model->params[i].name);
        compare_tensor(name, want->flat + at, got->flat + at,
                       shape_elems(&t->model->params[i].shape), out);
    }
}
