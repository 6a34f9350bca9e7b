/* tests/kernel_reference.c - see the header. */
#include "tests/kernel_reference.h"
#include "base/rng.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ok(enum status st)
{
    if (st != ST_OK)
        exit(99); /* the cause is logged */
}

struct reference *reference_create(int c, int h, int w, int max_n, uint64_t seed)
{
    struct reference *r = NULL;
    ok(reference_begin(&(struct shape){3, {c, h, w}}, max_n, seed, &r));
    return r;
}

/* Begins the next layer, with its input. */
static struct layer layer_begin(struct reference *r, enum layer_kind kind, const char *name)
{
    struct layer l = {.in = *reference_shape(r, r->from),
                      .out = *reference_shape(r, r->from),
                      .kind = kind,
                      .n_inputs = 1,
                      .input = {r->from}};
    snprintf(l.name, sizeof l.name, "%s%d", name, r->n_layers);
    return l;
}

static void param_add(struct reference *r, struct layer *l, int64_t elems)
{
    l->param[l->n_params++] = r->n_params;
    ok(reference_param_add(r, elems));
}

/* Sets kernel, stride, padding and output of a layer. padding -1 is TensorFlow's SAME: an output of
 * ceil(in / stride), and an odd cell of padding after the image. */
static void window_set(struct layer *l, int kernel, int stride, int padding)
{
    for (int k = 0; k < 2; k++) {
        int in = (int)l->in.dim[1 + k], out = (in + stride - 1) / stride;
        int total = (out - 1) * stride + kernel - in;
        l->kernel[k] = kernel;
        l->stride[k] = stride;
        if (padding == -1 && total > 0) {
            l->pad_lo[k] = total / 2;
            l->pad_hi[k] = total - total / 2;
        }
        if (padding > 0)
            l->pad_lo[k] = l->pad_hi[k] = padding;
        l->out.dim[1 + k] = (in + l->pad_lo[k] + l->pad_hi[k] - kernel) / stride + 1;
    }
}

void reference_conv(struct reference *r, int filters, int kernel, int stride, int padding)
{
    struct layer l = layer_begin(r, LAYER_CONV2D, "conv");
    window_set(&l, kernel, stride, padding);
    l.out.dim[0] = filters;
    param_add(r, &l, (int64_t)filters * l.in.dim[0] * kernel * kernel);
    param_add(r, &l, filters);
    ok(reference_layer_add(r, &l));
}

void reference_pool(struct reference *r, enum layer_kind kind, int kernel, int stride, int padding)
{
    struct layer l = layer_begin(r, kind, "pool");
    window_set(&l, kernel, stride, padding);
    ok(reference_layer_add(r, &l));
}

void reference_dense(struct reference *r, int units)
{
    struct layer l = layer_begin(r, LAYER_DENSE, "dense");
    l.out = (struct shape){1, {units}};
    param_add(r, &l, units * l.in.dim[0]);
    param_add(r, &l, units);
    ok(reference_layer_add(r, &l));
}

void reference_drop_bias(struct reference *r)
{
    struct layer *l = &r->layers[r->n_layers - 1];
    int k = l->param[--l->n_params];
    free(r->param[k]);
    free(r->grad[k]);
    r->n_params--;
}

void reference_dropout(struct reference *r, float rate)
{
    struct layer l = layer_begin(r, LAYER_DROPOUT, "dropout");
    l.rate = rate;
    ok(reference_layer_add(r, &l));
}

void reference_layer(struct reference *r, enum layer_kind kind)
{
    struct layer l = layer_begin(r, kind, "layer");
    if (kind == LAYER_FLATTEN)
        l.out = (struct shape){1, {shape_elems(&l.in)}};
    if (kind == LAYER_BATCH_NORM) {
        l.epsilon = 1e-3f;
        for (int k = 0; k < 4; k++)
            param_add(r, &l, l.in.dim[0]);
    }
    if (kind == LAYER_LAYER_NORM) {
        l.epsilon = 1e-3f;
        for (int k = 0; k < 2; k++)
            param_add(r, &l, shape_elems(&l.in));
    }
    if (kind == LAYER_LEAKY_RELU)
        l.slope = 0.2f;
    if (kind == LAYER_FACTORIZATION_MACHINE)
        l.out = (struct shape){1, {1}};
    if (kind == LAYER_SUM)
        l.out = (struct shape){1, {shape_elems(&l.in) / l.in.dim[0]}};
    ok(reference_layer_add(r, &l));
}

void reference_smoothed(struct reference *r, float smoothing)
{
    struct layer l = layer_begin(r, LAYER_SOFTMAX_XENT, "smoothed");
    l.smoothing = smoothing;
    ok(reference_layer_add(r, &l));
}

void reference_embedding(struct reference *r, int vocabulary, int units)
{
    struct layer l = layer_begin(r, LAYER_EMBEDDING, "embedding");
    l.vocabulary = vocabulary;
    l.out.dim[0] = units;
    param_add(r, &l, (int64_t)vocabulary * units);
    ok(reference_layer_add(r, &l));
}

void reference_join(struct reference *r, enum layer_kind kind, int n, const int *inputs)
{
    r->from = inputs[0];
    struct layer l = layer_begin(r, kind, "join");
    l.n_inputs = n;
    for (int k = 0; k < n; k++) {
        l.input[k] = inputs[k];
        if (kind == LAYER_CONCAT && k > 0)
            l.out.dim[0] += reference_shape(r, inputs[k])->dim[0];
    }
    ok(reference_layer_add(r, &l));
}

void reference_from(struct reference *r, int layer)
{
    r->from = layer;
}

int reference_last(const struct reference *r)
{
    return r->n_layers - 1;
}

double reference_tolerance(const char *backend)
{
    return strcmp(backend, "cuda") == 0 ? 2e-4 : 5e-5;
}

void reference_values(const struct reference *r, uint64_t seed, int frozen, float *const *params,
                      float *keep)
{
    for (int i = 0; i < r->n_layers; i++) {
        const struct layer *l = &r->layers[i];
        for (int k = 0; k < l->n_params; k++) {
            int id = l->param[k], norm = l->kind == LAYER_BATCH_NORM;
            keep[id] = norm && k >= 2 ? 0.9f : id == frozen ? 1.0f : -1.0f;
            for (int64_t j = 0; j < r->param_elems[id]; j++) {
                float v = rng_uniform(rng_key(seed, RNG_TEST, (uint64_t)id), (uint64_t)j) - 0.5f;
                params[id][j] = norm ? 1.0f + v : 0.4f * v;
            }
        }
    }
}
