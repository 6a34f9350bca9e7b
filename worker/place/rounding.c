/* worker/place/rounding.c - measures each layer's time in floats and in bf16, see rounding.h. The
 * shortest of several runs counts, because other programs on the machine can only lengthen a
 * run. */
#include "worker/place/rounding.h"
#include "base/clock.h"
#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_ROUNDS = 3, MAX_ROUNDS = 20, ROUNDS_MS = 150 };
/* A layer is rounded only if its time in bf16 is below this fraction of its time in floats. */
static const double WORTH = 0.95;

struct bench {
    const struct rounding_request *r;
    const struct backend *backend;
    struct plan *plan;
    float *grads;
    const float **params;
    float **grad_of;
    uint8_t *image, *labels;
    const uint8_t **images;
    float *target;
    const float **targets;
    uint64_t *position;
    uint8_t *mine;  /* [n_layers] see struct backend_plan_config; NULL: no layer is on the host */
    float *outputs; /* zeros: outputs of the layers on the host */
    int batch;
    int64_t *ns[2]; /* [n_layers] shortest times in floats and rounded */
};

/* Returns the first tower that computes in bf16 on the CPU; NULL: none. */
static const struct tower_spec *find_tower(const struct rounding_request *r)
{
    for (int i = 0; i < r->towers->n; i++) {
        const struct tower_spec *t = &r->towers->tower[i];
        if (t->own.backend->set_rounded && t->own.precision == BACKEND_BF16)
            return t;
    }
    return NULL;
}

/* Allocates what layers on the host need. */
static bool prepare_host_layers(struct bench *b)
{
    const struct model *m = b->r->model;
    int64_t most = 0;
    for (int i = 0; i < m->n_tables; i++) {
        int64_t n = shape_elems(&m->layers[m->tables[i].layer].out);
        most = n > most ? n : most;
    }
    if (most == 0)
        return true;
    b->mine = calloc((size_t)m->n_layers, 1);
    b->outputs = calloc((size_t)b->batch * (size_t)most, sizeof *b->outputs);
    for (int i = 0; b->mine && i < m->n_layers; i++)
        b->mine[i] = !layer_is_on_host(m->layers[i].kind);
    return b->mine && b->outputs;
}

static enum status prepare_bench(struct bench *b)
{
    const struct model *m = b->r->model;
    const struct layer *last = &m->layers[m->n_layers - 1];
    size_t n = (size_t)b->batch, n_params = (size_t)b->r->chunks->n_params;
    size_t n_layers = (size_t)m->n_layers;
    b->grads = calloc((size_t)b->r->chunks->n_elems, sizeof *b->grads);
    b->params = calloc(n_params, sizeof *b->params);
    b->grad_of = calloc(n_params, sizeof *b->grad_of);
    b->image = calloc((size_t)shape_elems(&m->layers[0].in), 1);
    b->images = calloc(n, sizeof *b->images);
    b->labels = calloc(n, 1);
    b->target = calloc((size_t)shape_elems(&last->in), sizeof *b->target);
    b->targets = calloc(n, sizeof *b->targets);
    b->position = calloc(n, sizeof *b->position);
    b->ns[0] = calloc(n_layers, sizeof *b->ns[0]);
    b->ns[1] = calloc(n_layers, sizeof *b->ns[1]);
    if (!b->grads || !b->params || !b->grad_of || !b->image || !b->images || !b->labels ||
        !b->target || !b->targets || !b->position || !b->ns[0] || !b->ns[1] ||
        !prepare_host_layers(b)) {
        LOG_E("out of memory to measure which layers are faster with --precision=bf16");
        return ST_NOMEM;
    }
    for (size_t i = 0; i < n_params; i++) {
        b->params[i] = b->r->params + b->r->chunks->params[i].first;
        b->grad_of[i] = b->grads + b->r->chunks->params[i].first;
    }
    for (size_t i = 0; i < n; i++) {
        b->images[i] = b->image;
        b->targets[i] = b->target;
    }
    return ST_OK;
}

static void release_bench(struct bench *b)
{
    if (b->plan)
        b->backend->plan_destroy(b->plan);
    free(b->grads);
    free(b->params);
    free(b->grad_of);
    free(b->image);
    free(b->images);
    free(b->labels);
    free(b->target);
    free(b->targets);
    free(b->position);
    free(b->mine);
    free(b->outputs);
    free(b->ns[0]);
    free(b->ns[1]);
}

static enum status make_plan(struct bench *b, const struct tower_spec *t, const uint8_t *rounded)
{
    const struct model *m = b->r->model;
    const struct backend_plan_config cfg = {.layers = m->layers,
                                            .n_layers = m->n_layers,
                                            .batch = b->batch,
                                            .device = t->own.device,
                                            .n_threads = t->own.n_threads,
                                            .n_params = b->r->chunks->n_params,
                                            .params = b->params,
                                            .grads = b->grad_of,
                                            .precision = BACKEND_BF16,
                                            .rounded = rounded,
                                            .mine = b->mine};
    return b->backend->plan_create(&cfg, &b->plan);
}

static enum status set_inputs(struct bench *b)
{
    enum status st = ST_OK;
    const struct model *m = b->r->model;
    int by_targets = layer_takes_targets(m->layers[m->n_layers - 1].kind);
    TRY(b->backend->set_input(b->plan, b->images, by_targets ? NULL : b->labels, b->position,
                              b->batch));
    if (by_targets)
        TRY(b->backend->set_targets(b->plan, b->targets, b->batch));
    for (int i = 0; i < m->n_tables; i++)
        TRY(b->backend->set_output(b->plan, m->tables[i].layer, b->outputs));
done:
    return st;
}

/* Runs one step and times each layer's forward and backward; times NULL: does not time. */
static enum status run_step(struct bench *b, int64_t *times)
{
    enum status st = ST_OK;
    int n_layers = b->r->model->n_layers;
    TRY(set_inputs(b));
    for (int i = 0; i < n_layers && st == ST_OK; i++) {
        int64_t began = clock_now_ns();
        if (!b->mine || b->mine[i])
            st = b->backend->forward(b->plan, i, 1);
        if (times)
            times[i] = clock_now_ns() - began;
    }
    for (int i = n_layers - 1; i >= 0 && st == ST_OK; i--) {
        int64_t began = clock_now_ns();
        if (!b->mine || b->mine[i])
            st = b->backend->backward(b->plan, i);
        if (times)
            times[i] += clock_now_ns() - began;
    }
done:
    return st;
}

static enum status run_steps(struct bench *b, int64_t *shortest)
{
    enum status st = ST_OK;
    int n_layers = b->r->model->n_layers;
    int64_t *took = calloc((size_t)n_layers, sizeof *took), until;
    TRY(took ? ST_OK : ST_NOMEM);
    TRY(run_step(b, NULL));
    until = clock_deadline_ns(ROUNDS_MS);
    for (int k = 0; k < MIN_ROUNDS || (k < MAX_ROUNDS && clock_now_ns() < until); k++) {
        TRY(run_step(b, took));
        for (int i = 0; i < n_layers; i++)
            shortest[i] = k == 0 || took[i] < shortest[i] ? took[i] : shortest[i];
    }
done:
    free(took);
    return st;
}

static bool is_product(const struct layer *l)
{
    return l->kind == LAYER_CONV2D || l->kind == LAYER_DENSE;
}

void rounding_log(const struct model *m, const uint8_t *rounded, const char *whence)
{
    char names[400] = "";
    size_t at = 0;
    int n = 0, n_products = 0;
    for (int i = 0; i < m->n_layers; i++) {
        n_products += is_product(&m->layers[i]);
        if (!rounded[i])
            continue;
        int written =
            snprintf(names + at, sizeof names - at, "%s%s", n++ > 0 ? ", " : "", m->layers[i].name);
        at += (size_t)written < sizeof names - at ? (size_t)written : 0;
    }
    LOG_I("CPU: --precision=bf16: %d of %d dense and convolution layers compute in bf16%s%s, %s", n,
          n_products, n > 0 ? ": " : "", names, whence);
}

static enum status round_name(const struct rounding_request *r, const char *name, size_t n,
                              uint8_t *rounded)
{
    for (int i = 0; i < r->model->n_layers; i++) {
        const struct layer *l = &r->model->layers[i];
        if (is_product(l) && strlen(l->name) == n && memcmp(l->name, name, n) == 0) {
            rounded[i] = 1;
            return ST_OK;
        }
    }
    LOG_E(
        "--bf16_layers: '%.*s' is not a convolution or dense layer of model '%s'; name such layers, or none",
        (int)n, name, r->model->name);
    return ST_INVALID;
}

static enum status round_named(const struct rounding_request *r, uint8_t *rounded)
{
    enum status st = ST_OK;
    const char *at = r->named;
    if (strcmp(at, "none") == 0)
        return ST_OK;
    while (st == ST_OK) {
        size_t n = strcspn(at, ",");
        st = round_name(r, at, n, rounded);
        if (at[n] == 0)
            break;
        at += n + 1;
    }
    return st;
}

/* Measures the layers' times twice, with all products rounded and with none, and compares the
 * times. */
static enum status compare_times(struct bench *b, const struct tower_spec *t, uint8_t *rounded)
{
    enum status st = ST_OK;
    int n = b->r->model->n_layers;
    TRY(prepare_bench(b));
    TRY(make_plan(b, t, rounded));
    TRY(run_steps(b, b->ns[0]));
    b->backend->plan_destroy(b->plan);
    b->plan = NULL;
    for (int i = 0; i < n; i++)
        rounded[i] = (uint8_t)is_product(&b->r->model->layers[i]);
    TRY(make_plan(b, t, rounded));
    TRY(run_steps(b, b->ns[1]));
    for (int i = 0; i < n; i++) {
        if (!rounded[i])
            continue;
        rounded[i] = (double)b->ns[1][i] < WORTH * (double)b->ns[0][i];
        LOG_D("layer '%s': forward and backward last %.3f ms in fp32, and %.3f ms in bf16",
              b->r->model->layers[i].name, (double)b->ns[0][i] * 1e-6, (double)b->ns[1][i] * 1e-6);
    }
done:
    return st;
}

enum status rounding_measure(const struct rounding_request *r, uint8_t **out)
{
    const struct tower_spec *t = find_tower(r);
    enum status st = ST_OK;
    *out = NULL;
    if (!t)
        return ST_OK;
    struct bench b = {.r = r, .backend = t->own.backend, .batch = t->n};
    uint8_t *rounded = calloc((size_t)r->model->n_layers, 1);
    if (!rounded)
        return ST_NOMEM;
    if (r->named)
        st = round_named(r, rounded);
    else
        st = compare_times(&b, t, rounded);
    release_bench(&b);
    if (st == ST_OK)
        *out = rounded;
    else
        free(rounded);
    return st;
}
