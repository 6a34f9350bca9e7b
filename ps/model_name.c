/* ps/model_name.c - reads a network's name from its JSON text (model_name.h). */
#include "ps/model_name.h"
#include "base/utf8.h"
#include <jansson.h>
#include <stdio.h>

void ps_model_name(const char *text, char name[STATUS_MODEL_BYTES])
{
    json_t *model = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *found = json_string_value(json_object_get(model, "name"));
    snprintf(name, STATUS_MODEL_BYTES, "%s", found ? found : "");
    utf8_mask(name);
    json_decref(model);
}
