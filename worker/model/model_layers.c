/* worker/model/model_layers.c - one builder per layer type: keys, shapes, parameters. Shapes follow
 * TensorFlow. "same": out = ceil(in / stride); the padding is split evenly, and if it is odd, the
 * additional row or column is at the bottom or the right. "valid": out = (in - kernel) / stride +
 * 1, no padding. A number p, as in PyTorch, is the padding on all sides: out = (in + 2 p - kernel)
 * / stride + 1. */
#include "worker/model/model_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layer_type {
    const char *name;
    const char *keys; /* names of all keys that a layer of this type may have */
    enum status (*build)(struct model_reader *r, struct layer *l);
};

static const char *shape_text(const struct shape *s, char *dst, size_t bytes)
{
    size_t n = (size_t)snprintf(dst, bytes, "(");
    for (int i = 0; i < s->n_dims && n < bytes; i++)
        n += (size_t)snprintf(dst + n, bytes - n, "%s%lld", i ? ", " : "", (long long)s->dim[i]);
    if (n < bytes)
        snprintf(dst + n, bytes - n, ")");
    return dst;
}

/* Writes the name of input k. */
static const char *giver_text(const struct model_reader *r, int k, char *dst, size_t bytes)
{
    int giver = r->nodes[r->layer].input[k];
    if (giver < 0)
        snprintf(dst, bytes, "the input");
    else
        snprintf(dst, bytes, "layer %d '%s'", giver + 1, r->nodes[giver].name);
    return dst;
}

static const struct shape *input_shape(const struct model_reader *r, const struct layer *l, int k)
{
    return l->input[k] < 0 ? &r->m->input : &r->m->layers[l->input[k]].out;
}

/* Checks the input's dimensions: n_dims 1 for a flat input, 3 for (C, H, W). */
static enum status need_dims(const struct model_reader *r, const struct layer *l, int n_dims)
{
    char shape[96], giver[96];
    if (l->in.n_dims == n_dims)
        return ST_OK;
    return model_json_fail(r, NULL, "needs %s, but %s has the output %s: %s",
                           n_dims == 1 ? "a flat input" : "an input of (channels, height, width)",
                           giver_text(r, 0, giver, sizeof giver),
                           shape_text(&l->in, shape, sizeof shape),
                           n_dims == 1 ? "put a flatten before it" : "put it before the flatten");
}

/* Assigns the next parameter number to <layer>/<suffix>. */
static enum status add_param(struct model_reader *r, struct layer *l, const char *suffix,
                             const struct shape *shape, struct model_init init)
{
    struct model *m = r->m;
    int64_t total = shape_elems(shape);
    for (int i = 0; i < m->n_params && total >= 0; i++)
        total += shape_elems(&m->params[i].shape);
    if (total < 0 || total > MODEL_MAX_PARAM_ELEMS)
        return model_json_fail(r, NULL, "with its %s the model has more than 2^31 parameters",
                               suffix);
    char name[128];
    snprintf(name, sizeof name, "%s/%s", l->name, suffix);
    char *copy = strdup(name);
    if (!copy)
        return ST_NOMEM;
    m->params[m->n_params] = (struct net_param){
        .name = copy, .shape = *shape, .rule = PARAM_TRAINED, .n_elems = shape_elems(shape)};
    m->inits[m->n_params] = init;
    l->param[l->n_params++] = m->n_params++;
    return ST_OK;
}

/* Adds the biases, unless "bias" is false. */
static enum status add_bias(struct model_reader *r, struct layer *l, int64_t n)
{
    static const double bounds[2] = {-1e6, 1e6}, zero = 0;
    struct model_init init = {INIT_CONSTANT, 0};
    bool has_bias;
    enum status st;
    TRY(model_json_bool(r, "bias", true, &has_bias));
    if (!has_bias && json_object_get(r->obj, "bias_init"))
        return model_json_fail(
            r, "bias_init", "\"bias_init\" has no effect if \"bias\" is false: remove one of them");
    if (!has_bias)
        return ST_OK;
    TRY(model_json_double(r, "bias_init", bounds, &zero, &init.scale));
    TRY(add_param(r, l, "biases", &(struct shape){1, {n}}, init));
done:
    return st;
}

/* Reads "kernel"; for a pool, "global" means the whole input. */
static enum status read_kernel(struct model_reader *r, struct layer *l, bool is_pool)
{
    const char *word = json_string_value(json_object_get(r->obj, "kernel"));
    if (!is_pool || !word || strcmp(word, "global") != 0)
        return model_json_pair(r, "kernel", 1, NULL, l->kernel);
    for (int i = 0; i < 2; i++) {
        if (l->in.dim[1 + i] > MODEL_MAX_WINDOW)
            return model_json_fail(
                r, "kernel",
                "\"kernel\" is \"global\", but the input is %lldx%lld, and a global pool has sides of at most %d: put other pools before it",
                (long long)l->in.dim[1], (long long)l->in.dim[2], MODEL_MAX_WINDOW);
        l->kernel[i] = (int)l->in.dim[1 + i];
    }
    return ST_OK;
}

/* Reads "padding": a word, a number, or a pair of numbers. Numbers are stored in pad_lo and
 * pad_hi. */
static enum status read_padding(struct model_reader *r, struct layer *l, bool is_pool,
                                bool *is_same)
{
    const json_t *v = json_object_get(r->obj, "padding");
    const char *word = v ? json_string_value(v) : "valid";
    char shown[48];
    enum status st = ST_OK;
    *is_same = word && strcmp(word, "same") == 0;
    if (word && !*is_same && strcmp(word, "valid") != 0)
        return model_json_fail(
            r, "padding",
            "\"padding\" is \"%s\", but must be \"same\", \"valid\", a number or [height, width]",
            model_json_printable(shown, sizeof shown, word));
    if (word)
        return ST_OK;
    TRY(model_json_pair(r, "padding", 0, NULL, l->pad_lo));
    for (int i = 0; i < 2; i++) {
        l->pad_hi[i] = l->pad_lo[i];
        if (is_pool && 2 * l->pad_lo[i] > l->kernel[i])
            return model_json_fail(
                r, "padding",
                "\"padding\" is %d, but a pool of kernel %d can have at most half of that: each window must overlap the image",
                l->pad_lo[i], l->kernel[i]);
    }
done:
    return st;
}

/* Sets the padding along one axis for "same". */
static void pad_same(struct layer *l, int axis)
{
    int64_t in = l->in.dim[1 + axis], k = l->kernel[axis], s = l->stride[axis];
    int64_t pad = ((in + s - 1) / s - 1) * s + k - in;
    pad = pad > 0 ? pad : 0;
    l->pad_lo[axis] = (int)(pad / 2);
    l->pad_hi[axis] = (int)(pad - pad / 2);
}

/* Reads kernel, stride and padding; computes the output's height and width. */
static enum status read_window(struct model_reader *r, struct layer *l, bool is_pool)
{
    static const int one[2] = {1, 1};
    bool is_same;
    enum status st;
    TRY(read_kernel(r, l, is_pool));
    TRY(model_json_pair(r, "stride", 1, is_pool ? l->kernel : one, l->stride));
    TRY(read_padding(r, l, is_pool, &is_same));
    for (int i = 0; i < 2; i++) {
        if (is_same)
            pad_same(l, i);
        int64_t in = l->in.dim[1 + i], padded = in + l->pad_lo[i] + l->pad_hi[i];
        int64_t k = l->kernel[i], s = l->stride[i];
        if (!is_same && k > padded)
            return model_json_fail(
                r, "kernel",
                "the %dx%d kernel does not fit in an input of %lldx%lld; make it smaller or set \"padding\" to \"same\"",
                l->kernel[0], l->kernel[1], (long long)l->in.dim[1], (long long)l->in.dim[2]);
        l->out.dim[1 + i] = is_same ? (in + s - 1) / s : (padded - k) / s + 1;
    }
done:
    return st;
}

static enum status build_conv2d(struct model_reader *r, struct layer *l)
{
    static const int64_t bounds[2] = {1, MODEL_MAX_DIM};
    struct model_init init;
    int64_t filters;
    enum status st;
    TRY(need_dims(r, l, 3));
    TRY(model_json_int(r, "filters", bounds, NULL, &filters));
    l->out = (struct shape){3, {filters, 0, 0}};
    TRY(read_window(r, l, false));
    double cells = (double)l->kernel[0] * l->kernel[1];
    TRY(model_init_read(r, "init", cells * (double)l->in.dim[0], cells * (double)filters, &init));
    TRY(add_param(r, l, "weights",
                  &(struct shape){4, {filters, l->in.dim[0], l->kernel[0], l->kernel[1]}}, init));
    TRY(add_bias(r, l, filters));
done:
    return st;
}

static enum status build_pool(struct model_reader *r, struct layer *l)
{
    enum status st;
    TRY(need_dims(r, l, 3));
    l->out = l->in;
    TRY(read_window(r, l, true));
done:
    return st;
}

static enum status build_dense(struct model_reader *r, struct layer *l)
{
    static const int64_t bounds[2] = {1, MODEL_MAX_DIM};
    struct model_init init;
    int64_t units;
    enum status st;
    TRY(need_dims(r, l, 1));
    TRY(model_json_int(r, "units", bounds, NULL, &units));
    if (r->hidden_units > 0) {
        units = r->hidden_units;
        r->hidden_units = 0;
    }
    l->out = (struct shape){1, {units}};
    TRY(model_init_read(r, "init", (double)l->in.dim[0], (double)units, &init));
    TRY(add_param(r, l, "weights", &(struct shape){2, {units, l->in.dim[0]}}, init));
    TRY(add_bias(r, l, units));
done:
    return st;
}

static enum status build_same_shape(struct model_reader *r, struct layer *l)
{
    (void)r;
    l->out = l->in;
    return ST_OK;
}

static enum status build_leaky_relu(struct model_reader *r, struct layer *l)
{
    static const double bounds[2] = {0, 1}, fallback = 0.01;
    double slope;
    enum status st;
    TRY(model_json_double(r, "slope", bounds, &fallback, &slope));
    l->slope = (float)slope;
    l->out = l->in;
done:
    return st;
}

static enum status build_dropout(struct model_reader *r, struct layer *l)
{
    static const double bounds[2] = {0, 0.99};
    double rate;
    enum status st;
    TRY(model_json_double(r, "rate", bounds, NULL, &rate));
    l->rate = (float)rate;
    l->out = l->in;
done:
    return st;
}

static enum status build_batch_norm(struct model_reader *r, struct layer *l)
{
    static const double epsilon_bounds[2] = {1e-8, 1}, epsilon_default = 1e-5;
    static const double momentum_bounds[2] = {0, 1}, momentum_default = 0.9;
    static const struct model_init zero = {INIT_CONSTANT, 0}, one = {INIT_CONSTANT, 1};
    const struct shape shape = {1, {l->in.dim[0]}};
    double epsilon, momentum;
    enum status st;
    TRY(model_json_double(r, "epsilon", epsilon_bounds, &epsilon_default, &epsilon));
    TRY(model_json_double(r, "momentum", momentum_bounds, &momentum_default, &momentum));
    l->epsilon = (float)epsilon;
    l->out = l->in;
    TRY(add_param(r, l, "gamma", &shape, one));
    TRY(add_param(r, l, "beta", &shape, zero));
    TRY(add_param(r, l, "moving_mean", &shape, zero));
    TRY(add_param(r, l, "moving_variance", &shape, one));
    for (int i = 2; i < 4; i++) {
        r->m->params[l->param[i]].rule = PARAM_AVERAGE;
        r->m->params[l->param[i]].keep = (float)momentum;
    }
done:
    return st;
}

static enum status build_flatten(struct model_reader *r, struct layer *l)
{
    (void)r;
    l->out = (struct shape){1, {shape_elems(&l->in)}};
    return ST_OK;
}

/* Each value of a sample has its own gamma and beta, as in PyTorch, so both parameters have the
 * shape of the input. */
static enum status build_layer_norm(struct model_reader *r, struct layer *l)
{
    static const double bounds[2] = {1e-8, 1}, fallback = 1e-5;
    static const struct model_init zero = {INIT_CONSTANT, 0}, one = {INIT_CONSTANT, 1};
    double epsilon;
    enum status st;
    TRY(model_json_double(r, "epsilon", bounds, &fallback, &epsilon));
    l->epsilon = (float)epsilon;
    l->out = l->in;
    TRY(add_param(r, l, "gamma", &l->in, one));
    TRY(add_param(r, l, "beta", &l->in, zero));
done:
    return st;
}

static enum status build_embedding(struct model_reader *r, struct layer *l)
{
    static const int64_t bounds[2] = {1, MODEL_MAX_DIM}, words[2] = {1, MODEL_MAX_VOCABULARY};
    struct model_init init;
    int64_t units, vocabulary;
    char shape[96];
    enum status st;
    if (l->input[0] != LAYER_INPUT_IMAGE || l->in.dim[0] != 1)
        return model_json_fail(
            r, NULL, "must read \"image\" (the unchanged data) of one channel, but its input is %s",
            shape_text(&l->in, shape, sizeof shape));
    TRY(model_json_int(r, "vocabulary", words, NULL, &vocabulary));
    TRY(model_json_int(r, "units", bounds, NULL, &units));
    l->vocabulary = (int)vocabulary;
    l->out = (struct shape){3, {units, l->in.dim[1], l->in.dim[2]}};
    TRY(model_init_read(r, "init", (double)vocabulary, (double)units, &init));
    TRY(add_param(r, l, "weights", &(struct shape){2, {vocabulary, units}}, init));
done:
    return st;
}

static enum status build_loss(struct model_reader *r, struct layer *l)
{
    char giver[96];
    enum status st;
    if (r->layer + 1 != r->m->n_layers)
        return model_json_fail(r, NULL, "must be the last layer, but is layer %d of %d",
                               r->layer + 1, r->m->n_layers);
    TRY(need_dims(r, l, 1));
    if (r->left.more_classes && l->in.dim[0] > r->m->classes)
        r->m->classes = (int)l->in.dim[0];
    if (l->in.dim[0] != r->m->classes)
        return model_json_fail(
            r, NULL,
            "%s has %lld outputs, but \"classes\" is %d: set the last dense layer's \"units\" to %d",
            giver_text(r, 0, giver, sizeof giver), (long long)l->in.dim[0], r->m->classes,
            r->m->classes);
    l->out = l->in;
    int is_counted_later = r->left.more_classes && r->left.head >= 0;
    if (l->kind == LAYER_SOFTMAX_XENT && r->m->classes < 2 && !is_counted_later)
        return model_json_fail(
            r, NULL,
            "needs at least 2 \"classes\", but has 1; for one number per sample end the model with mean_squared_error; labels of floats are such numbers: save classes with labels.astype(numpy.int64); name the classes' column of a CSV file with --label_column");
    if (l->kind == LAYER_SOFTMAX_XENT) {
        static const double bounds[2] = {0, 0.99}, none = 0;
        double smoothing;
        TRY(model_json_double(r, "label_smoothing", bounds, &none, &smoothing));
        l->smoothing = (float)smoothing;
    }
    if (l->kind == LAYER_SQUARED)
        TRY(model_json_bool(r, "one_hot", false, &l->one_hot));
done:
    return st;
}

/* Checks the inputs of a join: they must have equal numbers of dimensions, and equal
 * extents from dimension `from` on. */
static enum status need_same(const struct model_reader *r, const struct layer *l, int from)
{
    char shapes[2][96], givers[2][96];
    for (int k = 1; k < l->n_inputs; k++) {
        const struct shape *s = input_shape(r, l, k);
        int same = s->n_dims == l->in.n_dims;
        for (int i = from; same && i < s->n_dims; i++)
            same = s->dim[i] == l->in.dim[i];
        if (!same)
            return model_json_fail(r, "inputs", "%s has the output %s, but %s has %s: %s",
                                   giver_text(r, 0, givers[0], sizeof givers[0]),
                                   shape_text(&l->in, shapes[0], sizeof shapes[0]),
                                   giver_text(r, k, givers[1], sizeof givers[1]),
                                   shape_text(s, shapes[1], sizeof shapes[1]),
                                   l->kind == LAYER_ADD ? "add needs inputs of equal shape"
                                   : l->kind == LAYER_CONCAT
                                       ? "concat needs inputs of equal height and width"
                                       : "multiply needs inputs of equal shape");
    }
    return ST_OK;
}

/* Builds an add or a multiply. */
static enum status build_add(struct model_reader *r, struct layer *l)
{
    l->out = l->in;
    return need_same(r, l, 0);
}

static enum status build_concat(struct model_reader *r, struct layer *l)
{
    l->out = l->in;
    for (int k = 1; k < l->n_inputs; k++)
        l->out.dim[0] += input_shape(r, l, k)->dim[0];
    return need_same(r, l, 1);
}

static enum status build_sum(struct model_reader *r, struct layer *l)
{
    (void)r;
    l->out = (struct shape){1, {shape_elems(&l->in) / l->in.dim[0]}};
    return ST_OK;
}

static enum status build_factorization_machine(struct model_reader *r, struct layer *l)
{
    char shape[96];
    l->out = (struct shape){1, {1}};
    if (l->in.n_dims == 3 && l->in.dim[1] == 1)
        return ST_OK;
    return model_json_fail(r, NULL, "its input must have the shape (F, 1, units), but has %s",
                           shape_text(&l->in, shape, sizeof shape));
}

#define COMMON "type name comment device after"
#define ONE COMMON " input"
static const struct layer_type layer_types[LAYER_N_KINDS] = {
    [LAYER_CONV2D] = {"conv2d", ONE " filters kernel stride padding init bias bias_init",
                      build_conv2d},
    [LAYER_MAX_POOL] = {"max_pool", ONE " kernel stride padding", build_pool},
    [LAYER_AVG_POOL] = {"avg_pool", ONE " kernel stride padding", build_pool},
    [LAYER_DENSE] = {"dense", ONE " units init bias bias_init", build_dense},
    [LAYER_RELU] = {"relu", ONE, build_same_shape},
    [LAYER_SIGMOID] = {"sigmoid", ONE, build_same_shape},
    [LAYER_TANH] = {"tanh", ONE, build_same_shape},
    [LAYER_GELU] = {"gelu", ONE, build_same_shape},
    [LAYER_SILU] = {"silu", ONE, build_same_shape},
    [LAYER_LEAKY_RELU] = {"leaky_relu", ONE " slope", build_leaky_relu},
    [LAYER_DROPOUT] = {"dropout", ONE " rate", build_dropout},
    [LAYER_BATCH_NORM] = {"batch_norm", ONE " epsilon momentum", build_batch_norm},
    [LAYER_FLATTEN] = {"flatten", ONE, build_flatten},
    [LAYER_SOFTMAX_XENT] = {"softmax_cross_entropy", ONE " label_smoothing", build_loss},
    [LAYER_SIGMOID_XENT] = {"sigmoid_cross_entropy", ONE, build_loss},
    [LAYER_SQUARED] = {"mean_squared_error", ONE " one_hot", build_loss},
    [LAYER_LAYER_NORM] = {"layer_norm", ONE " epsilon", build_layer_norm},
    [LAYER_EMBEDDING] = {"embedding", ONE " vocabulary units init", build_embedding},
    [LAYER_EMBEDDING_BAG] = {"embedding_bag",
                             "type name comment input units mode max_rows settings",
                             model_tables_build},
    [LAYER_ADD] = {"add", COMMON " inputs", build_add},
    [LAYER_CONCAT] = {"concat", COMMON " inputs", build_concat},
    [LAYER_MULTIPLY] = {"multiply", COMMON " inputs", build_add},
    [LAYER_SUM] = {"sum", ONE, build_sum},
    [LAYER_FACTORIZATION_MACHINE] = {"factorization_machine", ONE, build_factorization_machine},
};

enum layer_kind model_layers_kind(const char *type)
{
    enum layer_kind kind = 0;
    while (kind < LAYER_N_KINDS &&
           (!layer_types[kind].name || strcmp(type, layer_types[kind].name) != 0))
        kind++;
    return kind;
}

const char *model_type_name(enum layer_kind kind)
{
    return layer_types[kind].name;
}

const char *model_layers_types(void)
{
    return "conv2d max_pool avg_pool dense relu sigmoid tanh gelu silu leaky_relu dropout batch_norm layer_norm embedding embedding_bag flatten add concat multiply sum factorization_machine softmax_cross_entropy sigmoid_cross_entropy mean_squared_error";
}

enum status model_layers_check_keys(const struct model_reader *r, enum layer_kind kind)
{
    char owner[64];
    const char *name = layer_types[kind].name;
    snprintf(owner, sizeof owner, "%s %s", strchr("aeiou", name[0]) ? "an" : "a", name);
    return model_json_check_keys(r, owner, layer_types[kind].keys);
}

enum status model_layers_read(struct model_reader *r, struct layer *l)
{
    char shape[96];
    enum status st;
    if (l->n_inputs > 0 || l == r->m->layers)
        l->in = l->n_inputs > 0 ? *input_shape(r, l, 0) : r->m->input;
    TRY(layer_types[l->kind].build(r, l));
    int64_t n = shape_elems(&l->out);
    if (n < 0 || n > MODEL_MAX_OUTPUT)
        return model_json_fail(r, NULL, "its output %s is larger than 2^28 values per sample",
                               shape_text(&l->out, shape, sizeof shape));
done:
    return st;
}
