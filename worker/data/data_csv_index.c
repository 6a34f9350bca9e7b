/* worker/data/data_csv_index.c - the columns of line 1, sorted by name and then by column, so
 * finding many columns costs little more than reading the line. See data_csv_impl.h. */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include <stdlib.h>
#include <string.h>

struct entry {
    struct data_csv_field name;
    int64_t column;
    char role; /* role letter of the training column that this column stands for; 0: any */
    bool is_taken;
    /* The fields below are used only in the first entry of each name. */
    /* columns of this name that no flag ignores: in this file, in the training file */
    int64_t n_here, n_trained;
    int64_t n_given;     /* entries that were examined for a role */
    int64_t n_passed[4]; /* entries that data_csv_index_take has passed for each role */
};

static const char role_letters[] = "flti";

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
        e->name.at = data_csv_next_field(c, &p, end, &e->name.n);
    }
    qsort(x->entry, (size_t)x->n, sizeof *x->entry, compare_entries);
    *out = x;
    return ST_OK;
}

static size_t letter_place(char role)
{
    return (size_t)(strchr(role_letters, role) - role_letters);
}

/* Returns the index of the first entry with this name; x->n if no entry has it. */
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
                            size_t n, char role)
{
    const struct data_csv_field wanted = {name, n};
    int64_t first = find_entry(x, &wanted);
    int64_t *passed = first < x->n ? &x->entry[first].n_passed[letter_place(role)] : NULL;
    while (first < x->n && has_name(x, first + *passed, &wanted)) {
        struct entry *e = &x->entry[first + (*passed)++];
        if (c->role[e->column] != DATA_CSV_FEATURE || e->is_taken || (e->role && e->role != role))
            continue;
        e->is_taken = true;
        return e->column;
    }
    return -1;
}

/* Sets n_here in the first entry of each name. */
static void count_here(struct data_csv_index *x, const struct csv *c)
{
    struct entry *first = x->entry;
    for (struct entry *e = x->entry; e < x->entry + x->n; e++) {
        if (compare_names(&e->name, &first->name) != 0)
            first = e;
        first->n_here += c->role[e->column] == DATA_CSV_FEATURE;
    }
}

/* Adds the occurrences of each name in `list` to n_trained of the name's first entry. Returns the
 * length of the list. */
static size_t count_trained(struct data_csv_index *x, const char *list)
{
    size_t n = 0;
    for (; list; n++) {
        struct data_csv_field name;
        name.at = data_csv_next_name(&list, &name.n);
        int64_t k = find_entry(x, &name);
        if (k < x->n)
            x->entry[k].n_trained++;
    }
    return n;
}

static size_t count_letter(const char *text, char letter)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == letter;
    return n;
}

void data_csv_index_train(struct data_csv_index *x, const struct csv *c)
{
    const struct data_csv_columns *k = c->columns;
    const char *rest[] = {k->feature_names, k->label_names, k->label_names, k->ignored_names};
    count_here(x, c);
    size_t features = count_trained(x, k->feature_names);
    size_t labels = count_trained(x, k->label_names);
    size_t ignored = count_trained(x, k->ignored_names);
    if (!k->roles || strspn(k->roles, "fltik") != strlen(k->roles) ||
        count_letter(k->roles, 'f') != features || count_letter(k->roles, 'i') != ignored ||
        count_letter(k->roles, 'l') + count_letter(k->roles, 't') != labels ||
        /* roles may be any text, because a model's file contains them */
        (strchr(k->roles, 'l') && strchr(k->roles, 't')))
        return;
    for (const char *r = k->roles; *r; r++) {
        if (*r == 'k')
            continue;
        const char **list = &rest[letter_place(*r)];
        struct data_csv_field name;
        if (!*list)
            return;
        name.at = data_csv_next_name(list, &name.n);
        int64_t i = find_entry(x, &name);
        if (i == x->n || x->entry[i].n_trained < 2 || x->entry[i].n_here < x->entry[i].n_trained)
            continue;
        struct entry *e = &x->entry[i];
        do
            i = e - x->entry + e->n_given++;
        while (c->role[x->entry[i].column] != DATA_CSV_FEATURE);
        x->entry[i].role = *r;
    }
}

void data_csv_index_count(const struct data_csv_index *x, const char *name, size_t n, int64_t *here,
                          int64_t *trained)
{
    const struct data_csv_field wanted = {name, n};
    int64_t k = find_entry(x, &wanted);
    *here = k < x->n ? x->entry[k].n_here : 0;
    *trained = k < x->n ? x->entry[k].n_trained : 0;
}

/* Adds entry e to *out, which collects the columns with this entry's name. */
static void add_equal(const struct csv *c, const struct entry *e, struct data_csv_equal *out)
{
    int64_t role = c->role[e->column];
    if (c->place ? !e->is_taken : role == DATA_CSV_IGNORED || e->name.n == 0)
        return;
    if (out->n < 2)
        out->column[out->n] = e->column;
    out->n++;
    out->is_used = out->is_used || role != DATA_CSV_IGNORED;
    if (role == DATA_CSV_FEATURE)
        out->feature = e->column;
}

bool data_csv_index_next_equal(const struct data_csv_index *x, const struct csv *c, int64_t *at,
                               struct data_csv_equal *out)
{
    while (*at < x->n) {
        const struct entry *first = &x->entry[*at];
        *out = (struct data_csv_equal){
            .name = first->name, .feature = -1, .n_trained = first->n_trained};
        for (; has_name(x, *at, &first->name); ++*at)
            add_equal(c, &x->entry[*at], out);
        if (out->is_used && (out->n > 1 || (c->place && out->n_trained > 1)))
            return true;
    }
    return false;
}
