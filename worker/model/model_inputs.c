/* worker/model/model_inputs.c - the inputs of a model file: "input", the shape of the samples, or
 * "inputs", an object that has the inputs by their names. */
#include "worker/model/model_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the shape of a sample from `key` of r->obj. */
static enum status read_shape(const struct model_reader *r, const char *key, struct shape *out)
{
    const json_t *v = json_object_get(r->obj, key);
    *out = (struct shape){3, {0}};
    if (!v)
        return model_json_fail(r, NULL, "the key \"%s\" is missing", key);
    int good = json_is_array(v) && json_array_size(v) == 3;
    for (size_t i = 0; good && i < 3; i++) {
        const json_t *dim = json_array_get(v, i);
        good = json_is_integer(dim) && json_integer_value(dim) >= 1 &&
               json_integer_value(dim) <= MODEL_MAX_DIM;
        out->dim[i] = json_integer_value(dim);
    }
    if (!good)
        return model_json_fail(
            r, key,
            "\"%s\" must be [channels, height, width], three whole numbers from 1 to %d, or \"auto\"",
            key, MODEL_MAX_DIM);
    int64_t n = shape_elems(out);
    if (n < 0 || n > MODEL_MAX_OUTPUT)
        return model_json_fail(r, key, "\"%s\" is larger than 2^28 values", key);
    return ST_OK;
}

static enum status read_dense(struct model_reader *r)
{
    enum status st;
    if (r->inputs->dense[0])
        return model_json_fail(
            r, NULL, "'%s' is dense already, and a model has one dense input: join their numbers",
            r->inputs->dense);
    TRY(model_json_check_keys(r, "a dense input", "type comment shape"));
    snprintf(r->inputs->dense, sizeof r->inputs->dense, "%s", r->input);
    if (!r->only_inputs)
        TRY(read_shape(r, "shape", &r->m->input));
done:
    return st;
}

/* Returns true if a list of columns may have this value: the list is separated by commas. */
static bool is_column(const json_t *v)
{
    const char *name = json_string_value(v);
    return name && *name && !strchr(name, ',');
}

/* Returns the first name of a list that an earlier one equals; NULL: all differ. */
static const char *find_second(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        for (size_t k = 0; k < i; k++)
            if (strcmp(name, json_string_value(json_array_get(list, k))) == 0)
                return name;
    }
    return NULL;
}

/* Joins the names of columns to "a,b". */
static enum status join_columns(const json_t *list, char **out)
{
    size_t bytes = 1, n = 0, i;
    const json_t *v;
    json_array_foreach(list, i, v)
    {
        bytes += json_string_length(v) + 1;
    }
    char *text = malloc(bytes);
    if (!text)
        return ST_NOMEM;
    json_array_foreach(list, i, v)
    {
        n += (size_t)snprintf(text + n, bytes - n, "%s%s", i > 0 ? "," : "", json_string_value(v));
    }
    *out = text;
    return ST_OK;
}

/* Reads "columns": names, the number of an array's columns, or "auto". */
static enum status read_columns(const struct model_reader *r, struct model_key_input *in)
{
    const json_t *v = json_object_get(r->obj, "columns"), *name;
    const char *word = v ? json_string_value(v) : "auto";
    size_t n = json_is_array(v) ? json_array_size(v) : 0, i;
    int good = 1;
    char shown[64];
    json_array_foreach(v, i, name)
    {
        good &= is_column(name);
    }
    if (json_is_integer(v) && json_integer_value(v) > 0)
        n = (size_t)json_integer_value(v);
    if (word && strcmp(word, "auto") == 0 && r->only_inputs)
        return ST_OK;
    if (!good || n < 1 || n > MODEL_MAX_KEY_COLUMNS)
        return model_json_fail(
            r, "columns",
            "\"columns\" must be a list of 1 to %d names or numbers of columns, each a string without a comma, or the number of columns, or \"auto\"",
            MODEL_MAX_KEY_COLUMNS);
    const char *second = find_second(v);
    if (second)
        return model_json_fail(r, "columns", "\"columns\" has \"%s\" twice: remove one",
                               model_json_printable(shown, sizeof shown, second));
    in->n_columns = (int)n;
    return json_is_array(v) ? join_columns(v, &in->columns) : ST_OK;
}

static enum status read_keys(struct model_reader *r)
{
    struct model_inputs *in = r->inputs;
    struct model_key_input *keys = &in->keys[in->n_keys];
    const struct model_data *d = r->data;
    const char *word;
    char shown[64];
    enum status st;
    if (in->n_keys == MODEL_MAX_KEY_INPUTS)
        return model_json_fail(r, NULL, "a model has at most %d inputs of keys",
                               MODEL_MAX_KEY_INPUTS);
    TRY(model_json_check_keys(r, "an input of keys", "type comment columns keys"));
    TRY(model_json_string(r, "keys", "text", &word));
    keys->are_numbers = strcmp(word, "numbers") == 0;
    if (!keys->are_numbers && strcmp(word, "text") != 0)
        return model_json_fail(r, "keys", "\"keys\" is \"%s\", but must be \"text\" or \"numbers\"",
                               model_json_printable(shown, sizeof shown, word));
    snprintf(keys->name, sizeof keys->name, "%s", r->input);
    in->n_keys++;
    TRY(read_columns(r, keys));
    if (d && in->n_keys <= d->n_keys && keys->n_columns != d->keys[in->n_keys - 1].n_columns)
        return model_json_fail(r, "columns", "has %d columns, but the data have %d",
                               keys->n_columns, d->keys[in->n_keys - 1].n_columns);
done:
    return st;
}

/* Reads r->obj, the input with the name r->input. */
static enum status read_named(struct model_reader *r)
{
    enum status st;
    const char *type;
    char shown[64], hint[96];
    if (!json_is_object(r->obj))
        return model_json_fail(r, NULL, "must be an object such as {\"type\": \"dense\"}");
    TRY(model_json_check_keys(r, "an input", "type comment shape columns keys"));
    TRY(model_json_string(r, "type", NULL, &type));
    if (strcmp(type, "dense") == 0)
        return read_dense(r);
    if (strcmp(type, "keys") == 0)
        return read_keys(r);
    return model_json_fail(r, "type", "unknown input type \"%s\"%s (known: dense keys)",
                           model_json_printable(shown, sizeof shown, type),
                           model_json_suggest(type, "dense keys", hint, sizeof hint));
done:
    return st;
}

static enum status read_list(struct model_reader *r, json_t *list)
{
    enum status st = ST_OK;
    json_t *value;
    const char *name;
    char shown[80];
    json_object_foreach(list, name, value)
    {
        if (!model_graph_is_name(name))
            return model_json_fail(
                r, "inputs",
                "an input's name is \"%s\", but must be 1 to 63 letters, digits, '_', '.' or '-'",
                model_json_printable(shown, sizeof shown, name));
        r->input = name;
        r->obj = value;
        TRY(read_named(r));
    }
    r->input = NULL;
done:
    return st;
}

enum status model_inputs_build(struct model_reader *r)
{
    enum status st = ST_OK;
    json_t *root = r->obj, *list = json_object_get(root, "inputs");
    r->inputs->named = list != NULL;
    if (!list) {
        snprintf(r->inputs->dense, sizeof r->inputs->dense, "image");
        return r->only_inputs ? ST_OK : read_shape(r, "input", &r->m->input);
    }
    if (json_object_get(root, "input"))
        return model_json_fail(r, "input", "there is \"inputs\", too: remove one of the two keys");
    if (json_object_size(list) < 1) /* 0 if it is not an object */
        return model_json_fail(
            r, "inputs",
            "\"inputs\" must be an object such as {\"dense\": {\"type\": \"dense\", \"shape\": \"auto\"}}");
    TRY(read_list(r, list));
    r->obj = root;
    if (!r->inputs->dense[0] && !r->only_inputs)
        r->m->input = r->data ? r->data->sample : (struct shape){3, {1, 1, 1}};
done:
    return st;
}

void model_inputs_free(struct model_inputs *in)
{
    for (int i = 0; i < in->n_keys; i++)
        free(in->keys[i].columns);
    *in = (struct model_inputs){0};
}

int model_inputs_find(const struct model_reader *r, const char *name)
{
    const struct model_inputs *in = r->inputs;
    if (strcmp(name, in->dense) == 0)
        return LAYER_INPUT_IMAGE;
    for (int i = 0; i < in->n_keys; i++)
        if (strcmp(name, in->keys[i].name) == 0)
            return MODEL_NODE_KEYS - i;
    return 0;
}

size_t model_inputs_list(const struct model_reader *r, char *dst, size_t bytes)
{
    const struct model_inputs *in = r->inputs;
    size_t n = (size_t)snprintf(dst, bytes, "%s", in->dense);
    for (int i = 0; i < in->n_keys && n < bytes; i++)
        n += (size_t)snprintf(dst + n, bytes - n, "%s%s", n > 0 ? " " : "", in->keys[i].name);
    return n < bytes ? n : bytes;
}

enum status model_inputs_check_read(struct model_reader *r, const bool *was_read, bool dense_read)
{
    const struct model_inputs *in = r->inputs;
    const char *unread = in->named && in->dense[0] && !dense_read ? in->dense : NULL;
    for (int i = 0; i < in->n_keys && !unread; i++)
        unread = was_read[i] ? NULL : in->keys[i].name;
    if (!unread)
        return ST_OK;
    r->layer = -1;
    r->input = unread;
    return model_json_fail(r, NULL,
                           "no layer reads it: name it as the input of a layer, or remove it");
}
