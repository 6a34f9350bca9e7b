/* libweir/tables.c - tables and their settings; see tables.h and weir_tables.h. */
#include "libweir/tables.h"
#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row_table *weir_tables_find(struct weir *w, int table)
{
    if (table >= 0 && table < w->n_tables)
        return w->tables[table];
    weir_errors_fail(w, WEIR_E_INVALID, "there is no table %d; %d were added by weir_table", table,
                     w->n_tables);
    return NULL;
}

const struct net_table *weir_tables_net(const struct weir *w, int table)
{
    return &w->chunks->tables[table];
}

static int check_table(struct weir *w, const char *name, int dim, int64_t max_rows)
{
    if (!chunks_name_ok(name))
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "table %d: a name has 1 to %d printable ASCII characters and no spaces; rename it",
            w->n_tables, CHUNKS_MAX_NAME);
    for (int i = 0; i < w->n_tables; i++)
        if (strcmp(w->tables[i]->name, name) == 0)
            return weir_errors_fail(
                w, WEIR_E_INVALID, "table '%.255s' was added already; rename one of the two", name);
    if (dim < 1 || dim > TABLES_MAX_DIM)
        return weir_errors_fail(w, WEIR_E_INVALID, "table '%.255s': dim is %d, but must be 1 to %d",
                                name, dim, TABLES_MAX_DIM);
    if (max_rows < 1 || max_rows > TABLES_MAX_ROWS)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "table '%.255s': max_rows is %lld, but must be 1 to %lld", name,
                                (long long)max_rows, (long long)TABLES_MAX_ROWS);
    if (w->n_tables == TABLES_MAX)
        return weir_errors_fail(
            w, WEIR_E_INVALID, "table '%.255s' exceeds the maximum of %d tables", name, TABLES_MAX);
    return WEIR_OK;
}

int weir_table(struct weir *w, const char *name, int dim, int64_t max_rows)
{
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    if (w->state != HANDLE_NEW)
        return weir_errors_fail(w, WEIR_E_INVALID, "call weir_table before the first weir_next");
    int code = check_table(w, name, dim, max_rows);
    if (code != WEIR_OK)
        return code;
    if (!w->tables)
        w->tables = calloc(TABLES_MAX, sizeof *w->tables);
    struct row_table *t = w->tables ? calloc(1, sizeof *t) : NULL;
    char *copy = t ? strdup(name) : NULL;
    if (!copy) {
        free(t);
        return weir_errors_fail(w, WEIR_E_NOMEM, "out of memory for table '%.255s'", name);
    }
    t->name = copy;
    t->dim = dim;
    t->max_rows = max_rows;
    t->next_step = -1;
    table_settings_init(&t->set);
    pthread_mutex_init(&t->lock, NULL);
    w->tables[w->n_tables] = t;
    return w->n_tables++;
}

int weir_table_set(struct weir *w, int table, const char *name, const char *value)
{
    char text[WEIR_ERROR_BYTES];
    if (weir_errors_refuses(w))
        return WEIR_E_INVALID;
    weir_errors_listen();
    struct row_table *t = weir_tables_find(w, table);
    if (!t)
        return WEIR_E_INVALID;
    if (w->state != HANDLE_NEW)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "call weir_table_set before the first weir_next");
    if (!name || !value)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "table '%.255s': a setting needs a name and a value", t->name);
    enum status st = table_settings_set(&t->set, name, value);
    if (st == ST_OK)
        return WEIR_OK;
    int code = weir_errors_fail_st(w, st);
    memcpy(text, w->error, sizeof text);
    return weir_errors_fail(w, code, "table '%.255s': %.*s", t->name, (int)sizeof text, text);
}

enum status weir_tables_add(struct weir *w)
{
    enum status st = ST_OK;
    if (w->n_tables == 0)
        return ST_OK;
    struct table_wish *wishes = calloc((size_t)w->n_tables, sizeof *wishes);
    TRY(wishes ? ST_OK : ST_NOMEM);
    for (int i = 0; i < w->n_tables; i++) {
        const struct row_table *t = w->tables[i];
        wishes[i] = (struct table_wish){t->name, t->dim, t->max_rows, &t->set};
    }
    TRY(table_settings_add(wishes, w->n_tables, &w->job, w->joined.chunks, w->chunks));
    for (int i = 0; i < w->n_tables; i++) {
        struct row_table *t = w->tables[i];
        t->done = calloc((size_t)weir_tables_net(w, i)->n_buckets, sizeof *t->done);
        TRY(t->done ? ST_OK : ST_NOMEM);
    }
done:
    free(wishes);
    if (st == ST_NOMEM)
        LOG_E("out of memory for %d tables", w->n_tables);
    return st;
}

void weir_tables_free(struct weir *w)
{
    for (int i = 0; i < w->n_tables; i++) {
        struct row_table *t = w->tables[i];
        free(t->name);
        table_settings_free(&t->set);
        row_keys_free(&t->asked);
        row_keys_free(&t->next);
        row_keys_free(&t->pushing);
        free(t->done);
        weir_lookups_forget(t);
        free(t->sums);
        pthread_mutex_destroy(&t->lock);
        free(t);
    }
    free(w->tables);
}

int weir_tables_check_keys(struct weir *w, const struct row_table *t, const uint64_t *keys,
                           int64_t n)
{
    if (n < 0 || n > ROW_KEYS_MAX)
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "table '%.255s': n is %lld keys, but must be 0 to %lld", t->name,
                                (long long)n, (long long)ROW_KEYS_MAX);
    if (n > 0 && !keys)
        return weir_errors_fail(w, WEIR_E_INVALID, "table '%.255s': keys is NULL, but n is %lld",
                                t->name, (long long)n);
    return WEIR_OK;
}

int weir_tables_sort_keys(struct weir *w, int table, struct row_keys *k, const uint64_t *keys,
                          int64_t n, bool bounded)
{
    const struct net_table *t = weir_tables_net(w, table);
    int64_t share = tables_share(t, t->step_rows);
    if (!row_keys_are(k, keys, (size_t)n) && row_keys_set(k, t, keys, (size_t)n) != ST_OK)
        return weir_errors_fail(w, WEIR_E_NOMEM, "out of memory for %lld keys of table '%.255s'",
                                (long long)n, t->name);
    int above = bounded ? row_keys_above(k, t, share) : -1;
    if (above < 0)
        return WEIR_OK;
    return weir_errors_fail(
        w, WEIR_E_INVALID,
        "table '%.255s', bucket %d: %zu keys in one step, at most %lld; raise step_rows=%lld or buckets=%d, or use smaller batches",
        t->name, above, row_keys_in(k, above), (long long)share, (long long)t->step_rows,
        t->n_buckets);
}

const char *weir_tables_unpushed(const struct weir *w)
{
    for (int i = 0; i < w->n_tables; i++)
        if (w->tables[i]->pushed != w->step + 1)
            return w->tables[i]->name;
    return NULL;
}

void weir_tables_begin(struct weir *w)
{
    for (int i = 0; i < w->n_tables; i++)
        w->tables[i]->pushed = 0;
}

uint64_t weir_key(const void *text, int64_t bytes)
{
    return rng_text(text, text && bytes > 0 ? (size_t)bytes : 0);
}
