/* worker/events/event_graph.c - writes the model as a GraphDef. A layer with parameters is a scope
 * that contains its parameters and operations, as in TensorFlow: conv1/conv2d, conv1/weights. */
#include "worker/events/event_graph.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NODE = 1, VERSIONS = 4, NODE_NAME = 1, NODE_OP, NODE_INPUT, NODE_DEVICE, NODE_ATTR };
enum { NAME_BYTES = 400, DEVICE_BYTES = 80 };

/* Replaces characters that TensorFlow does not allow in a node's name. */
static void clean(char *name)
{
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_.-/", *c))
            *c = '_';
    if (name[0] && strchr("_-/", name[0]))
        name[0] = '.';
}

static const char *tower_prefix(const struct event_graph_source *s, int tower, char text[32])
{
    text[0] = 0;
    if (s->towers->n > 1)
        snprintf(text, 32, "tower_%d/", tower);
    return text;
}

static void layer_name(const struct event_graph_source *s, int tower, int layer,
                       char name[NAME_BYTES])
{
    char prefix[32];
    tower_prefix(s, tower, prefix);
    if (layer == LAYER_INPUT_IMAGE) {
        snprintf(name, NAME_BYTES, "%sinput", prefix);
        return;
    }
    const struct layer *l = &s->model->layers[layer];
    snprintf(name, NAME_BYTES, "%s%s%s%s", prefix, l->name, l->n_params > 0 ? "/" : "",
             l->n_params > 0 ? model_type_name(l->kind) : "");
    clean(name);
}

static void keys_name(const struct event_graph_source *s, int tower, int keys,
                      char name[NAME_BYTES])
{
    char prefix[32];
    tower_prefix(s, tower, prefix);
    snprintf(name, NAME_BYTES, "%sinputs/%s", prefix, s->model->inputs.keys[keys].name);
    clean(name);
}

static void param_name(const struct event_graph_source *s, int param, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s", s->model->params[param].name);
    clean(name);
}

static void host_device(const struct event_graph_source *s, char device[DEVICE_BYTES])
{
    snprintf(device, DEVICE_BYTES, "/job:worker/task:%d/device:CPU:0", s->task);
}

static void layer_device(const struct event_graph_source *s, int tower, int layer,
                         char device[DEVICE_BYTES])
{
    const struct tower_spec *t = &s->towers->tower[tower];
    int stage = layer >= 0 && t->stage_of ? t->stage_of[layer] : 0;
    const struct tower_device *d = stage ? &t->others[stage - 1] : &t->own;
    host_device(s, device);
    if (d->gpu && (layer < 0 || !layer_is_on_host(s->model->layers[layer].kind)))
        snprintf(device, DEVICE_BYTES, "/job:worker/task:%d/device:GPU:%d", s->task, d->gpu_index);
}

static void param_device(const struct event_graph_source *s, int layer, char device[DEVICE_BYTES])
{
    if (s->n_servers == 1)
        snprintf(device, DEVICE_BYTES, "/job:ps/task:0/device:CPU:0");
    else if (s->n_servers > 1)
        snprintf(device, DEVICE_BYTES, "/job:ps/device:CPU:0");
    else if (s->params_on_host)
        host_device(s, device);
    else
        layer_device(s, 0, layer, device);
}

/* Writes the label of an edge; batch: number of samples, written before the shape; 0: not
 * written. */
static void put_shape(struct event_buf *b, const struct shape *shape, int batch)
{
    enum { KEY = 1, VALUE, VALUE_LIST = 1, LIST_SHAPE = 7, SHAPE_DIM = 2, DIM_SIZE = 1 };
    size_t attr = event_buf_begin(b, NODE_ATTR);
    event_buf_text(b, KEY, "_output_shapes");
    size_t value = event_buf_begin(b, VALUE), list = event_buf_begin(b, VALUE_LIST);
    size_t dims = event_buf_begin(b, LIST_SHAPE);
    for (int i = batch ? -1 : 0; i < shape->n_dims; i++) {
        size_t dim = event_buf_begin(b, SHAPE_DIM);
        event_buf_int(b, DIM_SIZE, i < 0 ? batch : shape->dim[i]);
        event_buf_end(b, dim);
    }
    event_buf_end(b, dims);
    event_buf_end(b, list);
    event_buf_end(b, value);
    event_buf_end(b, attr);
}

struct node {
    const char *name, *op, *device;
    const struct shape *out;
    int batch;
};

static size_t begin_node(struct event_buf *b, const struct node *n)
{
    size_t begun = event_buf_begin(b, NODE);
    event_buf_text(b, NODE_NAME, n->name);
    event_buf_text(b, NODE_OP, n->op);
    event_buf_text(b, NODE_DEVICE, n->device);
    put_shape(b, n->out, n->batch);
    return begun;
}

static void put_inputs(const struct event_graph_source *s, int tower, struct event_buf *b)
{
    char name[NAME_BYTES], device[DEVICE_BYTES];
    const struct model_inputs *in = &s->model->inputs;
    int batch = s->towers->tower[tower].n;
    layer_device(s, tower, LAYER_INPUT_IMAGE, device);
    layer_name(s, tower, LAYER_INPUT_IMAGE, name);
    struct node dense = {name, "Placeholder", device, &s->model->input, batch};
    if (in->dense[0])
        event_buf_end(b, begin_node(b, &dense));
    for (int i = 0; i < in->n_keys; i++) {
        struct shape columns = {1, {in->keys[i].n_columns}};
        keys_name(s, tower, i, name);
        host_device(s, device);
        struct node keys = {name, "Placeholder", device, &columns, batch};
        event_buf_end(b, begin_node(b, &keys));
    }
}

static void put_layer(const struct event_graph_source *s, int tower, int layer, struct event_buf *b)
{
    const struct layer *l = &s->model->layers[layer];
    char name[NAME_BYTES], device[DEVICE_BYTES];
    layer_name(s, tower, layer, name);
    layer_device(s, tower, layer, device);
    struct node n = {name, model_type_name(l->kind), device, &l->out, s->towers->tower[tower].n};
    size_t begun = begin_node(b, &n);
    if (layer_is_on_host(l->kind)) {
        keys_name(s, tower, l->keys, name);
        event_buf_text(b, NODE_INPUT, name);
    }
    for (int i = 0; i < l->n_inputs; i++) {
        layer_name(s, tower, l->input[i], name);
        event_buf_text(b, NODE_INPUT, name);
    }
    for (int i = 0; i < l->n_params; i++) {
        param_name(s, l->param[i], name);
        event_buf_text(b, NODE_INPUT, name);
    }
    event_buf_end(b, begun);
}

static void put_params(const struct event_graph_source *s, int layer, struct event_buf *b)
{
    const struct layer *l = &s->model->layers[layer];
    char name[NAME_BYTES], device[DEVICE_BYTES];
    param_device(s, layer, device);
    for (int i = 0; i < l->n_params; i++) {
        param_name(s, l->param[i], name);
        struct node n = {name, "VariableV2", device, &s->model->params[l->param[i]].shape, 0};
        event_buf_end(b, begin_node(b, &n));
    }
}

void event_graph_put(const struct event_graph_source *s, struct event_buf *b)
{
    enum { PRODUCER = 1, GRAPH_VERSION = 22 };
    for (int i = 0; i < s->model->n_layers; i++)
        put_params(s, i, b);
    for (int t = 0; t < s->towers->n; t++) {
        put_inputs(s, t, b);
        for (int i = 0; i < s->model->n_layers; i++)
            put_layer(s, t, i, b);
    }
    size_t versions = event_buf_begin(b, VERSIONS);
    event_buf_int(b, PRODUCER, GRAPH_VERSION);
    event_buf_end(b, versions);
}
