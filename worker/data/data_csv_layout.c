/* worker/data/data_csv_layout.c - finds the columns of a CSV file by the names that a training file
 * gave them, in whatever order they are: see data_csv.h. Line 1 names the columns by the rule of
 * data_csv_columns.c: it has one of the names, and not as a number, which a sample could have. Else
 * the file is read by the places of its columns. Columns are sorted by their names once, so that
 * the cost of finding all of them grows little faster than their number. See data_csv_impl.h. */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include <stdlib.h>
#include <string.h>

/* One name of a list, and the rest of the list behind it. */
static const char *next_name(const char **list, size_t *n)
{
    const char *name = *list;
    *n = strcspn(name, "\n");
    *list = name[*n] ? name + *n + 1 : NULL;
    return name;
}

/* A column of line 1 whose role is open. */
struct entry {
    struct data_csv_field name;
    int64_t column;
    int64_t n_taken; /* columns of this name, from its first entry on, that have been taken */
};

/* Line 1, and its open columns sorted by name, equal names by place. */
struct line {
    struct data_csv_field *field; /* [n_columns] */
    struct entry *entry;          /* [n] */
    int64_t n;
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

/* Returns the place of the first entry of this name; l->n if there is none. */
static int64_t find_entry(const struct line *l, const struct data_csv_field *name)
{
    int64_t from = 0, to = l->n;
    while (from < to) {
        int64_t half = from + (to - from) / 2;
        if (compare_names(&l->entry[half].name, name) < 0)
            from = half + 1;
        else
            to = half;
    }
    return from < l->n && compare_names(&l->entry[from].name, name) == 0 ? from : l->n;
}

/* Takes the first column of this name that no call has taken yet. Returns -1 if there is none. */
static int64_t take_column(struct line *l, const char *name, size_t n)
{
    const struct data_csv_field wanted = {name, n};
    int64_t first = find_entry(l, &wanted);
    if (first == l->n)
        return -1;
    int64_t k = first + l->entry[first].n_taken;
    if (k == l->n || compare_names(&l->entry[k].name, &wanted) != 0)
        return -1;
    l->entry[first].n_taken++;
    return l->entry[k].column;
}

enum { ABSENT, AS_NUMBERS, AS_WORDS };

/* Returns whether line 1 has one of these names as a word, which names the columns, or all of them
 * as numbers. */
static int judge_names(const struct line *l, const char *list)
{
    int have_all = list != NULL;
    while (list) {
        size_t n;
        double number;
        const char *name = next_name(&list, &n);
        bool is_there = find_entry(l, &(struct data_csv_field){name, n}) < l->n;
        if (is_there && n > 0 && !data_csv_read_number(name, n, &number))
            return AS_WORDS;
        have_all = have_all && is_there && n > 0;
    }
    return have_all ? AS_NUMBERS : ABSENT;
}

/* Sets *named: line 1 names the columns. ST_INVALID: it may name them or be a sample. */
static enum status judge_line(const struct csv *c, const struct line *l, bool *named)
{
    const struct data_csv_columns *k = c->columns;
    int features = judge_names(l, k->feature_names);
    *named = k->header == DATA_CSV_HEADER_YES || features == AS_WORDS ||
             judge_names(l, k->label_names) == AS_WORDS ||
             judge_names(l, k->ignored_names) == AS_WORDS;
    if (*named || features != AS_NUMBERS)
        return ST_OK;
    LOG_E("%s: line 1: its numbers are the names that the columns had in training, or a sample; "
          "say --csv_header=yes if it names the columns, --csv_header=no if it is a sample",
          c->path);
    return ST_INVALID;
}

static enum status place_features(struct csv *c, struct line *l)
{
    const char *list = c->columns->feature_names;
    int64_t feature = 0;
    for (; list; feature++) {
        size_t n;
        const char *name = next_name(&list, &n);
        int64_t k = take_column(l, name, n);
        if (k >= 0) {
            c->place[k] = feature;
            continue;
        }
        LOG_E("%s: line 1: has no column '%.*s', which is feature %lld of the training file; give "
              "the columns the names that they had in training",
              c->path, (int)(n < 60 ? n : 60), name, (long long)feature + 1);
        return ST_MISMATCH;
    }
    c->n_features = feature;
    return ST_OK;
}

/* Gives the columns of a list the role `first`, or of targets that and the next ones. Returns how
 * many of the names the file has. */
static int64_t place_list(struct csv *c, struct line *l, const char *list, int64_t first,
                          int64_t *n_names)
{
    int64_t found = 0;
    for (*n_names = 0; list; ++*n_names) {
        size_t n;
        const char *name = next_name(&list, &n);
        int64_t k = take_column(l, name, n);
        if (k < 0)
            continue;
        c->role[k] = first >= 0 ? first + *n_names : first;
        found++;
    }
    return found;
}

static enum status place_labels(struct csv *c, struct line *l)
{
    const struct data_csv_columns *k = c->columns;
    bool unwanted = k->label && strcmp(k->label, DATA_CSV_NO_LABEL) == 0;
    int64_t n, found = place_list(c, l, k->label_names,
                                  unwanted         ? DATA_CSV_IGNORED
                                  : k->are_targets ? 0
                                                   : DATA_CSV_LABEL,
                                  &n);
    if (unwanted || (found == 0 && k->may_lack))
        return ST_OK;
    if (found < n) {
        LOG_E("%s: line 1: lacks the column of the label or of a target that the training file "
              "had, '%.60s'; add it, or name another with --%s",
              c->path, k->label_names, k->are_targets ? "target_columns" : "label_column");
        return ST_MISMATCH;
    }
    c->has_label = !k->are_targets;
    c->n_targets = k->are_targets ? n : 0;
    return ST_OK;
}

static enum status check_rest(const struct csv *c, const struct data_csv_field *field)
{
    const char *list = c->columns->feature_names;
    size_t n;
    for (int64_t k = 0; k < c->n_columns; k++) {
        if (c->role[k] != DATA_CSV_FEATURE || c->place[k] >= 0)
            continue;
        const char *first = next_name(&list, &n);
        LOG_E("%s: line 1: column %lld, '%.*s', is no column of the training file, whose feature 1 "
              "is '%.*s'; leave it out with --ignore_columns=%lld",
              c->path, (long long)k + 1, (int)(field[k].n < 60 ? field[k].n : 60), field[k].at,
              (int)(n < 60 ? n : 60), first, (long long)k + 1);
        return ST_MISMATCH;
    }
    return ST_OK;
}

static enum status place_all(struct csv *c, struct line *l)
{
    enum status st = ST_OK;
    int64_t n;
    c->has_names = 1;
    TRY(data_csv_check_names(c));
    TRY(place_features(c, l));
    TRY(place_labels(c, l));
    place_list(c, l, c->columns->ignored_names, DATA_CSV_IGNORED, &n);
    TRY(check_rest(c, l->field));
done:
    return st;
}

/* Lists the fields of line 1. */
static void read_line(const struct csv *c, struct line *l)
{
    const char *end = data_csv_line_end(c, c->at), *p = c->at;
    for (int64_t i = 0; i < c->n_columns; i++) {
        l->field[i].at = data_csv_take_field(c, &p, end, &l->field[i].n);
        c->place[i] = -1;
        if (c->role[i] == DATA_CSV_FEATURE)
            l->entry[l->n++] = (struct entry){.name = l->field[i], .column = i};
    }
    qsort(l->entry, (size_t)l->n, sizeof *l->entry, compare_entries);
}

enum status data_csv_match_names(struct csv *c, bool *matched)
{
    enum status st = ST_OK;
    const struct data_csv_columns *k = c->columns;
    bool named = k->targets || (k->label && strcmp(k->label, DATA_CSV_NO_LABEL) != 0);
    *matched = false;
    if (!k->feature_names || !k->label_names || named || k->header == DATA_CSV_HEADER_NO)
        return ST_OK;
    struct line l = {.field = malloc((size_t)c->n_columns * sizeof *l.field),
                     .entry = malloc((size_t)c->n_columns * sizeof *l.entry)};
    c->place = malloc((size_t)c->n_columns * sizeof *c->place);
    if (!l.field || !l.entry || !c->place) {
        LOG_E("%s: no memory for its %lld columns", c->path, (long long)c->n_columns);
        TRY(ST_NOMEM);
    }
    read_line(c, &l);
    TRY(judge_line(c, &l, matched));
    if (*matched)
        TRY(place_all(c, &l));
done:
    if (!*matched) {
        free(c->place);
        c->place = NULL;
    }
    free(l.field);
    free(l.entry);
    return st;
}
