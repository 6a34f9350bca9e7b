/* checkpoint/manifest_tables.c - see manifest_tables.h. tables_add checks the numbers. */
#include "checkpoint/manifest_tables.h"
#include <stdlib.h>

bool manifest_tables_add(json_t *root, const struct chunks *chunks, bool bounds)
{
    if (chunks->n_tables == 0)
        return true;
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int i = 0; i < chunks->n_tables && ok; i++) {
        const struct net_table *t = &chunks->tables[i];
        json_t *o =
            json_pack("{s:s, s:i, s:i}", "name", t->name, "dim", t->dim, "buckets", t->n_buckets);
        if (bounds)
            ok = json_object_set_new(o, "max_rows", json_integer((json_int_t)t->max_rows)) == 0 &&
                 json_object_set_new(o, "step_rows", json_integer((json_int_t)t->step_rows)) == 0;
        ok = json_array_append_new(list, o) == 0 && ok;
    }
    return json_object_set_new(root, "tables", list) == 0 && ok;
}

static bool read_int(const json_t *o, const char *key, int *out)
{
    const json_t *number = json_object_get(o, key);
    json_int_t value = json_integer_value(number);
    *out = value >= 0 && value <= INT32_MAX ? (int)value : -1;
    return json_is_integer(number);
}

static bool read_table(const json_t *o, struct net_table *t)
{
    const json_t *max_rows = json_object_get(o, "max_rows");
    const json_t *step_rows = json_object_get(o, "step_rows");
    *t = (struct net_table){.name = json_string_value(json_object_get(o, "name")),
                            .max_rows = json_integer_value(max_rows),
                            .step_rows = json_integer_value(step_rows)};
    return t->name && json_is_integer(max_rows) && json_is_integer(step_rows) &&
           read_int(o, "dim", &t->dim) && read_int(o, "buckets", &t->n_buckets);
}

enum status manifest_tables_read(const json_t *root, struct chunks *chunks)
{
    const json_t *list = json_object_get(root, "tables");
    size_t n = json_array_size(list);
    if (!list)
        return ST_OK;
    if (n < 1 || n > TABLES_MAX)
        return ST_CORRUPT;
    struct net_table *tables = calloc(n, sizeof *tables);
    if (!tables)
        return ST_NOMEM;
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++)
        st = read_table(json_array_get(list, i), &tables[i]) ? ST_OK : ST_CORRUPT;
    if (st == ST_OK)
        st = tables_add(chunks, tables, (int)n);
    free(tables);
    return st == ST_OK || st == ST_NOMEM ? st : ST_CORRUPT;
}
