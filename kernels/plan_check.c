/* kernels/plan_check.c - the checks of a network that plan_check.h declares. They run before a
 * backend creates a plan, so the backend's code may rely on shapes, numbers of parameters and
 * readers. */
#include "kernels/plan_check.h"
#include "base/log.h"
#include "kernels/graph.h"
#include <math.h>
#include <stdlib.h>

static const int n_params_of[LAYER_N_KINDS] = {[LAYER_CONV2D] = 2,
                                               [LAYER_DENSE] = 2,
                                               [LAYER_BATCH_NORM] = 4,
                                               [LAYER_LAYER_NORM] = 2,
                                               [LAYER_EMBEDDING] = 1};

/* Returns the number of parameters of a layer of this kind if it has no optional bias. */
static int fewest_params(enum layer_kind kind)
{
    bool has_bias = kind == LAYER_CONV2D || kind == LAYER_DENSE;
    return n_params_of[kind] - has_bias;
}

static int shape_is(const struct shape *a, const struct shape *b, int from)
{
    int same = a->n_dims == b->n_dims;
    for (int k = from; same && k < a->n_dims; k++)
        same = a->dim[k] == b->dim[k];
    return same;
}

/* Checks that each layer's input shape is the output shape of the layer that it reads. */
static enum status check_shapes(const struct backend_plan_config *cfg, int i)
{
    const struct layer *l = &cfg->layers[i];
    int64_t channels = 0;
    int fits = 1;
    for (int k = 0; k < l->n_inputs; k++) {
        const struct shape *s =
            l->input[k] < 0 ? &cfg->layers[0].in : &cfg->layers[l->input[k]].out;
        fits &= shape_is(&l->in, s, l->kind == LAYER_CONCAT && k > 0);
        channels += s->dim[0];
    }
    if (layer_is_join(l->kind))
        fits &= shape_is(&l->in, &l->out, l->kind == LAYER_CONCAT);
    if (l->kind == LAYER_CONCAT)
        fits &= l->out.n_dims > 0 && l->out.dim[0] == channels;
    if (fits)
        return ST_OK;
    LOG_E("layer '%s': its input shapes differ from the output shapes of the layers that it reads",
          l->name);
    return ST_UNSUPPORTED;
}

static enum status check_host_layer(const struct backend_plan_config *cfg, int i)
{
    const struct layer *l = &cfg->layers[i];
    if (l->n_inputs == 0 && cfg->mine != NULL && !cfg->mine[i])
        return ST_OK;
    LOG_E(
        "layer '%s': the host computes layers of its kind from keys; no plan does, and they have no inputs",
        l->name);
    return ST_UNSUPPORTED;
}

static enum status check_inputs(const struct backend_plan_config *cfg, int i)
{
    const struct layer *l = &cfg->layers[i];
    int joins = layer_is_join(l->kind);
    if (layer_is_on_host(l->kind))
        return check_host_layer(cfg, i);
    if (l->n_inputs < 1 + joins || l->n_inputs > (joins ? LAYER_MAX_INPUTS : 1)) {
        LOG_E("layer '%s': has %d inputs, but a layer of its kind needs %s", l->name, l->n_inputs,
              joins ? "2 to 16" : "one");
        return ST_UNSUPPORTED;
    }
    for (int k = 0; k < l->n_inputs; k++)
        if (l->input[k] < LAYER_INPUT_IMAGE || l->input[k] >= i) {
            LOG_E("layer '%s': layer %d cannot read layer %d, which is not an earlier layer",
                  l->name, i, l->input[k]);
            return ST_RANGE;
        }
    return check_shapes(cfg, i);
}

/* Checks the settings of the layer's kind that are not shapes. */
static enum status check_kind(const struct layer *l)
{
    const char *wrong = NULL;
    int64_t cells = l->kind == LAYER_EMBEDDING ? shape_elems(&l->in) : 0;
    if (layer_is_loss(l->kind) && (l->in.n_dims != 1 || l->in.dim[0] < 1))
        wrong = "a loss needs a flat input; put a flatten before it";
    else if (l->kind == LAYER_SOFTMAX_XENT && !(l->smoothing >= 0.0f && l->smoothing < 1.0f))
        wrong = "the smoothing of its labels must be at least 0 and below 1";
    else if ((l->kind == LAYER_LAYER_NORM || layer_is_activation(l->kind)) &&
             !shape_is(&l->in, &l->out, 0))
        wrong = "its output must have the shape of its input";
    else if (l->kind == LAYER_EMBEDDING &&
             (l->input[0] != LAYER_INPUT_IMAGE || l->in.n_dims != 3 || l->in.dim[0] != 1 ||
              l->out.n_dims != 3 || l->out.dim[0] < 1 ||
              shape_elems(&l->out) != cells * l->out.dim[0] || l->vocabulary < 1 ||
              l->vocabulary > LAYER_MAX_VOCABULARY))
        wrong = "an embedding reads an image of one channel, with a vocabulary of 1 to 2^20";
    else if (l->kind == LAYER_SUM && (l->out.n_dims != 1 || l->in.n_dims < 1 || l->in.dim[0] < 1 ||
                                      shape_elems(&l->out) * l->in.dim[0] != shape_elems(&l->in)))
        wrong = "a sum has one output for each cell, or one output for a flat input";
    else if (l->kind == LAYER_FACTORIZATION_MACHINE &&
             (l->in.n_dims != 3 || l->in.dim[1] != 1 || l->out.n_dims != 1 || l->out.dim[0] != 1))
        wrong = "a factorization machine reads (F, 1, units) and has one output";
    else if (l->kind == LAYER_LEAKY_RELU && !(l->slope >= 0.0f && l->slope <= 1.0f))
        wrong = "its slope must be at least 0 and at most 1";
    if (wrong == NULL)
        return ST_OK;
    LOG_E("layer '%s': %s", l->name, wrong);
    return ST_UNSUPPORTED;
}

static enum status check_layer(const struct backend_plan_config *cfg, int i, const char *backend)
{
    enum status st = ST_OK;
    const struct layer *l = &cfg->layers[i];
    if ((unsigned)l->kind >= LAYER_N_KINDS) {
        LOG_E("layer '%s': the %s backend does not support layer kind %d", l->name, backend,
              (int)l->kind);
        return ST_UNSUPPORTED;
    }
    if (layer_is_loss(l->kind) != (i == cfg->n_layers - 1) &&
        (layer_is_loss(l->kind) || !cfg->inference_only)) {
        LOG_E("layer '%s': a loss must be the last layer, and the only one", l->name);
        return ST_UNSUPPORTED;
    }
    TRY(check_kind(l));
    if (l->n_params < fewest_params(l->kind) || l->n_params > n_params_of[l->kind]) {
        LOG_E("layer '%s': has %d parameters, but a layer of its kind needs %d to %d", l->name,
              l->n_params, fewest_params(l->kind), n_params_of[l->kind]);
        return ST_UNSUPPORTED;
    }
    for (int k = 0; k < l->n_params; k++)
        if (l->param[k] < 0 || l->param[k] >= cfg->n_params) {
            LOG_E("layer '%s': parameter index %d is out of range: there are %d parameters",
                  l->name, l->param[k], cfg->n_params);
            return ST_RANGE;
        }
    TRY(check_inputs(cfg, i));
done:
    return st;
}

/* Refuses a network with an output that no layer reads, because such an output has no gradient. */
static enum status check_readers(const struct backend_plan_config *cfg)
{
    enum status st = ST_OK;
    struct graph_node *node = calloc((size_t)cfg->n_layers, sizeof *node);
    if (node == NULL) {
        LOG_E("no memory left to plan %d layers", cfg->n_layers);
        return ST_NOMEM;
    }
    graph_fill(cfg, node);
    for (int i = 0; i < cfg->n_layers - 1 && st == ST_OK && !cfg->inference_only; i++)
        if (node[i].n_readers == 0) {
            LOG_E("layer '%s': no layer reads its output", cfg->layers[i].name);
            st = ST_UNSUPPORTED;
        }
    free(node);
    return st;
}

enum status plan_check_layers(const struct backend_plan_config *cfg, const char *backend)
{
    enum status st = ST_OK;
    for (int i = 0; i < cfg->n_layers && st == ST_OK; i++)
        st = check_layer(cfg, i, backend);
    return st == ST_OK ? check_readers(cfg) : st;
}

enum status plan_check_number(const struct backend_plan_config *cfg, int largest)
{
    for (int i = 0; i < cfg->n_layers; i++) {
        const struct layer *l = &cfg->layers[i];
        if (l->kind == LAYER_EMBEDDING && largest >= l->vocabulary &&
            (cfg->mine == NULL || cfg->mine[i])) {
            LOG_E(
                "layer '%s': the data contain the number %d, but the layer's vocabulary has %d entries; the model does not fit the data",
                l->name, largest, l->vocabulary);
            return ST_RANGE;
        }
    }
    return ST_OK;
}

/* Returns the index of an embedding that this plan computes; -1: none. */
static int embedding_of(const struct backend_plan_config *cfg)
{
    for (int i = 0; i < cfg->n_layers; i++)
        if (cfg->layers[i].kind == LAYER_EMBEDDING && (cfg->mine == NULL || cfg->mine[i]))
            return i;
    return -1;
}

enum status plan_check_floats(const struct backend_plan_config *cfg, const float *const *samples,
                              int n)
{
    int64_t elems = shape_elems(&cfg->layers[0].in);
    int embeds = embedding_of(cfg), largest = 0;
    for (int i = 0; i < n && embeds >= 0; i++)
        for (int64_t k = 0; k < elems; k++) {
            float number = samples[i][k] * 255.0f;
            if (!(number >= 0.0f && number < (float)LAYER_MAX_VOCABULARY &&
                  fabsf(number - rintf(number)) <= 0.25f)) {
                LOG_E(
                    "layer '%s': its input must be whole numbers from 0 to %d, as they are in the data, not scaled, but one number is %g",
                    cfg->layers[embeds].name, LAYER_MAX_VOCABULARY - 1, (double)number);
                return ST_RANGE;
            }
            largest = (int)(number + 0.5f) > largest ? (int)(number + 0.5f) : largest;
        }
    return embeds >= 0 ? plan_check_number(cfg, largest) : ST_OK;
}

enum status plan_check_numbers(const struct backend_plan_config *cfg, const uint8_t *const *images,
                               int n)
{
    int64_t pixels = shape_elems(&cfg->layers[0].in);
    int embeds = embedding_of(cfg) >= 0, largest = 0;
    for (int i = 0; i < n && embeds; i++)
        for (int64_t k = 0; k < pixels; k++)
            largest = images[i][k] > largest ? images[i][k] : largest;
    return embeds ? plan_check_number(cfg, largest) : ST_OK;
}

enum status plan_check_targets(const struct backend_plan_config *cfg, int n, int n_now)
{
    const struct layer *last = &cfg->layers[cfg->n_layers - 1];
    if (!layer_takes_targets(last->kind)) {
        LOG_E("layer '%s': accepts only class labels, not regression targets (floats)", last->name);
        return ST_UNSUPPORTED;
    }
    if (n == n_now)
        return ST_OK;
    LOG_E("layer '%s': there are targets for %d samples, but the batch has %d samples", last->name,
          n, n_now);
    return ST_RANGE;
}
