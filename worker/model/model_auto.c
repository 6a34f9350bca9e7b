/* worker/model/model_auto.c - resolves the values that a model does not set because they depend on
 * the data: "input": "auto", "shape": "auto" of an input, "columns" of an input of keys, "classes":
 * "auto" and, in a dense layer, "units": "classes". Values of the data replace them in jansson's
 * tree before the tree is read. The tree is then written as a new text. Every worker that reads
 * this text has the same parameters, even if its own data differ. */
#include "base/log.h"
#include "worker/model/model_private.h"
#include <stdlib.h>
#include <string.h>

/* Properties of MNIST, which are used if there are no data. */
static const struct model_data without_data = {.sample = {3, {1, 28, 28}}, .classes = 10};

static bool has_word(const json_t *obj, const char *key, const char *word)
{
    const char *text = json_string_value(json_object_get(obj, key));
    return text && strcmp(text, word) == 0;
}

static bool set_number(json_t *obj, const char *key, int64_t value)
{
    return json_object_set_new(obj, key, json_integer(value)) == 0;
}

/* Sets `key` of obj to a list of the shape's extents if it is "auto". */
static bool set_shape(json_t *obj, const char *key, const struct shape *s, int *changed)
{
    if (!has_word(obj, key, "auto"))
        return true;
    *changed = 1;
    json_t *list = json_array();
    int good = list != NULL;
    for (int i = 0; good && i < 3; i++)
        good = json_array_append_new(list, json_integer(s->dim[i])) == 0;
    if (good)
        return json_object_set_new(obj, key, list) == 0;
    json_decref(list);
    return false;
}

/* Returns the list of the columns "a,b"; NULL: no memory. */
static json_t *list_columns(const char *columns)
{
    json_t *list = json_array();
    int good = list != NULL;
    for (const char *at = columns, *comma; good && at; at = comma ? comma + 1 : NULL) {
        comma = strchr(at, ',');
        size_t n = comma ? (size_t)(comma - at) : strlen(at);
        good = json_array_append_new(list, json_stringn(at, n)) == 0;
    }
    if (good)
        return list;
    json_decref(list);
    return NULL;
}

/* Sets the columns of an input of keys. The data may replace a list, for example numbers by names.
 * keys NULL: one column. */
static bool set_columns(json_t *input, const struct model_data_keys *keys, int *changed)
{
    const json_t *v = json_object_get(input, "columns");
    if (keys && keys->columns) {
        json_t *list = list_columns(keys->columns);
        *changed |= !json_equal(v, list);
        return list && json_object_set_new(input, "columns", list) == 0;
    }
    if (v && !has_word(input, "columns", "auto"))
        return true;
    *changed = 1;
    return set_number(input, "columns", keys ? keys->n_columns : 1);
}

/* Refuses names of columns that JSON cannot contain. */
static enum status check_names(const struct model_reader *r, const struct model_data *d)
{
    for (int i = 0; i < d->n_keys; i++) {
        json_t *text = json_string(d->keys[i].columns ? d->keys[i].columns : "");
        if (!text) {
            LOG_E(
                "model %s: the name of a column of keys in the data is not UTF-8; convert the file's first line to UTF-8",
                r->label);
            return ST_INVALID;
        }
        json_decref(text);
    }
    return ST_OK;
}

/* Sets what the inputs leave to the data. */
static bool set_inputs(json_t *inputs, const struct model_data *d, int *changed)
{
    const char *name;
    json_t *input;
    int good = 1, i = 0;
    json_object_foreach(inputs, name, input)
    {
        good &= set_shape(input, "shape", &d->sample, changed);
        if (!has_word(input, "type", "keys"))
            continue;
        good &= set_columns(input, i < d->n_keys ? &d->keys[i] : NULL, changed);
        i++;
    }
    return good;
}

static bool set_units(json_t *root, int *changed, int *head)
{
    size_t i;
    json_t *layer;
    const json_t *classes = json_object_get(root, "classes");
    int good = 1;
    json_array_foreach(json_object_get(root, "layers"), i, layer)
    {
        if (!json_is_integer(classes) || !has_word(layer, "units", "classes"))
            continue;
        good &= set_number(layer, "units", json_integer_value(classes));
        *changed = 1;
        if (has_word(layer, "type", "dense"))
            *head = (int)i;
    }
    return good;
}

/* Writes the changed tree as a text. */
static enum status write_text(const struct model_reader *r, const json_t *root, char **text)
{
    *text = json_dumps(root, JSON_INDENT(1));
    if (*text && strlen(*text) > MODEL_MAX_BYTES) {
        free(*text);
        *text = json_dumps(root, JSON_COMPACT);
    }
    if (!*text || strlen(*text) <= MODEL_MAX_BYTES)
        return *text ? ST_OK : ST_NOMEM;
    LOG_E("model %s: with the names of the data's columns it has %zu bytes, but may have %d",
          r->label, strlen(*text), MODEL_MAX_BYTES);
    return ST_INVALID;
}

enum status model_auto_resolve(struct model_reader *r, json_t *root, char **text)
{
    int changed = 0, good = 1, by_data = has_word(root, "classes", "auto"), head = -1;
    const struct model_data *d = r->data ? r->data : &without_data;
    enum status st = check_names(r, d);
    *text = NULL;
    if (st != ST_OK)
        return st;
    good &= set_shape(root, "input", &d->sample, &changed);
    good &= set_inputs(json_object_get(root, "inputs"), d, &changed);
    if (by_data) {
        good &= set_number(root, "classes", d->classes > 2 || d->has_targets ? d->classes : 2);
        changed = 1;
    }
    good &= set_units(root, &changed, &head);
    r->left = (struct model_auto){by_data && d->may_lack, by_data ? head : -1};
    st = ST_NOMEM;
    if (good)
        st = changed ? write_text(r, root, text) : ST_OK;
    if (st == ST_NOMEM)
        LOG_E("model: no memory for the values of its data");
    return st;
}
