/* worker/data/data_csv_index.c - the columns of line 1 sorted by their names, equal names by place,
 * so that finding many columns by name costs little more than reading the line. See
 * data_csv_impl.h. */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include <stdlib.h>
#include <string.h>

struct entry {
    struct data_csv_field name;
    int64_t column;
    int64_t n_passed; /* entries of this name, from the first one on, that take has passed */
};

struct data_csv_index {
    int64_t n;
    struct entry entry[];
};

static int compare_names(const struct data_csv_field *a, const struct data_csv_field *b)
{
    int order = memcmp(a->at, b->at, a->n < b->n ? a->n : b->n);
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = compare_names(&x->name, &y->name);
    return order ? order : (x->column > y->column) - (x->column < y->column);
}

enum status data_csv_index_create(const struct csv *c, struct data_csv_index **out)
{
    const char *end = data_csv_line_end(c, c->at), *p = c->at;
    struct data_csv_index *x = malloc(sizeof *x + (size_t)c->n_columns * sizeof(struct entry));
    if (!x) {
        LOG_E("%s: no memory for its %lld columns", c->path, (long long)c->n_columns);
        return ST_NOMEM;
    }
    for (x->n = 0; x->n < c->n_columns; x->n++) {
        struct entry *e = &x->entry[x->n];
        *e = (struct entry){.column = x->n};
        e->name.at = data_csv_take_field(c, &p, end, &e->name.n);
    }
    qsort(x->entry, (size_t)x->n, sizeof *x->entry, compare_entries);
    *out = x;
    return ST_OK;
}

/* Returns the place of the first entry of this name; x->n if there is none. */
static int64_t find_entry(const struct data_csv_index *x, const struct data_csv_field *name)
{
    int64_t from = 0, to = x->n;
    while (from < to) {
        int64_t half = from + (to - from) / 2;
        if (compare_names(&x->entry[half].name, name) < 0)
            from = half + 1;
        else
            to = half;
    }
    return from < x->n && compare_names(&x->entry[from].name, name) == 0 ? from : x->n;
}

/* Returns true if entry k exists and has this name. */
static bool has_name(const struct data_csv_index *x, int64_t k, const struct data_csv_field *name)
{
    return k < x->n && compare_names(&x->entry[k].name, name) == 0;
}

int64_t data_csv_index_find(const struct data_csv_index *x, const char *name, size_t n,
                            int64_t *second)
{
    const struct data_csv_field wanted = {name, n};
    int64_t k = find_entry(x, &wanted);
    *second = has_name(x, k + 1, &wanted) ? x->entry[k + 1].column : -1;
    return k < x->n ? x->entry[k].column : -1;
}

int64_t data_csv_index_take(struct data_csv_index *x, const struct csv *c, const char *name,
                            size_t n)
{
    const struct data_csv_field wanted = {name, n};
    int64_t first = find_entry(x, &wanted);
    while (first < x->n && has_name(x, first + x->entry[first].n_passed, &wanted)) {
        int64_t column = x->entry[first + x->entry[first].n_passed++].column;
        if (c->role[column] == DATA_CSV_FEATURE)
            return column;
    }
    return -1;
}
