/* kernels/reference.c - the definitions of all layers as plain loops in double precision. The loops
 * are slow and simple on purpose, so that a person can compare each of them with a textbook. */
#include "kernels/reference.h"
#include "base/log.h"
#include "base/rng.h"
#include "kernels/reference_activation.h"
#include "kernels/reference_factorization.h"
#include "kernels/reference_join.h"
#include "kernels/reference_loss.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- building ---- */

static enum status allocate_zeroed(size_t n, size_t bytes, void *out)
{
    void *p = calloc(n > 0 ? n : 1, bytes);
    if (p == NULL) {
        LOG_E("no memory for the reference in double precision");
        return ST_NOMEM;
    }
    memcpy(out, &p, sizeof p);
    return ST_OK;
}

enum status reference_begin(const struct shape *image, int max_n, uint64_t seed,
                            struct reference **out)
{
    enum status st = ST_OK;
    struct reference *r = NULL;
    TRY(allocate_zeroed(1, sizeof *r, &r));
    r->seed = seed;
    r->n = max_n;
    r->max_n = max_n;
    r->layers[0].in = *image;
    r->from = LAYER_INPUT_IMAGE;
    st = allocate_zeroed((size_t)(max_n * shape_elems(image)), sizeof *r->x, &r->x);
    if (st == ST_OK)
        st = allocate_zeroed((size_t)max_n, sizeof *r->labels, &r->labels);
    if (st == ST_OK)
        st = allocate_zeroed((size_t)max_n, sizeof *r->position, &r->position);
    if (st == ST_OK)
        *out = r;
    else
        reference_destroy(r);
done:
    return st;
}

void reference_destroy(struct reference *r)
{
    if (r == NULL)
        return;
    for (int k = 0; k < r->n_params; k++) {
        free(r->param[k]);
        free(r->grad[k]);
    }
    for (int i = 0; i < r->n_layers; i++) {
        free(r->y[i]);
        free(r->d[i]);
    }
    free(r->pool.best);
    free(r->pool.count);
    free(r->pool.sums);
    free(r->x);
    free(r->labels);
    free(r->position);
    free(r);
}

static enum status pool_room(struct reference *r, int64_t plane)
{
    enum status st = ST_OK;
    if (plane <= r->pool.plane)
        return ST_OK;
    free(r->pool.best);
    free(r->pool.count);
    free(r->pool.sums);
    memset(&r->pool, 0, sizeof r->pool);
    TRY(allocate_zeroed((size_t)plane, sizeof *r->pool.best, &r->pool.best));
    TRY(allocate_zeroed((size_t)plane, sizeof *r->pool.count, &r->pool.count));
    TRY(allocate_zeroed((size_t)plane, sizeof *r->pool.sums, &r->pool.sums));
    r->pool.plane = plane;
done:
    return st;
}

enum status reference_layer_add(struct reference *r, const struct layer *l)
{
    enum status st = ST_OK;
    size_t elems = (size_t)(r->max_n * shape_elems(&l->out));
    int i = r->n_layers;
    if (i == REFERENCE_MAX_LAYERS) {
        LOG_E("the reference has no room for another layer");
        return ST_RANGE;
    }
    if (l->kind == LAYER_MAX_POOL || l->kind == LAYER_AVG_POOL)
        TRY(pool_room(r, l->out.dim[1] * l->out.dim[2]));
    TRY(allocate_zeroed(elems, sizeof(double), &r->y[i]));
    r->n_layers++; /* reference_destroy frees this layer from here on */
    TRY(allocate_zeroed(elems, sizeof(double), &r->d[i]));
    r->layers[i] = *l;
    r->from = i;
done:
    return st;
}

enum status reference_param_add(struct reference *r, int64_t elems)
{
    enum status st = ST_OK;
    int k = r->n_params;
    if (k == REFERENCE_MAX_PARAMS) {
        LOG_E("the reference has no room for another parameter");
        return ST_RANGE;
    }
    TRY(allocate_zeroed((size_t)elems, sizeof(double), &r->param[k]));
    r->n_params++;
    TRY(allocate_zeroed((size_t)elems, sizeof(double), &r->grad[k]));
    r->param_elems[k] = elems;
done:
    return st;
}

const struct shape *reference_shape(const struct reference *r, int layer)
{
    return layer < 0 ? &r->layers[0].in : &r->layers[layer].out;
}

/* ---- convolution and pools: one walk over all (output cell, input cell) pairs ---- */

struct cell {
    int64_t out, in; /* indices in the plane of one channel of one sample */
    int64_t ky, kx;  /* position in the window */
};

/* Calls f for each pair of an output cell and an input cell in its window and inside the image. */
static void windows_walk(const struct layer *l, void (*f)(void *ctx, const struct cell *),
                         void *ctx)
{
    int64_t height = l->in.dim[1], width = l->in.dim[2];
    for (int64_t oy = 0; oy < l->out.dim[1]; oy++)
        for (int64_t ox = 0; ox < l->out.dim[2]; ox++)
            for (int64_t ky = 0; ky < l->kernel[0]; ky++)
                for (int64_t kx = 0; kx < l->kernel[1]; kx++) {
                    int64_t iy = oy * l->stride[0] + ky - l->pad_lo[0];
                    int64_t ix = ox * l->stride[1] + kx - l->pad_lo[1];
                    if (iy < 0 || iy >= height || ix < 0 || ix >= width)
                        continue;
                    struct cell cell = {oy * l->out.dim[2] + ox, iy * width + ix, ky, kx};
                    f(ctx, &cell);
                }
}

struct walk {
    const struct layer *l;
    const double *x, *dy, *w;
    double *y, *dx, *dw;
    int64_t in_plane, out_plane, *best, *count;
};

static struct walk walk_of(const struct layer *l)
{
    return (struct walk){.l = l,
                         .in_plane = l->in.dim[1] * l->in.dim[2],
                         .out_plane = l->out.dim[1] * l->out.dim[2]};
}

static int64_t conv_weight(const struct layer *l, int64_t o, int64_t c, const struct cell *cell)
{
    return ((o * l->in.dim[0] + c) * l->kernel[0] + cell->ky) * l->kernel[1] + cell->kx;
}

static void conv_cell(void *ctx, const struct cell *cell)
{
    struct walk *k = ctx;
    for (int64_t o = 0; o < k->l->out.dim[0]; o++)
        for (int64_t c = 0; c < k->l->in.dim[0]; c++)
            k->y[o * k->out_plane + cell->out] +=
                k->x[c * k->in_plane + cell->in] * k->w[conv_weight(k->l, o, c, cell)];
}

static void conv_back_cell(void *ctx, const struct cell *cell)
{
    struct walk *k = ctx;
    for (int64_t o = 0; o < k->l->out.dim[0]; o++)
        for (int64_t c = 0; c < k->l->in.dim[0]; c++) {
            double dy = k->dy[o * k->out_plane + cell->out];
            int64_t w = conv_weight(k->l, o, c, cell);
            k->dw[w] += dy * k->x[c * k->in_plane + cell->in];
            if (k->dx != NULL)
                k->dx[c * k->in_plane + cell->in] += dy * k->w[w];
        }
}

static void conv_forward(struct reference *r, const struct layer *l, const double *x, double *y)
{
    struct walk k = walk_of(l);
    const double *bias = layer_has_bias(l) ? r->param[l->param[1]] : NULL;
    k.w = r->param[l->param[0]];
    for (int s = 0; s < r->n; s++) {
        k.x = x + s * shape_elems(&l->in);
        k.y = y + s * shape_elems(&l->out);
        for (int64_t o = 0; o < l->out.dim[0]; o++)
            for (int64_t p = 0; p < k.out_plane; p++)
                k.y[o * k.out_plane + p] = bias != NULL ? bias[o] : 0;
        windows_walk(l, conv_cell, &k);
    }
}

static void conv_backward(struct reference *r, const struct layer *l, const double *x,
                          const double *dy, double *dx)
{
    struct walk k = walk_of(l);
    k.w = r->param[l->param[0]];
    k.dw = r->grad[l->param[0]];
    for (int s = 0; s < r->n; s++) {
        k.x = x + s * shape_elems(&l->in);
        k.dy = dy + s * shape_elems(&l->out);
        k.dx = dx != NULL ? dx + s * shape_elems(&l->in) : NULL;
        for (int64_t o = 0; o < l->out.dim[0]; o++)
            for (int64_t p = 0; p < k.out_plane && layer_has_bias(l); p++)
                r->grad[l->param[1]][o] += k.dy[o * k.out_plane + p];
        windows_walk(l, conv_back_cell, &k);
    }
}

/* Updates, for a cell of the output, the position of the first maximum so far (-1: none), the
 * number of cells and the sum of the cells. */
static void pool_cell(void *ctx, const struct cell *cell)
{
    struct walk *k = ctx;
    k->count[cell->out]++;
    if (k->best[cell->out] < 0 || k->x[cell->in] > k->x[k->best[cell->out]])
        k->best[cell->out] = cell->in;
    k->y[cell->out] += k->x[cell->in];
}

static void average_back_cell(void *ctx, const struct cell *cell)
{
    struct walk *k = ctx;
    k->dx[cell->in] += k->dy[cell->out] / (double)k->count[cell->out];
}

/* Computes the forward into y if dy is NULL, otherwise the backward into dx. */
static void pool_run(struct reference *r, const struct layer *l, const double *x, double *y,
                     const double *dy, double *dx)
{
    struct walk k = walk_of(l);
    k.best = r->pool.best;
    k.count = r->pool.count;
    for (int64_t plane = 0; plane < r->n * l->in.dim[0]; plane++) {
        k.x = x + plane * k.in_plane;
        k.y = r->pool.sums;
        for (int64_t p = 0; p < k.out_plane; p++) {
            k.best[p] = -1;
            k.count[p] = 0;
            r->pool.sums[p] = 0;
        }
        windows_walk(l, pool_cell, &k);
        for (int64_t p = 0; p < k.out_plane && dy == NULL; p++)
            y[plane * k.out_plane + p] =
                l->kind == LAYER_MAX_POOL ? k.x[k.best[p]] : r->pool.sums[p] / (double)k.count[p];
        if (dy == NULL)
            continue;
        k.dy = dy + plane * k.out_plane;
        k.dx = dx + plane * k.in_plane;
        for (int64_t p = 0; p < k.out_plane && l->kind == LAYER_MAX_POOL; p++)
            k.dx[k.best[p]] += k.dy[p];
        if (l->kind == LAYER_AVG_POOL)
            windows_walk(l, average_back_cell, &k);
    }
}

/* ---- dense ---- */

static void dense_forward(struct reference *r, const struct layer *l, const double *x, double *y)
{
    int64_t n_in = l->in.dim[0], n_out = l->out.dim[0];
    for (int s = 0; s < r->n; s++)
        for (int64_t o = 0; o < n_out; o++) {
            double sum = layer_has_bias(l) ? r->param[l->param[1]][o] : 0;
            for (int64_t k = 0; k < n_in; k++)
                sum += x[s * n_in + k] * r->param[l->param[0]][o * n_in + k];
            y[s * n_out + o] = sum;
        }
}

static void dense_backward(struct reference *r, const struct layer *l, const double *x,
                           const double *dy, double *dx)
{
    int64_t n_in = l->in.dim[0], n_out = l->out.dim[0];
    for (int s = 0; s < r->n; s++)
        for (int64_t o = 0; o < n_out; o++) {
            double g = dy[s * n_out + o];
            if (layer_has_bias(l))
                r->grad[l->param[1]][o] += g;
            for (int64_t k = 0; k < n_in; k++) {
                r->grad[l->param[0]][o * n_in + k] += g * x[s * n_in + k];
                if (dx != NULL)
                    dx[s * n_in + k] += g * r->param[l->param[0]][o * n_in + k];
            }
        }
}

/* ---- dropout, batch norm ---- */

static double dropout_factor(const struct reference *r, int i, int64_t elems, int s, int64_t j)
{
    const struct layer *l = &r->layers[i];
    uint64_t key = rng_key(r->seed, RNG_DROPOUT, (uint64_t)i);
    if (!r->train)
        return 1.0;
    float u = rng_uniform(key, r->position[s] * (uint64_t)elems + (uint64_t)j);
    return u < l->rate ? 0.0 : 1.0 / (1.0 - (double)l->rate);
}

struct channel {
    double mean, variance, n; /* the variance is divided by n */
};

static struct channel channel_of(const struct reference *r, const struct layer *l, const double *x,
                                 int64_t c)
{
    int64_t n_channels = l->in.dim[0], plane = shape_elems(&l->in) / n_channels;
    struct channel out = {0, 0, (double)(r->n * plane)};
    if (!r->train)
        return (struct channel){r->param[l->param[2]][c], r->param[l->param[3]][c], out.n};
    for (int s = 0; s < r->n; s++)
        for (int64_t p = 0; p < plane; p++)
            out.mean += x[(s * n_channels + c) * plane + p] / out.n;
    for (int s = 0; s < r->n; s++)
        for (int64_t p = 0; p < plane; p++)
            out.variance += pow(x[(s * n_channels + c) * plane + p] - out.mean, 2) / out.n;
    return out;
}

static void norm_forward(struct reference *r, const struct layer *l, const double *x, double *y)
{
    int64_t n_channels = l->in.dim[0], plane = shape_elems(&l->in) / n_channels;
    for (int64_t c = 0; c < n_channels; c++) {
        struct channel ch = channel_of(r, l, x, c);
        for (int s = 0; s < r->n; s++)
            for (int64_t p = 0; p < plane; p++) {
                int64_t k = (s * n_channels + c) * plane + p;
                y[k] = (x[k] - ch.mean) / sqrt(ch.variance + (double)l->epsilon) *
                           r->param[l->param[0]][c] +
                       r->param[l->param[1]][c];
            }
    }
}

/* Computes the backward of a forward that used the batch's statistics (Ioffe and Szegedy 2015). */
static void norm_backward(struct reference *r, const struct layer *l, const double *x,
                          const double *dy, double *dx)
{
    int64_t n_channels = l->in.dim[0], plane = shape_elems(&l->in) / n_channels;
    for (int64_t c = 0; c < n_channels; c++) {
        struct channel ch = channel_of(r, l, x, c);
        double scale = 1.0 / sqrt(ch.variance + (double)l->epsilon), sum = 0, dot = 0;
        for (int s = 0; s < r->n; s++)
            for (int64_t p = 0; p < plane; p++) {
                int64_t k = (s * n_channels + c) * plane + p;
                sum += dy[k];
                dot += dy[k] * (x[k] - ch.mean) * scale;
            }
        r->grad[l->param[0]][c] = dot;
        r->grad[l->param[1]][c] = sum;
        r->grad[l->param[2]][c] = ch.mean;
        r->grad[l->param[3]][c] = ch.variance * (ch.n > 1 ? ch.n / (ch.n - 1) : 1);
        for (int s = 0; s < r->n && dx != NULL; s++)
            for (int64_t p = 0; p < plane; p++) {
                int64_t k = (s * n_channels + c) * plane + p;
                double norm = (x[k] - ch.mean) * scale;
                dx[k] +=
                    r->param[l->param[0]][c] * scale * (dy[k] - sum / ch.n - norm * dot / ch.n);
            }
    }
}

/* ---- layer norm, embedding ---- */

static struct channel sample_of(const struct layer *l, const double *x)
{
    struct channel out = {0, 0, (double)shape_elems(&l->in)};
    for (int64_t k = 0; k < shape_elems(&l->in); k++)
        out.mean += x[k] / out.n;
    for (int64_t k = 0; k < shape_elems(&l->in); k++)
        out.variance += pow(x[k] - out.mean, 2) / out.n;
    return out;
}

/* Computes the forward into y if dy is NULL, otherwise the backward. If dx is NULL, the backward
 * computes only the gradients of the parameters. */
static void layer_norm_run(struct reference *r, const struct layer *l, const double *x, double *y,
                           const double *dy, double *dx)
{
    int64_t n = shape_elems(&l->in);
    const double *gamma = r->param[l->param[0]], *beta = r->param[l->param[1]];
    for (int s = 0; s < r->n; s++) {
        const double *row = x + s * n, *d = dy != NULL ? dy + s * n : NULL;
        struct channel c = sample_of(l, row);
        double scale = 1 / sqrt(c.variance + (double)l->epsilon), sum = 0, dot = 0;
        for (int64_t k = 0; k < n; k++) {
            double norm = (row[k] - c.mean) * scale;
            if (d == NULL) {
                y[s * n + k] = norm * gamma[k] + beta[k];
                continue;
            }
            r->grad[l->param[0]][k] += d[k] * norm;
            r->grad[l->param[1]][k] += d[k];
            sum += d[k] * gamma[k];
            dot += d[k] * gamma[k] * norm;
        }
        for (int64_t k = 0; k < n && dx != NULL; k++)
            dx[s * n + k] +=
                scale * (d[k] * gamma[k] - sum / c.n - (row[k] - c.mean) * scale * dot / c.n);
    }
}

static void embedding_run(struct reference *r, const struct layer *l, const double *x, double *y,
                          const double *dy)
{
    int64_t cells = shape_elems(&l->in), units = l->out.dim[0];
    for (int64_t k = 0; k < r->n * cells * units; k++) {
        int64_t s = k / (cells * units), unit = k / cells % units;
        int64_t number = llround(x[s * cells + k % cells] * 255);
        if (dy == NULL)
            y[k] = r->param[l->param[0]][number * units + unit];
        else
            r->grad[l->param[0]][number * units + unit] += dy[k];
    }
}

/* ---- the whole net ---- */

static void layer_forward(struct reference *r, int i, const double *x, double *y)
{
    const struct layer *l = &r->layers[i];
    int64_t elems = shape_elems(&l->in);
    switch (l->kind) {
    case LAYER_CONV2D:
        conv_forward(r, l, x, y);
        break;
    case LAYER_MAX_POOL:
    case LAYER_AVG_POOL:
        pool_run(r, l, x, y, NULL, NULL);
        break;
    case LAYER_DENSE:
        dense_forward(r, l, x, y);
        break;
    case LAYER_BATCH_NORM:
        norm_forward(r, l, x, y);
        break;
    case LAYER_SOFTMAX_XENT:
    case LAYER_SIGMOID_XENT:
    case LAYER_SQUARED:
        reference_loss_forward(r, i, x, y);
        break;
    case LAYER_LAYER_NORM:
        layer_norm_run(r, l, x, y, NULL, NULL);
        break;
    case LAYER_EMBEDDING:
        embedding_run(r, l, x, y, NULL);
        break;
    case LAYER_ADD:
    case LAYER_CONCAT:
    case LAYER_MULTIPLY:
    case LAYER_SUM:
        reference_join_forward(r, l, y);
        break;
    case LAYER_FACTORIZATION_MACHINE:
        reference_factorization_forward(l, r->n, x, y);
        break;
    case LAYER_RELU:
        for (int64_t k = 0; k < r->n * elems; k++)
            y[k] = x[k] > 0 ? x[k] : 0;
        break;
    case LAYER_DROPOUT:
        for (int64_t k = 0; k < r->n * elems; k++)
            y[k] = x[k] * dropout_factor(r, i, elems, (int)(k / elems), k % elems);
        break;
    default:
        for (int64_t k = 0; k < r->n * elems; k++)
            y[k] = layer_is_activation(l->kind) ? reference_activation(l, x[k]) : x[k];
    }
}

void reference_forward(struct reference *r, const uint8_t *pixels, const uint8_t *labels,
                       const uint64_t *position, int n, int train)
{
    r->n = n;
    r->train = train;
    int64_t elems = n * shape_elems(&r->layers[0].in);
    for (int64_t k = 0; k < elems; k++)
        r->x[k] = r->floats != NULL ? (double)r->floats[k] : pixels[k] / 255.0;
    memcpy(r->labels, labels, (size_t)n);
    memcpy(r->position, position, (size_t)n * sizeof *position);
    for (int i = 0; i < r->n_layers; i++)
        layer_forward(r, i, reference_output(r, r->layers[i].input[0]), r->y[i]);
}

/* Adds the gradients from this layer's backward to the gradients with respect to its inputs. */
static void layer_backward(struct reference *r, int i, const double *x, const double *dy,
                           double *dx)
{
    const struct layer *l = &r->layers[i];
    int64_t elems = shape_elems(&l->in);
    switch (l->kind) {
    case LAYER_CONV2D:
        conv_backward(r, l, x, dy, dx);
        return;
    case LAYER_DENSE:
        dense_backward(r, l, x, dy, dx);
        return;
    case LAYER_BATCH_NORM:
        norm_backward(r, l, x, dy, dx);
        return;
    case LAYER_LAYER_NORM:
        layer_norm_run(r, l, x, NULL, dy, dx);
        return;
    case LAYER_EMBEDDING:
        embedding_run(r, l, x, NULL, dy);
        return;
    case LAYER_ADD:
    case LAYER_CONCAT:
    case LAYER_MULTIPLY:
    case LAYER_SUM:
        reference_join_backward(r, l, dy);
        return;
    case LAYER_FACTORIZATION_MACHINE:
        if (dx != NULL)
            reference_factorization_backward(l, r->n, x, dy, dx);
        return;
    case LAYER_MAX_POOL:
    case LAYER_AVG_POOL:
        if (dx != NULL)
            pool_run(r, l, x, NULL, dy, dx);
        return;
    default:
        break;
    }
    for (int64_t k = 0; k < r->n * elems && dx != NULL; k++) {
        int s = (int)(k / elems);
        if (l->kind == LAYER_RELU)
            dx[k] += x[k] > 0 ? dy[k] : 0;
        else if (l->kind == LAYER_DROPOUT)
            dx[k] += dy[k] * dropout_factor(r, i, elems, s, k % elems);
        else if (layer_is_activation(l->kind))
            dx[k] += dy[k] * reference_activation_slope(l, x[k]);
        else if (layer_is_loss(l->kind))
            dx[k] += reference_loss_slope(r, i, s, k % elems);
        else
            dx[k] += dy[k];
    }
}

void reference_backward(struct reference *r)
{
    for (int k = 0; k < r->n_params; k++)
        memset(r->grad[k], 0, (size_t)r->param_elems[k] * sizeof(double));
    for (int i = 0; i < r->n_layers; i++)
        memset(r->d[i], 0, (size_t)(r->n * shape_elems(&r->layers[i].out)) * sizeof(double));
    for (int i = r->n_layers - 1; i >= 0; i--) {
        int from = r->layers[i].input[0];
        layer_backward(r, i, reference_output(r, from), r->d[i], from < 0 ? NULL : r->d[from]);
    }
}
