/* worker/model/model_parse.c - converts JSON text to a struct model: the top level, then the layers
 * in their order. jansson checks the text first (syntax, UTF-8, duplicate keys). The first error is
 * logged in one line and ends the reading. */
#include "base/log.h"
#include "worker/model/model_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status allocate_memory(struct model_reader *r, size_t n_layers)
{
    struct model *m = r->m;
    r->nodes = calloc(n_layers, sizeof *r->nodes);
    m->device = calloc(n_layers, sizeof *m->device);
    m->after = calloc(n_layers * MODEL_MAX_AFTER, sizeof *m->after);
    m->layers = calloc(n_layers, sizeof *m->layers);
    m->params = calloc(n_layers * LAYER_MAX_PARAMS, sizeof *m->params);
    m->inits = calloc(n_layers * LAYER_MAX_PARAMS, sizeof *m->inits);
    m->tables = calloc(n_layers, sizeof *m->tables);
    if (r->nodes && m->device && m->after && m->layers && m->params && m->inits && m->tables)
        return ST_OK;
    LOG_E("model: no memory for %zu layers", n_layers);
    return ST_NOMEM;
}

/* Reads "device" and "after" of r->obj, for the placement and the order of execution. */
static enum status read_place(struct model_reader *r, int place)
{
    const struct model_node *node = &r->nodes[r->layer];
    struct model *m = r->m;
    const char *device;
    char shown[MODEL_DEVICE_SIZE];
    enum status st;
    TRY(model_json_string(r, "device", "", &device));
    size_t n = strlen(device);
    if (json_object_get(r->obj, "device") &&
        (n < 1 || strcmp(model_json_printable(shown, sizeof shown, device), device) != 0))
        return model_json_fail(
            r, "device",
            "\"device\" must be a device such as \"cpu:0\" or \"gpu:1\", of at most %d plain characters",
            MODEL_DEVICE_SIZE - 1);
    if (n > 0 && !(m->device[place] = strdup(device)))
        return ST_NOMEM;
    for (int k = 0; k < node->n_after; k++)
        m->after[m->n_after++] = (struct model_after){r->nodes[node->after[k]].place, place};
done:
    return st;
}

static enum status read_layer(struct model_reader *r, struct layer *l)
{
    const struct model_node *node = &r->nodes[r->layer];
    enum status st;
    l->kind = node->kind;
    memcpy(l->name, node->name, sizeof l->name);
    l->n_inputs = node->n_inputs;
    for (int k = 0; k < node->n_inputs; k++)
        l->input[k] = node->input[k] < 0 ? LAYER_INPUT_IMAGE : r->nodes[node->input[k]].place;
    TRY(read_place(r, (int)(l - r->m->layers)));
    TRY(model_layers_read(r, l));
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
    size_t n = json_array_size(layers); /* 0 if it is not a list */
    if (n < 1 || n > MODEL_MAX_LAYERS)
        return model_json_fail(r, "layers", "\"layers\" must be a list of 1 to %d layers",
                               MODEL_MAX_LAYERS);
    TRY(allocate_memory(r, n));
    m->n_layers = r->n_nodes = (int)n;
    TRY(model_graph_read(r, layers));
    TRY(model_graph_sort(r));
    for (int place = 0; place < m->n_layers; place++) {
        r->layer = 0;
        while (r->nodes[r->layer].place != place)
            r->layer++;
        r->obj = json_array_get(layers, (size_t)r->layer);
        TRY(read_layer(r, &m->layers[place]));
    }
    r->layer = m->n_layers - 1;
    if (!layer_is_loss(r->nodes[r->layer].kind))
        return model_json_fail(
            r, NULL,
            "is the last layer, but that must be a loss: add {\"type\": \"softmax_cross_entropy\"} after it");
    if (m->n_params == 0)
        return model_json_fail(r, NULL, "the model has no parameters to train: add a dense layer");
done:
    return st;
}

static enum status read_root(struct model_reader *r)
{
    static const int64_t bounds[2] = {1, MODEL_MAX_CLASSES};
    int64_t classes;
    enum status st;
    if (!json_is_object(r->obj))
        return model_json_fail(
            r, NULL, "the file must hold one object with \"input\", \"classes\" and \"layers\"");
    TRY(model_json_check_keys(r, "a model", "name comment input inputs classes layers"));
    TRY(model_graph_name(r, "model", r->m->name));
    TRY(model_inputs_build(r));
    TRY(model_json_int(r, "classes", bounds, NULL, &classes));
    r->m->classes = (int)classes;
    TRY(read_layers(r));
    const struct model_node *head = r->left.head < 0 ? NULL : &r->nodes[r->left.head];
    r->m->classes_param = head ? r->m->layers[head->place].param[0] : -1;
done:
    return st;
}

enum status model_parse(const char *text, size_t bytes, const char *label, int hidden_units,
                        struct model **out)
{
    return model_parse_for(text, bytes, label, hidden_units, NULL, out);
}

/* Copies the text, which need not end with a NUL. */
static char *copy_text(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (copy) {
        memcpy(copy, text, bytes);
        copy[bytes] = 0;
    }
    return copy;
}

/* Checks the text's syntax, and replaces the values that it leaves to the data. resolved: see
 * model_auto_resolve. */
static enum status load_text(struct model_reader *r, json_t **root, char **resolved)
{
    json_error_t error;
    enum status st = ST_OK;
    if (r->bytes > MODEL_MAX_BYTES) {
        LOG_E("model %s: %zu bytes; a model file has at most %d", r->label, r->bytes,
              MODEL_MAX_BYTES);
        return ST_INVALID;
    }
    *root = json_loadb(r->text, r->bytes, JSON_REJECT_DUPLICATES, &error);
    if (!*root) {
        char shown[JSON_ERROR_TEXT_LENGTH];
        LOG_E("model %s, line %d, column %d: not valid JSON: %s", r->label,
              error.line > 0 ? error.line : 1, error.column > 0 ? error.column : 1,
              model_json_printable(shown, sizeof shown, error.text));
        return ST_INVALID;
    }
    r->obj = *root;
    if (!r->only_inputs)
        st = model_auto_resolve(r, *root, resolved);
    return st;
}

enum status model_inputs_parse(const char *text, size_t bytes, const char *label,
                               struct model_inputs *out)
{
    struct model_reader r = {.text = text,
                             .bytes = bytes,
                             .label = label,
                             .layer = -1,
                             .inputs = out,
                             .only_inputs = true};
    json_t *root = NULL;
    enum status st;
    TRY(load_text(&r, &root, NULL));
    TRY(model_inputs_build(&r));
done:
    json_decref(root);
    return st;
}

enum status model_parse_for(const char *text, size_t bytes, const char *label, int hidden_units,
                            const struct model_data *data, struct model **out)
{
    struct model_reader r = {.text = text,
                             .bytes = bytes,
                             .label = label,
                             .hidden_units = hidden_units,
                             .layer = -1,
                             .data = data};
    json_t *root = NULL;
    char *resolved = NULL;
    enum status st = ST_OK;
    r.m = calloc(1, sizeof *r.m);
    if (!r.m) {
        LOG_E("model %s: no memory", label);
        return ST_NOMEM;
    }
    r.inputs = &r.m->inputs;
    if (hidden_units < 0 || hidden_units > MODEL_MAX_DIM) {
        LOG_E("--hidden_units=%d: must be from 0 (as in the model) to %d", hidden_units,
              MODEL_MAX_DIM);
        TRY(ST_INVALID);
    }
    TRY(load_text(&r, &root, &resolved));
    TRY(read_root(&r));
    r.m->hidden_units = hidden_units;
    r.m->text = resolved ? resolved : copy_text(text, bytes);
    resolved = NULL;
    if (!r.m->text) {
        LOG_E("model %s: no memory", label);
        TRY(ST_NOMEM);
    }
    *out = r.m;
    r.m = NULL;
done:
    json_decref(root);
    free(resolved);
    free(r.nodes);
    model_destroy(r.m);
    return st;
}
