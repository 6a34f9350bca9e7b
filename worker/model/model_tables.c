/* worker/model/model_tables.c - embedding_bag layers, each of which reads the rows of a table of
 * its own. The settings of a table are those of weir_table_set, with the same checks; what they
 * mean together with the job's optimizer is checked when the job has one. */
#include "base/float_text.h"
#include "base/log.h"
#include "worker/model/model_private.h"
#include <stdio.h>
#include <string.h>

/* Sets a setting of the table to this value. */
static enum status set_one(const struct model_reader *r, const char *key, const json_t *v,
                           struct table_settings *s)
{
    char number[FLOAT_TEXT_BYTES], values[TABLE_SETTINGS_TEXT_BYTES], shown[64];
    const char *text = json_string_value(v);
    if (json_is_integer(v))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        float_text_double(json_real_value(v), number);
    if (json_is_number(v))
        text = number;
    log_mute(1); /* its line names a flag instead of this file */
    enum status st = text ? table_settings_set(s, key, text) : ST_INVALID;
    log_mute(0);
    if (st != ST_INVALID)
        return st;
    return model_json_fail(r, key, "\"%s\" is %s, but must be %s", key,
                           model_json_describe(v, shown, sizeof shown),
                           table_settings_values(key, values));
}

static enum status read_settings(struct model_reader *r, struct table_settings *s)
{
    enum status st = ST_OK;
    char names[TABLE_SETTINGS_TEXT_BYTES];
    json_t *layer = r->obj, *list = json_object_get(layer, "settings"), *v;
    const char *key;
    if (!list)
        return ST_OK;
    if (!json_is_object(list))
        return model_json_fail(r, "settings",
                               "\"settings\" must be an object such as {\"init_scale\": 0.05}");
    r->obj = list;
    r->within = "settings";
    TRY(model_json_check_keys(r, "a table", table_settings_names(names)));
    json_object_foreach(list, key, v)
    {
        TRY(set_one(r, key, v, s));
    }
    r->within = NULL;
    r->obj = layer;
done:
    return st;
}

enum status model_tables_build(struct model_reader *r, struct layer *l)
{
    static const int64_t dims[2] = {1, TABLES_MAX_DIM}, rows[2] = {1, TABLES_MAX_ROWS};
    struct model *m = r->m;
    struct model_table *t = &m->tables[m->n_tables];
    const struct model_key_input *keys = &m->inputs.keys[r->nodes[r->layer].keys];
    const char *mode;
    char shown[64];
    int64_t units;
    enum status st;
    if (m->n_tables == TABLES_MAX)
        return model_json_fail(r, NULL, "a model has at most %d tables", TABLES_MAX);
    TRY(model_json_int(r, "units", dims, NULL, &units));
    TRY(model_json_int(r, "max_rows", rows, NULL, &t->max_rows));
    TRY(model_json_string(r, "mode", "sum", &mode));
    l->mean = strcmp(mode, "mean") == 0;
    if (!l->mean && strcmp(mode, "sum") != 0)
        return model_json_fail(r, "mode", "\"mode\" is \"%s\", but must be \"sum\" or \"mean\"",
                               model_json_printable(shown, sizeof shown, mode));
    l->keys = r->nodes[r->layer].keys;
    l->out = (struct shape){3, {keys->n_columns, 1, units}};
    t->layer = (int)(l - m->layers);
    table_settings_init(&t->settings);
    m->n_tables++; /* now model_destroy frees the settings */
    TRY(read_settings(r, &t->settings));
done:
    return st;
}

void model_table_wishes(const struct model *m, struct table_wish *wish)
{
    for (int i = 0; i < m->n_tables; i++) {
        const struct layer *l = &m->layers[m->tables[i].layer];
        wish[i] = (struct table_wish){l->name, (int)l->out.dim[2], m->tables[i].max_rows,
                                      &m->tables[i].settings};
    }
}
