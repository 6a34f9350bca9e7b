/* worker/model/model_inputs.c - the inputs of a model file: "input", the shape of the samples, or
 * "inputs", an object that has the inputs by their names. */
#include "worker/model/model_private.h"
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

/* Reads r->obj, the input with the name r->input. */
static enum status read_named(struct model_reader *r)
{
    enum status st;
    const char *type;
    char shown[64];
    if (!json_is_object(r->obj))
        return model_json_fail(r, NULL, "must be an object such as {\"type\": \"dense\"}");
    TRY(model_json_check_keys(r, "an input", "type comment shape"));
    TRY(model_json_string(r, "type", NULL, &type));
    if (strcmp(type, "dense") != 0)
        return model_json_fail(r, "type", "unknown input type \"%s\" (known: dense)",
                               model_json_printable(shown, sizeof shown, type));
    if (r->dense)
        return model_json_fail(
            r, NULL, "'%s' is dense already, and a model has one dense input: join their numbers",
            r->dense);
    r->dense = r->input;
    TRY(read_shape(r, "shape", &r->m->input));
done:
    return st;
}

enum status model_inputs_read(struct model_reader *r)
{
    enum status st = ST_OK;
    json_t *root = r->obj, *list = json_object_get(root, "inputs"), *value;
    const char *name;
    char shown[80];
    if (!list) {
        r->dense = "image";
        return read_shape(r, "input", &r->m->input);
    }
    if (json_object_get(root, "input"))
        return model_json_fail(r, "input", "there is \"inputs\", too: remove one of the two keys");
    if (json_object_size(list) < 1) /* 0 if it is not an object */
        return model_json_fail(
            r, "inputs",
            "\"inputs\" must be an object such as {\"dense\": {\"type\": \"dense\", \"shape\": \"auto\"}}");
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
    r->obj = root;
done:
    return st;
}
