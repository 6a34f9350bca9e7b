/* checkpoint/manifest_tables.c - see manifest_tables.h. tables_add checks the numbers. */
#include "checkpoint/manifest_tables.h"
#include "checkpoint/manifest_names.h"
#include "checkpoint/manifest_optimizer.h"
#include <stdlib.h>

static json_t *table_to_json(const struct net_table *t, bool bounds)
{
    json_t *o = json_pack("{s:s, s:i, s:i, s:o, s:s, s:f, s:I, s:I, s:s}", "name", t->name, "dim",
                          t->dim, "buckets", t->n_buckets, "optimizer",
                          manifest_optimizer_rows_to_json(&t->optimizer), "init",
                          row_init_name(t->init), "init_scale", (double)t->init_scale,
                          "admit_after", (json_int_t)t->admit_after, "evict_after",
                          (json_int_t)t->evict_after, "when_full", row_full_name(t->when_full));
    /* older versions of Weir have one format only, and refuse tensors of another */
    if (o && t->row_dtype != DTYPE_F32 &&
        json_object_set_new(o, "row_dtype", json_string(dtype_name(t->row_dtype))) != 0) {
        json_decref(o);
        return NULL;
    }
    if (!o || !bounds)
        return o;
    if (json_object_set_new(o, "max_rows", json_integer((json_int_t)t->max_rows)) == 0 &&
        json_object_set_new(o, "step_rows", json_integer((json_int_t)t->step_rows)) == 0)
        return o;
    json_decref(o);
    return NULL;
}

bool manifest_tables_add(json_t *root, const struct chunks *chunks, bool bounds)
{
    if (chunks->n_tables == 0)
        return true;
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int i = 0; i < chunks->n_tables && ok; i++)
        ok = json_array_append_new(list, table_to_json(&chunks->tables[i], bounds)) == 0;
    return json_object_set_new(root, "tables", list) == 0 && ok;
}

static bool read_integer(const json_t *o, const char *key, int64_t *out)
{
    const json_t *number = json_object_get(o, key);
    *out = json_integer_value(number);
    return json_is_integer(number);
}

static bool read_int(const json_t *o, const char *key, int *out)
{
    int64_t value;
    bool ok = read_integer(o, key, &value);
    *out = value >= 0 && value <= INT32_MAX ? (int)value : -1;
    return ok;
}

static const char *init_at(int i)
{
    return row_init_name((enum row_init)i);
}

static const char *full_at(int i)
{
    return row_full_name((enum row_full)i);
}

static const char *dtype_at(int i)
{
    return dtype_name((enum dtype)i);
}

static bool read_table(const json_t *o, struct net_table *t)
{
    const json_t *scale = json_object_get(o, "init_scale");
    int init = manifest_names_find(o, "init", init_at, ROW_INIT_N_KINDS);
    int when_full = manifest_names_find(o, "when_full", full_at, ROW_FULL_N_KINDS);
    *t = (struct net_table){.name = json_string_value(json_object_get(o, "name")),
                            .init_scale = (float)json_number_value(scale)};
    int dtype = json_object_get(o, "row_dtype")
                    ? manifest_names_find(o, "row_dtype", dtype_at, DTYPE_BF16 + 1)
                    : DTYPE_F32;
    if (!t->name || init < 0 || when_full < 0 || dtype < 0 || !json_is_number(scale))
        return false;
    t->row_dtype = (enum dtype)dtype;
    t->init = (enum row_init)init;
    t->when_full = (enum row_full)when_full;
    return read_int(o, "dim", &t->dim) && read_int(o, "buckets", &t->n_buckets) &&
           read_integer(o, "max_rows", &t->max_rows) &&
           read_integer(o, "step_rows", &t->step_rows) &&
           read_integer(o, "admit_after", &t->admit_after) &&
           read_integer(o, "evict_after", &t->evict_after) &&
           manifest_optimizer_rows_from_json(json_object_get(o, "optimizer"), &t->optimizer);
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
