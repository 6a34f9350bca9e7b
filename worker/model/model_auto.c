/* worker/model/model_auto.c - resolves the values that a model does not set because they depend on
 * the data: "input": "auto", "shape": "auto" of an input, "classes": "auto" and, in a dense layer,
 * "units": "classes". Numbers replace these values in jansson's tree before the tree is read. The
 * tree is then written as a new text. Every worker that reads this text has the same parameters,
 * even if its own data differ. */
#include "base/log.h"
#include "worker/model/model_private.h"
#include <stdlib.h>
#include <string.h>

/* Properties of MNIST, which are used if there are no data. */
static const struct model_data without_data = {{3, {1, 28, 28}}, 10, 0, 0};

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

enum status model_auto_resolve(json_t *root, const struct model_data *data, struct model_auto *left,
                               char **text)
{
    int changed = 0, good = 1, by_data = has_word(root, "classes", "auto"), head = -1;
    const struct model_data *d = data ? data : &without_data;
    const char *name;
    json_t *input;
    *text = NULL;
    good &= set_shape(root, "input", &d->sample, &changed);
    json_object_foreach(json_object_get(root, "inputs"), name, input)
    {
        good &= set_shape(input, "shape", &d->sample, &changed);
    }
    if (by_data) {
        good &= set_number(root, "classes", d->classes > 2 || d->has_targets ? d->classes : 2);
        changed = 1;
    }
    good &= set_units(root, &changed, &head);
    *left = (struct model_auto){by_data && d->may_lack, by_data ? head : -1};
    if (good && changed) {
        *text = json_dumps(root, JSON_INDENT(1));
        if (*text && strlen(*text) > MODEL_MAX_BYTES) {
            free(*text);
            *text = json_dumps(root, JSON_COMPACT);
        }
        good = *text != NULL;
    }
    if (good)
        return ST_OK;
    LOG_E("model: no memory for the values of its data");
    return ST_NOMEM;
}
