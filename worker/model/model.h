/* worker/model/model.h - a network, read from a JSON file.
 *     {"name": "lenet5", "input": [1, 28, 28], "classes": 10,
 *      "layers": [{"type": "conv2d", "name": "conv1", "filters": 32, "kernel": 5, "stride": 1,
 *                  "padding": "same", "init": {"type": "truncated_normal", "stddev": 0.1},
 *                  "bias_init": 0.1}, {"type": "relu"}, {"type": "max_pool", "kernel": 2,
 *                  "stride": 2, "padding": "same"}, {"type": "flatten"},
 *                 {"type": "dense", "units": 10}, {"type": "softmax_cross_entropy"}]}
 * Defaults: names are <type><number>, init glorot_uniform, bias 0; docs/guide/models.md lists all.
 * Parameters are named <layer>/weights, /biases, /gamma, /beta, /moving_mean, /moving_variance.
 * Owns: everything it points to. Threads: immutable once read.
 * Errors: ST_NOT_FOUND, ST_INVALID, ST_IO, ST_NOMEM; one line with file, line, layer and the
 * fix. */
#ifndef WORKER_MODEL_MODEL_H
#define WORKER_MODEL_MODEL_H
#include "kernels/backend.h"
#include "member/table_settings.h"
#include "net/wire/chunks.h"

enum {
    MODEL_MAX_LAYERS = 1024,
    MODEL_DEVICE_SIZE = 96,
    MODEL_MAX_KEY_INPUTS = 16,
    MODEL_MAX_KEY_COLUMNS = 1024,
};

struct model_init; /* initial values of a parameter; private */

/* The forward of layer `then` starts only after the forward of layer `first` has ended, although
 * `then` does not read the output of `first`. */
struct model_after {
    int first, then;
};

/* An input of keys. */
struct model_key_input {
    char name[64];
    int n_columns;    /* cells of a sample; 0, only before the data are known: left to them */
    char *columns;    /* "a,b": columns of a CSV file; NULL: left to the data, or an array's */
    bool are_numbers; /* keys of a CSV file are whole numbers; false: texts */
};

/* The inputs of a model, without what the data determine. */
struct model_inputs {
    char dense[64]; /* name of the input that layers read as LAYER_INPUT_IMAGE; "": none */
    bool named;     /* the file has "inputs"; false: "input" */
    int n_keys;
    struct model_key_input keys[MODEL_MAX_KEY_INPUTS]; /* order of the file */
};

/* The table of a layer on the host, which has the layer's name. Its `dim` is the last extent of the
 * layer's output. */
struct model_table {
    int layer;
    int64_t max_rows;
    struct table_settings settings;
};

struct model {
    char name[64];
    struct shape input; /* shape (C,H,W) of a sample, also if the model has no dense input */
    struct model_inputs inputs;
    int classes;
    /* parameter whose first dimension is the "auto" number of classes; -1: none */
    int classes_param;
    int n_layers;
    struct layer *layers; /* layers in the order of execution; the last is the loss */
    const char **device; /* [n_layers] device in the model file, such as "cpu:0"; NULL: not given */
    int n_after;
    struct model_after *after; /* pairs of layers, in each of which `first` is below `then` */
    int n_params;              /* number of parameters, which are in the order of their layers */
    struct net_param *params;  /* only name, shape, rule and keep are set */
    struct model_init *inits;  /* [n_params] */
    int n_tables;
    struct model_table *tables; /* [n_tables] in the order of their layers */
    char *text;                 /* JSON text with "auto" resolved, for workers that join later */
    int hidden_units; /* value of --hidden_units that replaced the one in the text; 0: none */
};

/* Columns of the data's keys for one input. */
struct model_data_keys {
    int n_columns;
    const char *columns; /* "a,b": columns of a CSV file; NULL: an array */
};

/* Properties of the training data that a model may refer to ("auto"). */
struct model_data {
    struct shape sample; /* (C,H,W) */
    int classes;         /* number of classes, or of a sample's regression targets */
    bool has_targets;
    bool may_lack; /* the network may have more classes than the data contain */
    int n_keys;
    struct model_data_keys keys[MODEL_MAX_KEY_INPUTS]; /* [n_keys] in the order of the inputs */
};

/* Reads a model. file: a path, or the name of a model in the models folder ("lenet5"); models_dir
 * NULL: the folder beside the program. hidden_units > 0 replaces the units of the first dense layer
 * of a model that has more than one (mnist_replica's flag). */
enum status model_read(const char *file, const char *models_dir, int hidden_units,
                       struct model **out);
/* Reads a model from memory (for tests and the fuzzer). label: its name in errors. */
enum status model_parse(const char *text, size_t bytes, const char *label, int hidden_units,
                        struct model **out);
/* Reads a model for these data. If there are none, "auto" means the shape of MNIST: 1x28x28, 10
 * classes. */
enum status model_read_for(const char *file, const char *models_dir, int hidden_units,
                           const struct model_data *data, struct model **out);
enum status model_parse_for(const char *text, size_t bytes, const char *label, int hidden_units,
                            const struct model_data *data, struct model **out);
void model_destroy(struct model *m); /* NULL is fine */
/* Reads only the inputs of a model, because they decide how data are read. */
enum status model_inputs_read(const char *file, const char *models_dir, struct model_inputs *out);
enum status model_inputs_parse(const char *text, size_t bytes, const char *label,
                               struct model_inputs *out);
void model_inputs_free(struct model_inputs *in);
/* Writes the tables as table_settings_add needs them. wish[n_tables] borrows from the model. */
void model_table_wishes(const struct model *m, struct table_wish *wish);
/* Returns the layer kind's name in model files, such as "conv2d". */
const char *model_type_name(enum layer_kind kind);

/* Writes the initial values of all parameters, flat, one after the other. They depend only on the
 * model and the seed. */
void model_init_params(const struct model *m, uint64_t seed, float *flat);
/* Returns true if every element of this parameter starts with the same number, such as biases with
 * 0. */
bool model_init_is_constant(const struct model *m, int param);

#endif
