/* worker/model/model_private.h - shared by model*.c and private to them. A struct model_reader
 * walks jansson's tree. jansson keeps no line numbers, so for an error message the text is scanned
 * again to find the line (model_json_line). Without an error this costs nothing. All sizes are
 * bounded before memory is allocated (I9). */
#ifndef WORKER_MODEL_MODEL_PRIVATE_H
#define WORKER_MODEL_MODEL_PRIVATE_H
#include "worker/model/model.h"
#include <jansson.h>

enum {
    MODEL_MAX_DIM = 65536,      /* limit on filters, units and the input's dimensions */
    MODEL_MAX_WINDOW = 1024,    /* limit on kernel, stride and padding */
    MODEL_MAX_BYTES = 1 << 20,  /* limit on the size of a model file */
    MODEL_MAX_OUTPUT = 1 << 28, /* elements of one layer's output, one sample */
    MODEL_MAX_CLASSES = 65536,
    MODEL_MAX_VOCABULARY = LAYER_MAX_VOCABULARY,
    MODEL_MAX_AFTER = 16, /* limit on the number of names in a layer's "after" */
    MODEL_NODE_KEYS = -2, /* model_node.input of input of keys 0; input i has MODEL_NODE_KEYS - i */
};
#define MODEL_MAX_PARAM_ELEMS ((int64_t)1 << 31)

enum model_init_kind { INIT_CONSTANT, INIT_UNIFORM, INIT_NORMAL, INIT_TRUNCATED_NORMAL };

/* Rule for the initial values of a parameter. For glorot and he, `scale` already includes fan_in
 * and fan_out. */
struct model_init {
    enum model_init_kind kind;
    double scale; /* constant: the value; uniform: the limit; normals: the standard deviation */
};

/* A layer of the file: its name, and the layers that it reads or waits for. In this struct and in
 * errors, a layer's number is its position in the file; in a struct model, it is its position in
 * the order of execution. */
struct model_node {
    char name[64];
    const char *type; /* borrowed from the tree */
    enum layer_kind kind;
    int n_inputs, input[LAYER_MAX_INPUTS]; /* numbers of layers, or LAYER_INPUT_IMAGE */
    int keys; /* index of the input of keys that a layer on the host reads */
    int n_after, after[MODEL_MAX_AFTER];
    int n_readers;
    int place; /* position in the order of execution; -1: none yet */
};

struct model_auto {
    bool more_classes; /* "classes" was derived from data that may not contain all classes */
    /* If "classes" is "auto": position in the file of the last dense layer whose "units" are
     * "classes"; otherwise, or if there is no such layer, -1. */
    int head;
};

struct model_reader {
    const char *text;
    size_t bytes;
    const char *label; /* name of the file in errors */
    int hidden_units;
    json_t *obj;        /* the object being read: the root, a layer, or an initialiser */
    const char *within; /* key of obj if it is an initialiser; otherwise NULL */
    const char *input;  /* name in "inputs" of the input being read; NULL: none */
    struct model_inputs *inputs;
    const struct model_data *data; /* NULL: unknown */
    bool only_inputs;              /* nothing but the inputs is read, before the data are known */
    int layer; /* position in the file of the current layer; -1: the top level */
    int n_nodes;
    struct model_node *nodes; /* [n_nodes] by position in the file */
    struct model_auto left;   /* values that the file leaves to the data */
    struct model *m;
};

/* model_json.c: typed access to r->obj, with errors that name file, line, layer and key. */

/* Logs the error with file, line, layer and key (key NULL: the layer's first line), and returns
 * ST_INVALID. */
enum status model_json_fail(const struct model_reader *r, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns the line of `key` in layers[layer] (layer < 0: in the top level, or in the input
 * r->input). key NULL: the line of the layer itself. Returns 1 if the line is unknown. */
int model_json_line(const struct model_reader *r, int layer, const char *key);
/* Copies s, cut to fit, and replaces characters that are not printable ASCII by '?'. Returns
 * dst. */
const char *model_json_printable(char *dst, size_t bytes, const char *s);
/* Writes a value for use in a sentence, for example: -3, "valid", a list. Returns dst. */
const char *model_json_describe(const json_t *v, char *dst, size_t bytes);
/* Writes ", did you mean X?" with the most similar word of a list "a b c"; "" if no word is
 * similar. */
const char *model_json_suggest(const char *word, const char *list, char *dst, size_t bytes);
/* Refuses the first key of r->obj that is not in the list "a b c". */
enum status model_json_check_keys(const struct model_reader *r, const char *owner,
                                  const char *list);
/* Reads a value. A missing key yields *fallback, or an error if fallback is NULL. */
enum status model_json_int(const struct model_reader *r, const char *key, const int64_t bounds[2],
                           const int64_t *fallback, int64_t *out);
enum status model_json_double(const struct model_reader *r, const char *key, const double bounds[2],
                              const double *fallback, double *out);
/* Reads a whole number of at least `least`, or a list of two such numbers: height, width. */
enum status model_json_pair(const struct model_reader *r, const char *key, int least,
                            const int *fallback, int out[2]);
/* Reads true or false; a missing key yields the fallback. */
enum status model_json_bool(const struct model_reader *r, const char *key, bool fallback,
                            bool *out);
/* Reads a text, borrowed from the tree; fallback NULL: the key is required. */
enum status model_json_string(const struct model_reader *r, const char *key, const char *fallback,
                              const char **out);

/* Replaces the values that the model leaves to the data by those of r->data (model_auto.c; NULL:
 * defaults), and records them in r->left. *text: the changed model as JSON, malloc'd; NULL: the
 * model left no value to the data. ST_NOMEM; ST_INVALID: the changed model is too large. */
enum status model_auto_resolve(struct model_reader *r, json_t *root, char **text);

/* Reads the initialiser under `key` of r->obj (model_init.c). If the key is missing:
 * glorot_uniform. */
enum status model_init_read(struct model_reader *r, const char *key, double fan_in, double fan_out,
                            struct model_init *out);

/* Reads "input" or "inputs" of r->obj, the root (model_inputs.c). */
enum status model_inputs_build(struct model_reader *r);
/* Returns the input of this name, as in model_node.input; 0: no such input. */
int model_inputs_find(const struct model_reader *r, const char *name);
/* Writes the names of all inputs, "a b c". Returns the number of bytes. */
size_t model_inputs_list(const struct model_reader *r, char *dst, size_t bytes);
/* Refuses an input that no layer reads. was_read[n_keys]; dense_read: of the dense input. */
enum status model_inputs_check_read(struct model_reader *r, const bool *was_read, bool dense_read);

/* Fills r->nodes from the list of layers (model_graph.c): names, types, keys, inputs; then sorts
 * them in the order of execution. */
enum status model_graph_read(struct model_reader *r, const json_t *layers);
enum status model_graph_sort(struct model_reader *r);
/* Reads a name: 1 to 63 letters, digits, '_', '.', '-'. */
enum status model_graph_name(const struct model_reader *r, const char *fallback, char dst[64]);
bool model_graph_is_name(const char *s);

/* Reads the layer r->obj into l and adds its parameters (model_layers.c). The caller has already
 * set the layer's name and inputs, and read the layers that are its inputs. */
enum status model_layers_read(struct model_reader *r, struct layer *l);
/* Refuses a key of r->obj that layers of this kind do not have. */
enum status model_layers_check_keys(const struct model_reader *r, enum layer_kind kind);
/* Returns the layer kind that a "type" in a model file names; LAYER_N_KINDS: unknown. */
enum layer_kind model_layers_kind(const char *type);
/* Builds an embedding_bag and its table (model_tables.c). */
enum status model_tables_build(struct model_reader *r, struct layer *l);
/* Returns the names of all layer types: "conv2d max_pool ...". */
const char *model_layers_types(void);

#endif
