/* worker/model_parse.c - from JSON text to a struct model: the top level, names, order of layers.
 * The text is checked by jansson first (syntax, UTF-8, duplicate keys), then from the top down;
 * the first mistake ends it with one line. */
#include "base/log.h"
#include "worker/model_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_name(const char *s, size_t bytes)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return n > 0 && n < bytes && s[n] == 0;
}

static enum status read_name(const struct model_reader *r, const char *fallback, char dst[64])
{
    const char *name;
    char shown[80];
    enum status st;
    TRY(model_json_string(r, "name", fallback, &name));
    if (!is_name(name, 64))
        return model_json_fail(r, "name",
                               "\"name\" is \"%s\", but must be 1 to 63 letters, digits, '_', '.' "
                               "or '-'",
                               model_json_printable(shown, sizeof shown, name));
    snprintf(dst, 64, "%s", name);
done:
    return st;
}

static enum status read_input(const struct model_reader *r, struct shape *out)
{
    const json_t *v = json_object_get(r->obj, "input");
    *out = (struct shape){3, {0}};
    if (!v)
        return model_json_fail(r, NULL, "the key \"input\" is missing");
    int good = json_is_array(v) && json_array_size(v) == 3;
    for (size_t i = 0; good && i < 3; i++) {
        const json_t *dim = json_array_get(v, i);
        good = json_is_integer(dim) && json_integer_value(dim) >= 1 &&
               json_integer_value(dim) <= MODEL_MAX_DIM;
        out->dim[i] = json_integer_value(dim);
    }
    if (!good)
        return model_json_fail(r, "input",
                               "\"input\" must be [channels, height, width], three whole numbers "
                               "from 1 to %d",
                               MODEL_MAX_DIM);
    int64_t n = shape_elems(out);
    if (n < 0 || n > MODEL_MAX_OUTPUT)
        return model_json_fail(r, "input", "\"input\" is larger than 2^28 values");
    return ST_OK;
}

static enum status take_memory(struct model *m, size_t n_layers)
{
    m->layers = calloc(n_layers, sizeof *m->layers);
    m->params = calloc(n_layers * LAYER_MAX_PARAMS, sizeof *m->params);
    m->inits = calloc(n_layers * LAYER_MAX_PARAMS, sizeof *m->inits);
    if (m->layers && m->params && m->inits)
        return ST_OK;
    LOG_E("model: no memory for %zu layers", n_layers);
    return ST_NOMEM;
}

/* The type and the name of every layer, before any is built, so that errors can name others. */
static enum status name_layers(struct model_reader *r, const json_t *layers)
{
    struct model *m = r->m;
    int count[LAYER_N_KINDS] = {0};
    enum status st = ST_OK;
    for (r->layer = 0; r->layer < m->n_layers; r->layer++) {
        struct layer *l = &m->layers[r->layer];
        char fallback[64], shown[64], hint[96];
        const char *type;
        r->type = NULL;
        r->obj = json_array_get(layers, (size_t)r->layer);
        if (!json_is_object(r->obj))
            return model_json_fail(r, NULL, "must be an object such as {\"type\": \"relu\"}");
        TRY(model_json_string(r, "type", NULL, &type));
        l->kind = model_layers_kind(type);
        if (l->kind == LAYER_N_KINDS)
            return model_json_fail(
                r, "type", "unknown layer type \"%s\"%s (known: %s)",
                model_json_printable(shown, sizeof shown, type),
                model_json_suggest(type, model_layers_types(), hint, sizeof hint),
                model_layers_types());
        r->type = type;
        snprintf(fallback, sizeof fallback, "%s%d", type, ++count[l->kind]);
        TRY(read_name(r, fallback, l->name));
        for (int i = 0; i < r->layer; i++) {
            if (strcmp(m->layers[i].name, l->name) == 0)
                return model_json_fail(r, "name", "layer %d in line %d has this name already",
                                       i + 1, model_json_line(r, i, "name"));
        }
    }
    if (r->hidden_units > 0 && count[LAYER_DENSE] < 2) {
        LOG_E("model %s has no hidden dense layer whose units --hidden_units=%d could set",
              r->label, r->hidden_units);
        st = ST_INVALID;
    }
done:
    return st;
}

static enum status read_layers(struct model_reader *r)
{
    struct model *m = r->m;
    const json_t *layers = json_object_get(r->obj, "layers");
    enum status st;
    if (!layers)
        return model_json_fail(r, NULL, "the key \"layers\" is missing");
    size_t n = json_array_size(layers); /* 0 for what is no list */
    if (n < 1 || n > MODEL_MAX_LAYERS)
        return model_json_fail(r, "layers", "\"layers\" must be a list of 1 to %d layers",
                               MODEL_MAX_LAYERS);
    TRY(take_memory(m, n));
    m->n_layers = (int)n;
    TRY(name_layers(r, layers));
    struct shape shape = m->input;
    for (r->layer = 0; r->layer < m->n_layers; r->layer++) {
        struct layer *l = &m->layers[r->layer];
        r->obj = json_array_get(layers, (size_t)r->layer);
        r->type = json_string_value(json_object_get(r->obj, "type"));
        l->in = shape;
        l->n_inputs = 1;
        l->input[0] = r->layer - 1;
        TRY(model_layers_read(r, l));
        shape = l->out;
    }
    r->layer = m->n_layers - 1;
    if (m->layers[r->layer].kind != LAYER_SOFTMAX_XENT)
        return model_json_fail(r, NULL,
                               "is the last layer, but that must be a softmax_cross_entropy: add "
                               "{\"type\": \"softmax_cross_entropy\"} behind it");
    if (m->n_params == 0)
        return model_json_fail(r, NULL, "the model has no parameters to train: add a dense layer");
done:
    return st;
}

static enum status read_root(struct model_reader *r)
{
    static const int64_t bounds[2] = {2, MODEL_MAX_CLASSES};
    int64_t classes;
    enum status st;
    if (!json_is_object(r->obj))
        return model_json_fail(r, NULL,
                               "the file must hold one object with \"input\", \"classes\" and "
                               "\"layers\"");
    TRY(model_json_check_keys(r, "a model", "name comment input classes layers"));
    TRY(read_name(r, "model", r->m->name));
    TRY(read_input(r, &r->m->input));
    TRY(model_json_int(r, "classes", bounds, NULL, &classes));
    r->m->classes = (int)classes;
    TRY(read_layers(r));
done:
    return st;
}

enum status model_parse(const char *text, size_t bytes, const char *label, int hidden_units,
                        struct model **out)
{
    struct model_reader r = {
        .text = text, .bytes = bytes, .label = label, .hidden_units = hidden_units, .layer = -1};
    json_error_t error;
    json_t *root = NULL;
    enum status st = ST_OK;
    r.m = calloc(1, sizeof *r.m);
    if (!r.m) {
        LOG_E("model %s: no memory", label);
        return ST_NOMEM;
    }
    if (hidden_units < 0 || hidden_units > MODEL_MAX_DIM) {
        LOG_E("--hidden_units=%d: must be from 0 (as the model says) to %d", hidden_units,
              MODEL_MAX_DIM);
        TRY(ST_INVALID);
    }
    if (bytes > MODEL_MAX_BYTES) {
        LOG_E("model %s: %zu bytes; a model file has at most %d", label, bytes, MODEL_MAX_BYTES);
        TRY(ST_INVALID);
    }
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        char shown[JSON_ERROR_TEXT_LENGTH];
        LOG_E("model %s, line %d, column %d: not valid JSON: %s", label,
              error.line > 0 ? error.line : 1, error.column > 0 ? error.column : 1,
              model_json_printable(shown, sizeof shown, error.text));
        TRY(ST_INVALID);
    }
    r.obj = root;
    TRY(read_root(&r));
    *out = r.m;
    r.m = NULL;
done:
    json_decref(root);
    model_destroy(r.m);
    return st;
}
