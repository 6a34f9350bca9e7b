/* worker/model/model_graph.c - the layers of a model file, their inputs, and the order of
 * execution: the file's order, except that a layer runs after its inputs and after the layers in
 * its `after`. So if each layer in a file reads the previous one, the order is that of the file. */
#include "base/log.h"
#include "worker/model/model_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool model_graph_is_name(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return n > 0 && n < 64 && s[n] == 0;
}

enum status model_graph_name(const struct model_reader *r, const char *fallback, char dst[64])
{
    const char *name;
    char shown[80];
    enum status st;
    TRY(model_json_string(r, "name", fallback, &name));
    if (!model_graph_is_name(name))
        return model_json_fail(
            r, "name", "\"name\" is \"%s\", but must be 1 to 63 letters, digits, '_', '.' or '-'",
            model_json_printable(shown, sizeof shown, name));
    snprintf(dst, 64, "%s", name);
done:
    return st;
}

/* Reads the type and the name of a layer, so that errors and other layers can name it. */
static enum status read_node(struct model_reader *r, int count[LAYER_N_KINDS])
{
    struct model_node *node = &r->nodes[r->layer];
    char fallback[64], shown[64], hint[96];
    const char *type;
    enum status st;
    node->place = -1;
    if (!json_is_object(r->obj))
        return model_json_fail(r, NULL, "must be an object such as {\"type\": \"relu\"}");
    TRY(model_json_string(r, "type", NULL, &type));
    node->kind = model_layers_kind(type);
    if (node->kind == LAYER_N_KINDS)
        return model_json_fail(r, "type", "unknown layer type \"%s\"%s (known: %s)",
                               model_json_printable(shown, sizeof shown, type),
                               model_json_suggest(type, model_layers_types(), hint, sizeof hint),
                               model_layers_types());
    node->type = type;
    snprintf(fallback, sizeof fallback, "%s%d", type, ++count[node->kind]);
    TRY(model_graph_name(r, fallback, node->name));
    if (model_inputs_find(r, node->name) != 0)
        return model_json_fail(
            r, "name", "\"%s\" is the name of the model's input; choose another name", node->name);
    for (int i = 0; i < r->layer; i++) {
        if (strcmp(r->nodes[i].name, node->name) == 0)
            return model_json_fail(r, "name", "layer %d in line %d has this name already", i + 1,
                                   model_json_line(r, i, "name"));
    }
    TRY(model_layers_check_keys(r, node->kind));
done:
    return st;
}

static enum status unknown_name(const struct model_reader *r, const char *key, const char *name)
{
    char shown[80], hint[96] = "", inputs[64 * (MODEL_MAX_KEY_INPUTS + 1)];
    size_t bytes = sizeof inputs + 64 * (size_t)r->n_nodes, used;
    char *known = malloc(bytes);
    model_inputs_list(r, inputs, sizeof inputs);
    if (known) {
        used = (size_t)snprintf(known, bytes, "%s", inputs);
        for (int i = 0; i < r->n_nodes; i++)
            used += (size_t)snprintf(known + used, bytes - used, " %s", r->nodes[i].name);
        model_json_suggest(name, known, hint, sizeof hint);
    }
    free(known);
    return model_json_fail(
        r, key,
        "\"%s\": there is no layer \"%s\"%s (a layer is named by its \"name\", or by type and number such as \"relu1\"; the model's input%s \"%s\")",
        key, model_json_printable(shown, sizeof shown, name), hint,
        strchr(inputs, ' ') ? "s are" : " is", inputs);
}

static enum status find_layer(const struct model_reader *r, const char *key, const char *name,
                              int *out)
{
    *out = model_inputs_find(r, name);
    if (*out != 0)
        return ST_OK;
    for (int i = 0; i < r->n_nodes; i++) {
        if (strcmp(r->nodes[i].name, name) == 0) {
            *out = i;
            return ST_OK;
        }
    }
    return unknown_name(r, key, name);
}

/* Reads a list of names; bounds: smallest and largest length. */
static enum status read_names(const struct model_reader *r, const char *key, const int bounds[2],
                              int *out, int *n_out)
{
    const json_t *v = json_object_get(r->obj, key);
    size_t n = json_array_size(v); /* 0 if it is not a list */
    int good = n >= (size_t)bounds[0] && n <= (size_t)bounds[1];
    enum status st = ST_OK;
    for (size_t k = 0; good && k < n; k++)
        good = json_is_string(json_array_get(v, k));
    if (!good)
        return model_json_fail(r, v ? key : NULL,
                               "\"%s\" must be a list of %d to %d names of layers", key, bounds[0],
                               bounds[1]);
    for (size_t k = 0; k < n; k++)
        TRY(find_layer(r, key, json_string_value(json_array_get(v, k)), &out[k]));
    *n_out = (int)n;
done:
    return st;
}

/* Reads the input of a layer on the host. */
static enum status read_keys(const struct model_reader *r, struct model_node *node)
{
    const struct model_inputs *in = r->inputs;
    const char *name;
    int found;
    enum status st;
    if (in->n_keys == 0)
        return model_json_fail(
            r, NULL,
            "reads an input of keys, but the model has none: add one to \"inputs\", such as \"fields\": {\"type\": \"keys\"}");
    TRY(model_json_string(r, "input", in->n_keys == 1 ? in->keys[0].name : NULL, &name));
    TRY(find_layer(r, "input", name, &found));
    if (found > MODEL_NODE_KEYS)
        return model_json_fail(r, "input", "'%s' is not an input of keys, such as '%s'", name,
                               in->keys[0].name);
    node->keys = MODEL_NODE_KEYS - found;
done:
    return st;
}

static enum status read_edges(struct model_reader *r)
{
    static const int inputs_bounds[2] = {2, LAYER_MAX_INPUTS},
                     after_bounds[2] = {1, MODEL_MAX_AFTER};
    struct model_node *node = &r->nodes[r->layer];
    const char *name;
    enum status st = ST_OK;
    if (layer_is_on_host(node->kind)) {
        TRY(read_keys(r, node));
    } else if (layer_is_join(node->kind)) {
        TRY(read_names(r, "inputs", inputs_bounds, node->input, &node->n_inputs));
    } else {
        const char *above = r->layer > 0 ? r->nodes[r->layer - 1].name : r->inputs->dense;
        TRY(model_json_string(r, "input", *above ? above : NULL, &name));
        TRY(find_layer(r, "input", name, &node->input[0]));
        node->n_inputs = 1;
    }
    if (json_object_get(r->obj, "after"))
        TRY(read_names(r, "after", after_bounds, node->after, &node->n_after));
    for (int k = 0; k < node->n_after; k++) {
        if (node->after[k] < 0)
            return model_json_fail(r, "after", "\"after\": %s is always available; name layers",
                                   r->inputs->named ? "an input" : "the image");
    }
    for (int k = 0; k < node->n_inputs; k++) {
        if (node->input[k] <= MODEL_NODE_KEYS)
            return model_json_fail(r, layer_is_join(node->kind) ? "inputs" : "input",
                                   "'%s' is an input of keys: insert embedding_bag",
                                   r->inputs->keys[MODEL_NODE_KEYS - node->input[k]].name);
        if (node->input[k] >= 0)
            r->nodes[node->input[k]].n_readers++;
    }
done:
    return st;
}

/* Refuses an input of the model that no layer reads. */
static enum status check_inputs(struct model_reader *r)
{
    bool keys[MODEL_MAX_KEY_INPUTS] = {false}, dense = false;
    for (int i = 0; i < r->n_nodes; i++) {
        const struct model_node *node = &r->nodes[i];
        if (layer_is_on_host(node->kind))
            keys[node->keys] = true;
        for (int k = 0; k < node->n_inputs; k++)
            dense |= node->input[k] == LAYER_INPUT_IMAGE;
    }
    return model_inputs_check_read(r, keys, dense);
}

enum status model_graph_read(struct model_reader *r, const json_t *layers)
{
    int count[LAYER_N_KINDS] = {0};
    enum status st = ST_OK;
    for (r->layer = 0; r->layer < r->n_nodes; r->layer++) {
        r->obj = json_array_get(layers, (size_t)r->layer);
        TRY(read_node(r, count));
    }
    if (r->hidden_units > 0 && count[LAYER_DENSE] < 2) {
        LOG_E("model %s has no hidden dense layer whose units --hidden_units=%d could set",
              r->label, r->hidden_units);
        return ST_INVALID;
    }
    for (r->layer = 0; r->layer < r->n_nodes; r->layer++) {
        r->obj = json_array_get(layers, (size_t)r->layer);
        TRY(read_edges(r));
    }
    for (r->layer = 0; r->layer < r->n_nodes - 1; r->layer++) {
        if (r->nodes[r->layer].n_readers == 0)
            return model_json_fail(
                r, NULL,
                "no layer reads its output: name it as the input of another, or remove it");
    }
    TRY(check_inputs(r));
done:
    return st;
}

/* Returns a layer that layer i waits for and that has no position in the order yet; -1: none. */
static int waits_for(const struct model_reader *r, int i, int *reads)
{
    const struct model_node *node = &r->nodes[i];
    for (int k = 0; k < node->n_inputs + node->n_after; k++) {
        int before = k < node->n_inputs ? node->input[k] : node->after[k - node->n_inputs];
        *reads = k < node->n_inputs;
        if (before >= 0 && r->nodes[before].place < 0)
            return before;
    }
    return -1;
}

/* Refuses a cycle: each layer without a position waits for another layer without a position. */
static enum status refuse_circle(struct model_reader *r)
{
    char text[600] = "";
    int at = 0, first, reads;
    size_t used = 0;
    while (r->nodes[at].place >= 0)
        at++;
    for (int i = 0; i < r->n_nodes; i++) /* after n_nodes steps `at` is in the cycle */
        at = waits_for(r, at, &reads);
    first = at;
    for (int i = waits_for(r, at, &reads); i != at; i = waits_for(r, i, &reads))
        first = i < first ? i : first;
    at = r->layer = first;
    do {
        int before = waits_for(r, at, &reads);
        if (used + 160 > sizeof text) {
            snprintf(text + used, sizeof text - used, "..., ");
            break;
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %s %s, ", r->nodes[at].name,
                                 reads ? "reads" : "is after", r->nodes[before].name);
        at = before;
    } while (at != first);
    return model_json_fail(r, NULL, "waits for itself: %sremove one of these", text);
}

enum status model_graph_sort(struct model_reader *r)
{
    int reads;
    for (int place = 0; place < r->n_nodes; place++) {
        int i = 0;
        while (i < r->n_nodes && (r->nodes[i].place >= 0 || waits_for(r, i, &reads) >= 0))
            i++;
        if (i == r->n_nodes)
            return refuse_circle(r);
        r->nodes[i].place = place;
    }
    return ST_OK;
}
